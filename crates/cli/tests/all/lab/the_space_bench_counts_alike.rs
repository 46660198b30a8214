//! `firn lab bench space`: equal arguments give equal results, and every file lists every target.

use crate::support::run;
use serde_json::Value;

/// Of the table, with what is not measured.
const TARGETS: usize = 13;

#[test]
fn space_is_counted_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str| {
        let json = dir.path().join(name);
        let line = format!("lab bench space --all --tiny --quick --json {}", json.display());
        let ran = run(dir.path(), &line).ended(0);
        let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        (ran.out, result)
    };
    let (text, result) = measure("first");
    let (again_text, again) = measure("again");
    assert_eq!((text.clone(), &result["rows"]), (again_text, &again["rows"]));
    assert!(text.contains("Figure shrink: space that comes back"), "{text}");
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    assert_eq!(targets.iter().filter(|target| target["value"].is_number()).count(), 4);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5 + 3, "{rows:?}");
    for row in rows {
        let bytes = |at: &str| row[at]["page_bytes"].as_u64().unwrap_or_else(|| panic!("{at} of {row}"));
        assert!(bytes("compacted") <= bytes("background"), "{row}");
    }
}
