//! `firn lab bench delta`: streams are recorded and replayed alike, every file lists every target,
//! and what each method writes and reads stands in the order that its rules give.

use super::results;
use crate::support::run;
use serde_json::Value;

/// Of the table of targets, with what other programs measure.
const TARGETS: usize = 21;

/// A quantity of the row of this cell.
fn of(result: &Value, cell: &str, path: &str) -> f64 {
    let rows = result["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["cell"] == cell);
    let row = row
        .unwrap_or_else(|| panic!("{cell} of {:?}", rows.iter().map(|row| &row["cell"]).collect::<Vec<_>>()));
    row.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {row}"))
}

fn pages(result: &Value, cell: &str, way: &str) -> f64 {
    let part = |name: &str| of(result, cell, &format!("/pages_{way}_per_transaction/{name}"));
    part("images") + part("deltas") + part("map") + part("copies")
}

#[test]
fn streams_are_counted_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str, streams: &str| {
        let json = dir.path().join(name);
        let line = "lab bench delta --figure front --figure bound --tiny --quick";
        let ran = run(dir.path(), &format!("{line} --json {}{streams}", json.display())).ended(0);
        (ran.out, results(&json))
    };
    let kept = format!(" --streams {}", dir.path().join("streams").display());
    let (text, result) = measure("first", &kept);
    // Recorded anew, and read from the files that are there.
    assert_eq!(measure("again", ""), (text.clone(), result.clone()));
    assert_eq!(measure("kept-streams", &kept), (text.clone(), result.clone()));
    assert!(text.contains("Figure front") && text.contains("Figure bound"), "{text}");
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    for target in targets {
        assert!(target["value"].is_number() || target["reason"].is_string(), "{target}");
    }
    for kib in [8, 4] {
        let cell = |name: &str, buffer: u64| format!("{name}, {kib} KiB, buffer {buffer}");
        let (orig, double) = (cell("in place (ORIG)", 0), cell("in place, double write", 0));
        let (written, read) = (pages(&result, &orig, "written"), pages(&result, &orig, "read"));
        assert!(written > 0.0 && read > 0.0);
        assert!((written - of(&result, &orig, "/dirty_pages_given_down_per_transaction")).abs() < 1e-3);
        assert!((pages(&result, &double, "written") / written - 2.0).abs() < 1e-3);
        let icl = cell("ICL as published", 8);
        assert_eq!(of(&result, &icl, "/deltas_read_most"), 1.0);
        assert!(pages(&result, &icl, "written") < written && pages(&result, &icl, "read") > read);
        let firn = |read_cost: &str| cell(&format!("firn (model), reads at {read_cost}"), 8);
        let (free, dear) = (firn("0.000"), firn("1.000"));
        assert_eq!(of(&result, &free, "/deltas_read_most"), 1.0);
        assert!(pages(&result, &free, "written") < pages(&result, &dear, "written"));
        assert!(pages(&result, &free, "read") > pages(&result, &dear, "read"));
        let quietly = |name: &str| format!("{}, no checkpoints", cell(name, 0));
        let each = |name: &str| of(&result, &quietly(name), "/written_each");
        let (least, model) = (each("minimum"), each("firn (model), from the start"));
        assert!(0.0 < least && least <= model, "{least} {model}");
    }
}
