//! `firn lab torture kill`, short: what was acknowledged survives SIGKILL, and the verification
//! sees it when not.
//!
//! The long run is `firn lab torture kill` itself; see `docs/testing.md`.

use crate::support::run;
use serde_json::Value;

#[test]
fn what_was_acknowledged_survives_and_the_rest_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let command = "lab torture kill --dir {db} --rounds 12 --longest-ms 500 --fresh-every 5 --seed 42 --json";
    let ran = run(&dir.path().join("t"), &format!("{command} {}", json.display())).ended(0);
    ran.says("12 rounds").says("no loss, no half transaction, no damage");
    assert!(!dir.path().join("t").exists(), "nothing is left behind");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(result["schema"], "firn-torture/1");
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 12);
    let acknowledged: u64 = rounds.iter().map(|round| round["acknowledged"].as_u64().unwrap()).sum();
    assert!(acknowledged > 100, "the children worked: {acknowledged} commits");
    let redone: u64 = rounds.iter().filter_map(|round| round["verified"]["redone"].as_u64()).sum();
    assert!(redone > 0, "recovery had work to do");
}

#[test]
fn stores_over_several_devices_survive_kills_and_lost_devices() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let command =
        "lab torture kill --dir {db} --rounds 10 --longest-ms 500 --fresh-every 4 --seed 7 --store-array";
    let command = format!("{command} --cache 4M --json {}", json.display());
    let ran = run(&dir.path().join("t"), &command).ended(0);
    ran.says("devices of stores were lost").says("no loss, no half transaction, no damage");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 10);
    assert!(rounds.iter().all(|round| round["store"].as_str().unwrap().contains(" over ")));
}

#[test]
fn a_loss_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("t");
    let ran =
        run(&db, "lab torture kill --dir {db} --rounds 40 --longest-ms 200 --acknowledge-early").ended(1);
    ran.warns("LOST: client").warns("is kept in");
    assert!(db.join("db").join("superblock").exists(), "what failed can be looked at");
}

#[test]
fn a_directory_with_other_files_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), b"data").unwrap();
    run(dir.path(), "lab torture kill --dir {db}").ended(2).warns("choose another --dir");
    assert_eq!(std::fs::read(dir.path().join("precious")).unwrap(), b"data");
}
