//! The thesis' procedure on emulated devices: what is printed, written and drawn, and what is
//! refused.

use crate::support::run;
use serde_json::Value;
use std::path::Path;

#[test]
fn the_thesis_tables_are_printed_written_and_drawn_and_a_seed_measures_alike() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("myers");
    let measured = || {
        run(&at, "lab characterize --seconds 1 --pictures {db}.pictures --json {db}.json")
            .ended(0)
            .says("is an input of myers-a, myers-b, myers-disk");
        std::fs::read_to_string(at.with_extension("json")).expect("results")
    };
    let results: Value = serde_json::from_str(&measured()).expect("JSON");
    assert_eq!((&results["simulated"], &results["bench"]), (&true.into(), &"characterize".into()));
    let devices = results["devices"].as_array().expect("devices");
    let rows: Vec<usize> = devices.iter().map(|it| it["rows"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(rows, [44, 44, 44]);
    for (table, count) in [(0, 8), (1, 6), (2, 2)] {
        let ratios = results["tables"][table]["ratios"].as_array().expect("ratios");
        assert_eq!(ratios.len(), count);
        assert_eq!(results["targets"][table]["met"], true, "{}", results["targets"]);
        assert_eq!(results["targets"][table]["input"], true);
    }
    for (picture, part) in
        [("reads-by-size", "random read"), ("writes-by-size", "512 KB"), ("4-kb", "myers-disk")]
    {
        let path = at.with_extension("pictures").join(format!("myers-{picture}.svg"));
        assert!(std::fs::read_to_string(&path).expect("drawn").contains(part), "{}", path.display());
    }
    let again: Value = serde_json::from_str(&measured()).expect("JSON");
    assert_eq!(results["devices"], again["devices"]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_sentence() {
    let none = Path::new("");
    run(none, "lab characterize --seconds 0").ended(2).warns("--seconds is 0");
    run(none, "lab characterize no-such-device").ended(2).warns("shipped profiles are");
}
