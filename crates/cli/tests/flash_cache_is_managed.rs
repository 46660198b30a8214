//! `firn cache`, as somebody uses it who gets a flash device, a larger one, and gives it back.

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
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn made(dir: &Path) {
    let options = firn::Options::new().log_devices(1).log_bytes(1 << 20).buffer_bytes(1 << 20);
    let db = options.open(dir).expect("created");
    let table = db.create_table("rows").expect("a table");
    db.transact(|tx| tx.put(&table, b"key", b"value")).expect("a commit");
    db.close().expect("closed");
}

#[test]
fn a_cache_is_attached_resized_replaced_and_detached() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    let db = dir.to_str().expect("text");
    let json = home.path().join("status.json");

    assert!(said(&firn(&["cache", "status", db])).contains("no flash cache"));
    assert!(refused(&firn(&["cache", "detach", db]), 1).contains("no flash cache"));
    assert!(refused(&firn(&["cache", "attach", db, "1000"]), 2).contains("give it at least"));
    assert!(refused(&firn(&["cache", "attach", db, "8M", "--policy", "best"]), 2).contains("no policy"));
    let text = said(&firn(&["cache", "attach", db, "8M", "--policy", "gr", "--group-pages", "16"]));
    assert!(text.contains("flash cache cache: in use") && text.contains("16 written at a time"), "{text}");
    assert!(refused(&firn(&["cache", "attach", db, "8M"]), 2).contains("has a flash cache already"));

    said(&firn(&["cache", "resize", db, "12M"]));
    let text = said(&firn(&["cache", "status", db, "--json", json.to_str().expect("text")]));
    assert!(text.contains("as precious as the store"), "{text}");
    let status: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert!(status["cache"]["bytes"].as_u64() > Some(8 << 20), "{status}");

    let text = said(&firn(&["cache", "replace", db, "4M", "--path", "other", "--write-through"]));
    assert!(text.contains("flash cache other") && text.contains("nothing in it is the only copy"), "{text}");
    std::fs::remove_file(dir.join("cache")).expect("left where it was");
    assert!(said(&firn(&["check", db])).contains("no damage"));
    assert!(said(&firn(&["cache", "detach", db])).contains("no flash cache"));
    std::fs::remove_file(dir.join("other")).expect("left where it was");
    assert!(said(&firn(&["check", db])).contains("no damage"));
}

#[test]
fn one_that_is_lost_is_given_up_if_log_was_kept_for_it() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    let path = dir.to_str().expect("text");
    said(&firn(&["cache", "attach", path, "4M"]));
    assert!(refused(&firn(&["cache", "abandon", path]), 1).contains("cannot be given up"));
    let db = firn::Options::new().cache_rebuildable(true).open(&dir).expect("opened");
    {
        let table = db.table("rows").expect("the table");
        db.transact(|tx| tx.put(&table, b"key", b"another")).expect("a commit");
    }
    db.close().expect("closed");
    assert!(said(&firn(&["cache", "status", path])).contains("can be rebuilt"));
    std::fs::remove_file(dir.join("cache")).expect("there");
    assert!(said(&firn(&["cache", "status", path])).contains("missing"));
    assert!(refused(&firn(&["check", path]), 1).contains("nothing else has"));
    assert!(said(&firn(&["cache", "abandon", path])).contains("no flash cache"));
    assert!(said(&firn(&["check", path])).contains("no damage"));
}
