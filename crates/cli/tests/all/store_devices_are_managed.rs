//! `firn array`, and what `stat` and `check` say of a store over several devices, as an operator
//! uses them when one is lost.

use crate::support::run;
use std::path::Path;

fn made(dir: &Path) {
    let paths = (0..3).map(|member| format!("store.{member}"));
    let options = firndb::Options::new().store_paths(paths).store_survives(1).buffer_bytes(1 << 20);
    let db = options.open(dir).expect("created");
    let table = db.create_table("rows").expect("a table");
    for row in 0..200u64 {
        db.transact(|tx| tx.put(&table, &row.to_be_bytes(), &[7; 900])).expect("a commit");
    }
    db.close().expect("closed");
}

#[test]
fn a_lost_device_is_told_replaced_and_all_are_scrubbed() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    let text = run(&dir, "array status {db}").ended(0).out;
    assert!(text.contains("store.2") && text.contains("1 could be lost"), "{text}");
    let text = run(&dir, "stat {db}").ended(0).out;
    assert!(text.contains("device 2: ") && text.contains("1 could be lost"), "{text}");
    run(&dir, "check {db}").ended(0).says("no damage");

    std::fs::remove_file(dir.join("store.1")).expect("there");
    let text = run(&dir, "check {db}").ended(0).out;
    assert!(text.contains("lacks devices, no device can be lost") && text.contains("no damage"), "{text}");
    assert!(text.contains("device 1, store.1, was not read: it is lost"), "{text}");
    let check: serde_json::Value =
        serde_json::from_str(&run(&dir, "check {db} --json").ended(0).out).expect("JSON");
    let left_out = &check["devices_left_out"];
    assert_eq!((left_out[0]["path"].as_str(), left_out[1].as_str()), (Some("store.1"), None), "{check}");
    let stat: serde_json::Value =
        serde_json::from_str(&run(&dir, "stat {db} --json").ended(0).out).expect("JSON");
    let array = &stat["store"]["array"];
    assert_eq!((array["degraded"].as_bool(), array["may_lose"].as_u64()), (Some(true), Some(0)), "{array}");

    let text = run(&dir, "array replace {db} 1 store.new").ended(0).out;
    assert!(text.contains("has been filled; 1 may be lost now"), "{text}");
    let text = run(&dir, "array scrub {db}").ended(0).out;
    assert!(text.contains("0 fragments and copies mended; 0 faults left"), "{text}");
    run(&dir, "array replace {db} 5 store.x").ended(1).warns("no device 5");
    run(&dir, "array layout {db} rows nonsense").ended(2).warns("is no layout");

    std::fs::remove_file(dir.join("store.0")).expect("there");
    std::fs::remove_file(dir.join("store.2")).expect("there");
    run(&dir, "check {db}").ended(1).warns("can lose 1 of its 3");
}

/// Cause: a check read as many fragments as give a page back. Effect: it found no damage where
/// devices had wrong ones, and one device less could be lost.
#[test]
fn a_check_names_the_fragments_that_others_make_up_for() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    let path = dir.join("store.0");
    let mut bytes = std::fs::read(&path).expect("there");
    let blocks = bytes.chunks_mut(4096).filter(|block| block[3600..3700] == [7; 100]);
    let rotten = blocks.map(|block| block[3650] ^= 1).count();
    assert!(rotten > 10);
    std::fs::write(&path, &bytes).expect("there");
    let checked = run(&dir, "check {db}").ended(1).warns("faults found");
    let named = checked.out.lines().filter(|line| {
        line.starts_with("DAMAGE: device 0 of the store: ") && line.contains("store.0: a fragment at offset")
    });
    let named = named.count();
    assert!((10..=rotten).contains(&named), "{named} of {rotten}: {}", checked.out);
    assert!(std::fs::read(&path).expect("there") == bytes, "it changes nothing");
    run(&dir, "array scrub {db}").ended(0).says(&format!("{named} fragments and copies mended"));
    run(&dir, "check {db}").ended(0).says("no damage");
}

/// Cause: a scrub counted what it met only. Effect: with a device missing it reported that all
/// were read, and succeeded.
#[test]
fn a_scrub_without_a_device_says_so_and_fails() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    std::fs::remove_file(dir.join("store.1")).expect("there");
    run(&dir, "array scrub {db}").ended(1).says("device 1, store.1, was not read").warns("replace");
}

/// Cause: the new device was made before its place was looked at. Effect: an empty file was left.
#[test]
fn a_replacement_of_no_device_makes_no_file() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    run(&dir, "array replace {db} 9 store.x").ended(1).warns("no device 9");
    assert!(!dir.join("store.x").exists());
}

#[test]
fn of_more_missing_devices_than_may_be_lost_the_status_says_so() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    std::fs::remove_file(dir.join("store.0")).expect("there");
    run(&dir, "array status {db}").ended(0).says("no device can be lost");
    std::fs::remove_file(dir.join("store.1")).expect("there");
    run(&dir, "array status {db}").ended(0).says("more devices are missing than may be lost");
}
