//! `firn log`, as an operator uses it to replace a worn device.

use crate::support::run;
use std::path::Path;

fn made(dir: &Path) {
    let options =
        firndb::Options::new().log(|log| log.devices(2).copies(2).bytes(1 << 20)).buffer_bytes(1 << 20);
    let db = options.open(dir).expect("created");
    let table = db.create_table("rows").expect("a table");
    db.transact(|tx| tx.put(&table, b"key", b"value")).expect("a commit");
    db.close().expect("closed");
}

#[test]
fn a_device_is_replaced_and_a_missing_one_made_good() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    let json = home.path().join("status.json");

    let text = run(&dir, &format!("log status {{db}} --json {}", json.display())).ended(0).out;
    assert!(text.contains("log.0") && text.contains("1 could be lost"), "{text}");
    let status: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert_eq!((status["copies"].as_u64(), status["may_lose"].as_u64()), (Some(2), Some(1)));
    assert!(status["members"][0]["written_bytes"].as_u64() > Some(0), "{status}");

    let text = run(&dir, "log replace {db} 1 log.new").ended(0).out;
    assert!(text.contains("log.new") && text.contains("has been removed"), "{text}");
    let text = run(&dir, "log status {db}").ended(0).out;
    assert!(text.contains("log.new") && !text.contains("log.0"), "{text}");

    run(&dir, "log remove {db} 1").ended(1).warns("no device 1");
    run(&dir, "log add {db} store").ended(2).warns("a file of the database");

    std::fs::remove_file(dir.join("log.1")).expect("there");
    let text = run(&dir, "log status {db}").ended(0).out;
    assert!(text.contains("missing") && text.contains("make up for"), "{text}");
    let text = run(&dir, "log add {db} log.1").ended(0).out;
    assert!(text.contains("dropped from the log") && text.contains("device 4"), "{text}");
    run(&dir, "check {db}").ended(0).says("no damage");
}
