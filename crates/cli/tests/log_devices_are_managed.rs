//! `firn log`, as somebody uses it who replaces a worn device.

use std::path::Path;
use std::process::{Command, Output};

fn firn(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firn")).args(args).output().expect("the command runs")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn refused(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status));
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn made(dir: &Path) {
    let options = firn::Options::new().log_devices(2).log_copies(2).log_bytes(1 << 20).buffer_bytes(1 << 20);
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
    let db = dir.to_str().expect("text");
    let json = home.path().join("status.json");

    let text = said(&firn(&["log", "status", db, "--json", json.to_str().expect("text")]));
    assert!(text.contains("log.0") && text.contains("1 could be lost"), "{text}");
    let status: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert_eq!((status["copies"].as_u64(), status["may_lose"].as_u64()), (Some(2), Some(1)));
    assert!(status["members"][0]["written_bytes"].as_u64() > Some(0), "{status}");

    let text = said(&firn(&["log", "replace", db, "1", "log.new"]));
    assert!(text.contains("log.new") && text.contains("has been removed"), "{text}");
    let text = said(&firn(&["log", "status", db]));
    assert!(text.contains("log.new") && !text.contains("log.0"), "{text}");

    assert!(refused(&firn(&["log", "remove", db, "1"]), 1).contains("no device 1"));
    assert!(refused(&firn(&["log", "add", db, "store"]), 2).contains("a file of the database"));

    std::fs::remove_file(dir.join("log.1")).expect("there");
    let text = said(&firn(&["log", "status", db]));
    assert!(text.contains("missing") && text.contains("make up for"), "{text}");
    let text = said(&firn(&["log", "add", db, "log.1"]));
    assert!(text.contains("dropped from the log") && text.contains("device 4"), "{text}");
    assert!(said(&firn(&["check", db])).contains("no damage"));
}
