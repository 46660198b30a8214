//! `firn lab bench pages`: equal arguments give equal results, every file lists every target, and
//! the modes write what they are to write.

use super::results;
use crate::support::run;
use serde_json::Value;

/// Of the table, with what is not built.
const TARGETS: usize = 18;
const PAGES: u64 = 200;

fn cell<'r>(result: &'r Value, name: &str) -> &'r Value {
    let mut rows = result["rows"].as_array().unwrap().iter();
    rows.find(|row| row["cell"] == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn written(row: &Value, part: &str) -> f64 {
    let bytes = |step: &str| row[step][part]["write_bytes"].as_f64().unwrap();
    bytes("work") + bytes("checkpoint")
}

#[test]
fn pages_are_written_as_their_mode_has_it_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str| {
        let json = dir.path().join(name);
        let line = "lab bench pages --figure cells --figure abort --quick --profile ocz-core";
        let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
        (ran.out, results(&json))
    };
    let (text, result) = measure("first");
    assert_eq!(measure("again"), (text.clone(), result.clone()));
    assert!(text.contains("Figure cells: the 24 cells of table 4"), "{text}");
    assert_eq!(result["rows"].as_array().unwrap().len(), 4 * (24 + 2));
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    assert_eq!(targets.iter().filter(|target| target["value"].is_number()).count(), 6);
    let of = |mode: &str, work: &str| cell(&result, &format!("ocz-core, {mode}, {work}, 64+60 pages"));
    let count = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} of {row}"));
    let whole = PAGES as f64 * 4096.0;
    for work in ["commit, full, sequential, 1", "commit, full, random, N"] {
        let [log, shadow, hybrid] = ["log", "shadow", "hybrid"].map(|mode| of(mode, work));
        assert_eq!((count(log, "images_logged"), count(log, "shadows")), (PAGES, 0), "{work}");
        for row in [shadow, hybrid] {
            assert_eq!((count(row, "images_logged"), count(row, "shadows")), (0, PAGES), "{work}");
        }
        assert!(written(log, "log") > whole && written(log, "store") > whole, "{log}");
        assert!(written(hybrid, "store") > whole, "{hybrid}");
        assert_eq!(written(hybrid, "log"), written(shadow, "log"));
    }
    let at_once = of("hybrid", "commit, full, sequential, 1");
    assert!(written(at_once, "log") < 0.2 * whole, "{at_once}");
    let chosen = |work: &str| {
        let row = of("adaptive", work);
        (count(row, "images_logged"), count(row, "shadows"))
    };
    assert_eq!(chosen("commit, full, sequential, 1"), (0, PAGES), "many pages at once are shadows");
    assert_eq!(chosen("commit, full, random, N"), (PAGES, 0), "single ones are logged");
    for (mode, shadows) in [("log", 0), ("hybrid", 0), ("adaptive", 0), ("shadow", PAGES)] {
        let parts = of(mode, "commit, partial, random, N");
        let images = (count(parts, "images_logged"), count(parts, "shadows"));
        assert_eq!(images, (0, shadows), "{mode}: parts are logged without their pages, or put whole");
    }
    let read = &of("log", "read, full, random, 1")["work"];
    assert_eq!((count(&read["log"], "writes"), count(&read["store"], "writes")), (0, 0), "{read}");
    assert!(count(&read["store"], "reads") >= PAGES, "{read}");
}

#[test]
fn every_other_figure_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("json");
    let figures = ["1-2", "table-1", "5", "9-a", "9-b", "10", "values", "load", "archive"]
        .map(|it| format!("--figure {it}"))
        .join(" ");
    let line = format!("lab bench pages {figures} --pages 150 --quick --profile nvme,barracuda-7200-7");
    let text = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0).out;
    let result = results(&json);
    for (number, title) in [("1-2", "reads"), ("5", "buffer"), ("10", "dirty frames"), ("9-b", "pages")] {
        assert!(text.contains(&format!("Figure {number}: {title}")), "{text}");
    }
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.iter().filter(|target| target["value"].is_number()).count(), 8);
    for figure in result["figures"].as_array().unwrap() {
        for panel in figure["panels"].as_array().unwrap() {
            let series = panel["series"].as_array().unwrap();
            assert!(
                !series.is_empty() && series.iter().all(|it| !it["points"].as_array().unwrap().is_empty())
            );
        }
    }
    let value = |mode: &str| {
        let row = cell(&result, &format!("nvme, {mode}, 12 values of 1 MiB"));
        ["log", "store"].map(|part| row["written"][part]["write_bytes"].as_f64().unwrap() / (12 << 20) as f64)
    };
    let ([logged, _], [log, store]) = (value("log"), value("shadow"));
    assert!(logged > 1.0 && log < 0.05 && (1.0..1.1).contains(&store), "{logged} {log} {store}");
    let seconds = |name: &str| cell(&result, name)["seconds"].as_array().unwrap().last().unwrap().as_f64();
    let in_order = seconds("barracuda-7200-7, reads in order").unwrap();
    assert!(seconds("barracuda-7200-7, reads of a file of 16000 pages at random").unwrap() > 10.0 * in_order);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        ("lab bench pages", "required"),
        ("lab bench pages --figure 6", "invalid value"),
        ("lab bench pages --all --figure 5", "cannot be used with"),
        ("lab bench pages --all --pages 10", "10 is not in"),
        ("lab bench pages --figure 10 --profile floppy", "floppy"),
    ] {
        let ran = run(dir.path(), arguments).ended(2);
        assert!(ran.err.contains(says), "{arguments}: {}", ran.err);
    }
}
