//! `firn lab bench query`: every plan returns the same rows, equal arguments give equal results,
//! and every file lists every target.

use crate::support::run;
use serde_json::Value;

/// Of the figures, with what other programs measure.
const TARGETS: usize = 15;

#[test]
fn an_index_is_measured_beside_a_scan_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str| -> (String, Value) {
        let json = dir.path().join(name);
        let line = "lab bench query --figure 4-2 --table 5.1 --tiny --quick --profile nvme";
        let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
        (ran.out, serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap())
    };
    let (text, result) = measure("first");
    assert_eq!(measure("again").0, text);
    assert!(text.contains("Figure 4-2: an index against a scan"), "{text}");
    assert_eq!(result["targets"].as_array().unwrap().len(), TARGETS);
    let rows = result["rows"].as_array().unwrap();
    let of = |row: &Value, key: &str| row[key].as_f64().unwrap_or(0.0);
    let tuples = rows.iter().filter(|row| row["cell"].as_str().unwrap().contains("tuples"));
    for row in tuples {
        let index: Vec<f64> = row["index_s"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
        assert!(of(row, "scan_s") > 0.0 && index.len() == 11 && index[0] < index[10], "{row}");
    }
    let orders = rows.iter().filter(|row| of(row, "orders") > 0.0).count();
    assert_eq!(orders, 2, "both data sets: {rows:?}");
}

#[test]
fn plans_by_wrong_estimates_are_measured_beside_fixed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = "lab bench query --figure adaptive --tiny --quick --profile nvme";
    let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
    assert!(ran.out.contains("Figure adaptive: plans chosen by wrong estimates"), "{}", ran.out);
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap();
    let plans = |joined: bool| {
        let plans = rows.iter().filter_map(|row| row["chosen"]["plan"].as_str());
        plans.filter(move |plan| plan.contains("adaptive") && plan.contains("join") == joined).count()
    };
    assert!(rows.len() == 20 && plans(false) > 0 && plans(true) > 0, "{rows:?}");
}

/// In real time, which only a release build is held to.
#[test]
fn planning_is_timed() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let line = "lab bench query --figure planning --profile nvme";
    let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let of = |target: &&Value| target["name"].as_str().unwrap().starts_with("planning");
    let target = result["targets"].as_array().unwrap().iter().find(of).unwrap();
    match cfg!(debug_assertions) {
        true => assert!(ran.out.contains("only a release build"), "{}", ran.out),
        false => assert!(target["value"].as_f64().unwrap() > 1.0, "{target}"),
    }
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (line, words) in [
        ("lab bench query", "required"),
        ("lab bench query --figure 7", "invalid value"),
        ("lab bench query --all --scale 0", "--scale must be"),
        ("lab bench query --all --cpu ideal=1", "firn*FACTOR"),
        ("lab bench query --figure 4-2 --profile floppy", "floppy"),
    ] {
        let ran = run(dir.path(), line).ended(2);
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
    }
}
