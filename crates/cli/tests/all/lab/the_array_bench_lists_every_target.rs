//! `firn lab bench array`: cells are simulated alike each time, and every file lists every target.

use super::{assert_rows_are_among, results};
use crate::support::run;

/// Of the table of targets, with what is not built.
const TARGETS: usize = 33;

#[test]
fn cells_are_simulated_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str| {
        let json = dir.path().join(name);
        let line = "lab bench array --figure 8-3 --figure 8-4 --tiny --quick";
        let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
        (ran.out, results(&json))
    };
    let (text, result) = measure("first");
    assert_eq!(measure("again"), (text.clone(), result.clone()));
    assert!(text.contains("Figure 8-3: three usual codes beside the best, on flash"), "{text}");
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 27, "flash and disks, five writers");
    for row in rows {
        let rates = |kind: &str| {
            row[kind].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect::<Vec<f64>>()
        };
        let (reads, writes) = (rates("reads"), rates("writes"));
        assert_eq!((reads.len(), writes.len()), (10, 10));
        assert!(reads.iter().chain(&writes).all(|&rate| rate > 0.0), "{row}");
    }
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    for target in targets {
        assert!(target["value"].is_number() || target["reason"].is_string(), "{target}");
    }
    assert_eq!(targets.iter().filter(|target| target["value"].is_number()).count(), 3, "{targets:?}");
}

#[test]
fn the_store_over_emulated_members_is_measured_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str, figures: &str| {
        let json = dir.path().join(name);
        let line = format!("lab bench array {figures} --tiny --quick --json {}", json.display());
        let ran = run(dir.path(), &line).ended(0);
        (ran.out, results(&json))
    };
    let (text, result) = measure("all", "--engine");
    for figure in ["engine", "tail", "rates", "rebuild", "moving"] {
        assert!(text.contains(&format!("Figure {figure}: ")), "{text}");
    }
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    let measured = |name: &str| {
        let target = targets.iter().find(|target| target["name"].as_str().unwrap().contains(name));
        target.unwrap_or_else(|| panic!("no target {name}"))["value"].as_f64()
    };
    // What holds at any size: fragments and what is filled are counted, not timed.
    assert_eq!(measured("places that are not used"), Some(0.0), "{text}");
    assert!(measured("bytes to members").is_some_and(|over| (1.0..2.0).contains(&over)), "{text}");
    assert!(measured("random reads over one member").is_some_and(|times| times > 1.5), "{text}");
    assert!(measured("a member frozen").is_some_and(|beyond| beyond < 6000.0), "{text}");
    let over_best = measured("a layout for each table over the best");
    assert!(over_best.is_some_and(|times| (0.3..3.0).contains(&times)), "{text}");
    assert_eq!(measured("w > a"), None, "it is not built");
    assert_rows_are_among(&result, &measure("again", "--figure rates").1);
}
