//! `firn lab bench log`: equal arguments give equal results, every target stands in them, and what
//! makes no sense is refused.

use crate::support::run;
use serde_json::Value;
use std::path::Path;

fn results(dir: &Path, name: &str, arguments: &str) -> Value {
    let json = dir.join(name);
    run(dir, &format!("lab bench log {arguments} --json {}", json.display())).ended(0);
    let mut result: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let head = result.as_object_mut().unwrap();
    assert!(head.remove("started_at").is_some() && head.remove("seconds").is_some());
    result
}

#[test]
fn a_figure_replays_and_another_seed_gives_another() {
    let dir = tempfile::tempdir().unwrap();
    let first = results(dir.path(), "first", "--figure 7 --quick --seed 3");
    assert_eq!(first, results(dir.path(), "again", "--figure 7 --quick --seed 3"));
    let other = results(dir.path(), "other", "--figure 7 --quick --seed 4");
    assert_ne!(first["rows"], other["rows"]);
    assert_eq!((&first["schema"], &first["simulated"]), (&"firn-bench/1".into(), &true.into()));
    let rows = first["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "one a drive");
    for row in rows {
        for stream in ["alone", "first", "second"] {
            assert!(row[stream]["mean"].as_f64().unwrap() > 500.0, "{row}");
        }
    }
}

#[test]
fn the_scan_is_measured_beside_its_targets_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = dir.path().join("pictures");
    let arguments = format!("--figure 16 --quick --pictures {}", pictures.display());
    let result = results(dir.path(), "scan", &arguments);
    let targets = result["targets"].as_array().unwrap();
    let of =
        |name: &str| targets.iter().find(|target| target["name"].as_str().unwrap().contains(name)).unwrap();
    let two = of("two devices / one")["value"].as_f64().unwrap();
    let four = of("four devices / one")["value"].as_f64().unwrap();
    assert!((1.5..2.1).contains(&two) && (2.0..4.2).contains(&four), "{two} {four}");
    let real = of("real device");
    assert!(real["value"].is_null() && real["reason"].as_str().unwrap().contains("--real"));
    let svg = std::fs::read_to_string(pictures.join("flashlogging-figure-16.svg")).unwrap();
    assert!(svg.contains("flash-a") && svg.contains("disk-10k"));
}

#[test]
fn a_run_goes_on_where_it_was_left_and_its_page_is_made_of_the_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let line = |file: &str, more: &str| format!("lab bench log --figure 7 --quick --json {at}/{file} {more}");
    run(dir.path(), &line("one", "--seeds 1")).ended(0);
    run(dir.path(), &line("one", "")).ended(2).warns("--resume goes on with");
    run(dir.path(), &line("one", "--seed 2 --resume")).ended(2).warns("different arguments");
    run(dir.path(), &line("one", "--bands --resume --workers 3")).ended(0);
    run(dir.path(), &line("two", "--bands --workers 1")).ended(0);
    let parts = |name: &str| -> Value {
        let file: Value = serde_json::from_slice(&std::fs::read(dir.path().join(name)).unwrap()).unwrap();
        [&file["rows"], &file["figures"], &file["commit"], &file["config"]].into_iter().cloned().collect()
    };
    assert_eq!(parts("one"), parts("two"));
    let bands: Vec<_> = parts("one")[0]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["band"].as_str().unwrap().to_owned())
        .collect();
    assert!(bands.contains(&"fast".into()) && bands.contains(&"slow".into()), "{bands:?}");

    let report = |arguments: &str| run(dir.path(), &format!("lab bench report {at}/{arguments}"));
    report(&format!("one --markdown {at}/page.md --pictures {at}/pictures")).ended(0);
    let page = std::fs::read_to_string(dir.path().join("page.md")).unwrap();
    assert!(page.contains("# Results of `firn lab bench log`") && page.contains("**Input**"), "{page}");
    assert!(page.contains("](pictures/flashlogging-figure-7.svg)"), "{page}");
    assert!(dir.path().join("pictures/flashlogging-figure-7.svg").exists());
    report("one --markdown -").ended(0).says("Figure 7");
    report("one").ended(2).warns("--markdown");
    std::fs::write(dir.path().join("none"), "{}").unwrap();
    report("none --markdown -").ended(1).warns("not a file of results");
}

#[test]
fn the_real_device_is_measured_and_nothing_is_left_there() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = format!("--figure 16 --figure 17 --quick --real --dir {}", dir.path().display());
    let result = results(dir.path(), "real", &arguments);
    assert_eq!(result["simulated"], false);
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 3);
    assert!(targets.iter().all(|target| target["value"].as_f64().unwrap() > 0.0));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["real"]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        ("lab bench log", "--figure"),
        ("lab bench log --figure 3", "possible values"),
        ("lab bench log --figure 7 --all", "cannot be used"),
        ("lab bench log --figure 11 --real --dir .", "modern"),
        ("lab bench log --figure 16 --real", "--dir"),
        ("lab bench log --figure 16 --dir .", "--real"),
        ("lab bench log --figure 11 --seconds 0", "0.01"),
        ("lab bench log --figure 7 --resume", "--json"),
    ] {
        run(dir.path(), arguments).ended(2).warns(said);
    }
}
