//! `firn lab bench cache`: equal arguments give equal results; what makes no sense is refused.

use super::results;
use crate::support::run;

const TINY: &str =
    "lab bench cache --table 3 --size tiny --percent 20 --policy lc,gsc --seconds 0.5 --seeds 1";

#[test]
fn a_table_is_measured_beside_the_paper_and_again_alike() {
    let dir = tempfile::tempdir().unwrap();
    let measured = |name: &str, more: &str| {
        let json = dir.path().join(name);
        let ran = run(dir.path(), &format!("{TINY} --json {} {more}", json.display())).ended(0);
        (ran.out, results(&json))
    };
    let (text, result) = measured("first", "");
    assert_eq!(measured("again", ""), (text.clone(), result.clone()));
    assert_ne!(measured("other", "--seed 2").1["rows"], result["rows"]);

    assert!(text.contains("Table 3: reads found in the flash cache"), "{text}");
    for clients in ["each client in its own warehouse", "clients in all warehouses"] {
        assert!(text.contains(&format!("Reads that the flash cache served: {clients}")), "{text}");
    }
    assert_eq!((&result["bench"], &result["simulated"]), (&"cache".into(), &true.into()));
    let rows = result["rows"].as_array().unwrap();
    let cells: Vec<&str> = rows.iter().map(|row| row["cell"].as_str().unwrap()).collect();
    assert_eq!(rows.len(), 8, "LC at three shares, and GSC, for both kinds of clients: {cells:?}");
    for row in rows {
        let of = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
        assert!(of("commits") > 10.0 && of("transactions_per_second") > 20.0, "{row}");
        assert!((0.05..=1.0).contains(&of("hit_rate")), "{row}");
        // Below 0 where LC's cleaner writes, in so short a run, what became dirty before it.
        let least = if row["cell"].as_str().unwrap().contains("lc") { f64::MIN } else { 0.0 };
        assert!((least..=1.0).contains(&of("write_reduction")), "{row}");
        assert!(row["flash"]["utilization"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["store"]["busy_us_per_transaction"].as_f64().unwrap() > 0.0, "{row}");
        let alone = row["flash"]["alone"]["reads_us"].as_f64().unwrap();
        assert!(alone > 0.0, "reads by the drive's own rate: {row}");
    }
    // 20 % is the paper's 10 GB: LC's and GSC's hit rates and write reductions.
    let paper: Vec<f64> =
        result["paper"].as_array().unwrap().iter().map(|cell| cell["paper"].as_f64().unwrap()).collect();
    assert_eq!(paper, [89.3, 83.7, 78.6, 73.9]);
    let targets = result["targets"].as_array().unwrap();
    assert!(targets.iter().any(|target| target["target"] == 74.0), "{targets:?}");
}

#[test]
fn a_kill_and_a_restart_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("json");
    let line = format!("lab bench cache --table 6 --size tiny --quick --json {}", json.display());
    run(dir.path(), &line).ended(0).says("Table 6").says("Figure 6").says("default options");
    let rows = results(&json)["rows"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 4, "with a cache and without, and both with default options: {rows:?}");
    for row in rows {
        let kills = row["restarts"].as_array().unwrap();
        assert_eq!(kills.len(), 2, "{row}");
        for (kill, work) in kills.iter().zip([1000, 4000]) {
            let of = |key: &str| kill[key].as_f64().unwrap_or_else(|| panic!("{key} of {kill}"));
            // Equal work: a look at the clients comes every 20 ms.
            assert!((work as f64..work as f64 * 1.2).contains(&of("commits")), "{kill}");
            assert!(of("log_bytes") > 0.0, "there was something to repeat: {kill}");
            assert!(of("first_commit_seconds") > of("opened_seconds"), "a commit takes time: {kill}");
            assert!(of("all_redone_seconds") >= of("opened_seconds"), "{kill}");
            assert!(of("eager_first_commit_seconds") > 0.0, "{kill}");
            assert!(kill["course"].as_array().unwrap().len() >= 15, "{kill}");
        }
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        ("lab bench cache", "required"),
        ("lab bench cache --table 7", "invalid value"),
        ("lab bench cache --all --table 3", "cannot be used with"),
        ("lab bench cache --table 3 --seconds 0", "--seconds must be"),
        ("lab bench cache --table 3 --percent 0.1", "--percent takes"),
        ("lab bench cache --table 3 --clients some", "invalid value"),
        ("lab bench cache --table 3 --policy arc", "there is no cache policy \"arc\""),
    ] {
        let ran = run(dir.path(), arguments).ended(2);
        assert!(ran.err.contains(says), "{arguments}: {}", ran.err);
    }
}
