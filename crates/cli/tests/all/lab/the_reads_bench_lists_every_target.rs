//! `firn lab bench reads`: equal arguments give equal results, every file lists every target, and
//! nothing is left on the drive.

use super::results;
use crate::support::run;
use serde_json::Value;

/// Of the table, with what other programs measure.
const TARGETS: usize = 18;

/// The targets that have values, and how many there are in all.
fn measured(result: &Value) -> (Vec<(String, f64)>, usize) {
    let targets = result["targets"].as_array().unwrap();
    let value = |target: &Value| Some((target["name"].as_str()?.to_owned(), target["value"].as_f64()?));
    for target in targets {
        assert!(target["value"].is_number() || target["reason"].is_string(), "{target}");
    }
    (targets.iter().filter_map(value).collect(), targets.len())
}

#[test]
fn shipped_drives_are_read_in_virtual_time_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |name: &str| {
        let json = dir.path().join(name);
        let line = "lab bench reads --figure profiles --tiny --quick --profile sata-ssd,network-volume";
        let ran = run(dir.path(), &format!("{line} --json {}", json.display())).ended(0);
        (ran.out, results(&json))
    };
    let (text, result) = measure("first");
    assert_eq!(measure("again"), (text.clone(), result.clone()));
    assert!(text.contains("Figure profiles: reads on the shipped drives"), "{text}");
    assert_eq!((&result["bench"], &result["simulated"]), (&"reads".into(), &true.into()));
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "a row for each drive: {rows:?}");
    for row in rows {
        let of = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        // The printed figures of the drives.
        let (iops, mb_s) = if row["cell"] == "sata-ssd" { (98_000.0, 560.0) } else { (3000.0, 131.0) };
        assert!((0.9..1.05).contains(&(of("random_per_second") / iops)), "{row}");
        assert!((0.9..1.05).contains(&(of("sequential_mb_s") / mb_s)), "{row}");
        for (ours, drive) in [
            ("scan_mb_s", "sequential_mb_s"),
            ("many_missed_per_second", "random_per_second"),
            ("fetched_pages_per_second", "random_per_second"),
        ] {
            assert!(of(ours) > 0.0, "{ours} of {row}");
            // A fetch in the order of places may read neighbours in one request; no scan beats the
            // drive.
            let most = if ours == "fetched_pages_per_second" { 30.0 } else { 1.15 };
            assert!(of(ours) / of(drive) < most, "{ours} of {row}");
        }
    }
    let (values, all) = measured(&result);
    assert_eq!((values.len(), all), (3, TARGETS), "{values:?}");
}

#[test]
fn tpcc_is_measured_beside_a_scan() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("json");
    let line = "lab bench reads --figure beside --tiny --quick --seconds 0.3";
    run(dir.path(), &format!("{line} --json {}", json.display())).ended(0).says("Figure beside");
    let result = results(&json);
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        let of = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        let scans = row["cell"].as_str().unwrap().contains("1 scanning");
        assert_eq!(of("scanned_pages_per_transaction") > 1.0, scans, "{row}");
        let reads = of("tier_reads_per_transaction") - of("scanned_pages_per_transaction");
        assert!((0.0..of("fixes_per_transaction")).contains(&reads), "{row}");
    }
    let (values, all) = measured(&result);
    assert_eq!((values.len(), all), (2, TARGETS), "{values:?}");
    // Of some fifty transactions.
    for (name, value) in values {
        assert!((0.1..2.0).contains(&value), "{name}: {value}");
    }
}

#[test]
fn a_drive_is_measured_and_nothing_is_left_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let (on, json) = (dir.path().join("drive"), dir.path().join("json"));
    std::fs::create_dir(&on).unwrap();
    let line = format!(
        "lab bench reads --real --quick --tiny --seconds 0.05 --rounds 2 --dir {} --json {}",
        on.display(),
        json.display()
    );
    run(dir.path(), &line).ended(0).says("Figure real").says("Pages read at random");
    assert_eq!(std::fs::read_dir(&on).unwrap().count(), 0, "files were made, and removed again");
    let result = results(&json);
    assert_eq!((&result["simulated"], result["rows"].as_array().unwrap().len()), (&false.into(), 2));
    for row in result["rows"].as_array().unwrap() {
        for (key, value) in row.as_object().unwrap() {
            let zero = ["figure", "round"].contains(&&**key);
            assert!(zero || value.as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
        }
    }
    let (values, all) = measured(&result);
    assert_eq!((values.len(), all), (6, TARGETS), "{values:?}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        ("lab bench reads", "required"),
        ("lab bench reads --figure 5", "invalid value"),
        ("lab bench reads --real", "--dir"),
        ("lab bench reads --real --dir . --all", "cannot be used with"),
        ("lab bench reads --all --seconds 0", "--seconds must be"),
        ("lab bench reads --all --buffer 1k", "--buffer must be at least"),
        ("lab bench reads --all --times 1", "1 is not in"),
        ("lab bench reads --figure profiles --profile floppy", "floppy"),
    ] {
        let ran = run(dir.path(), arguments).ended(2);
        assert!(ran.err.contains(says), "{arguments}: {}", ran.err);
    }
}
