//! `firn lab bench space`: equal arguments give equal results, and every file lists every target.

use super::assert_rows_are_among;
use crate::support::run;
use serde_json::Value;

/// Of the table, with what is not measured.
const TARGETS: usize = 14;

#[test]
fn space_is_counted_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str, figures: &str| {
        let json = dir.path().join(name);
        let line = format!("lab bench space {figures} --tiny --quick --json {}", json.display());
        let ran = run(dir.path(), &line).ended(0);
        let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        (ran.out, result)
    };
    let (text, result) = measure("all", "--all");
    assert_rows_are_among(&result, &measure("again", "--figure shrink").1);
    assert!(text.contains("Figure shrink: space that comes back"), "{text}");
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), TARGETS);
    // All but the yardstick and blocks of a real file; beside the cleaner only if it copied a page.
    let measured = targets.iter().filter(|target| target["value"].is_number()).count();
    assert!((11..=12).contains(&measured), "{targets:?}");
    let rows = result["rows"].as_array().unwrap();
    let of_figure =
        |name: &'static str| rows.iter().filter(move |row| row["cell"].as_str().unwrap().starts_with(name));
    // Loads, ways, and how full; ways and operations, in place once and otherwise thrice.
    assert_eq!((of_figure("waf,").count(), of_figure("6-1,").count()), (3 * 7 * 3, 4 + 2 * 4 * 3));
    for row in of_figure("waf,") {
        let [host, programmed] = ["host", "programmed"].map(|what| row[what].as_f64().unwrap());
        assert!(host > 0.0 && programmed >= host, "{row}");
    }
    let others: Vec<&Value> = rows.iter().filter(|row| row["compacted"].is_object()).collect();
    assert_eq!(others.len(), 5 + 3, "{others:?}");
    for row in others {
        let bytes = |at: &str| row[at]["page_bytes"].as_u64().unwrap_or_else(|| panic!("{at} of {row}"));
        assert!(bytes("compacted") <= bytes("background"), "{row}");
    }
}
