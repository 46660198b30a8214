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
    assert_eq!(rows.len(), 9, "three drives, one stream alone and two together");
    assert!(rows.iter().all(|row| row["latency_us"]["mean"].as_f64().unwrap() > 500.0));
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
    let svg = std::fs::read_to_string(pictures.join("figure-16.svg")).unwrap();
    assert!(svg.contains("flash-a") && svg.contains("disk-10k"));
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
        ("lab bench log --figure 6", "possible values"),
        ("lab bench log --figure 7 --all", "cannot be used"),
        ("lab bench log --figure 11 --real --dir .", "modern"),
        ("lab bench log --figure 16 --real", "--dir"),
        ("lab bench log --figure 16 --dir .", "--real"),
        ("lab bench log --figure 11 --seconds 0", "0.01"),
    ] {
        run(dir.path(), arguments).ended(2).warns(said);
    }
}
