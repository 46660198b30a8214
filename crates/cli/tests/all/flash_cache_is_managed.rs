//! `firn cache`, as an operator uses it to attach a flash device, replace it by a larger one, and
//! detach it.

use crate::support::run;
use std::path::Path;

fn made(dir: &Path) {
    let options = firndb::Options::new().log(|log| log.devices(1).bytes(1 << 20)).buffer_bytes(1 << 20);
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
    let json = home.path().join("status.json");

    run(&dir, "cache status {db}").ended(0).says("no flash cache");
    run(&dir, "cache detach {db}").ended(1).warns("no flash cache");
    run(&dir, "cache attach {db} 1000").ended(2).warns("give it at least");
    run(&dir, "cache attach {db} 8M --policy best").ended(2).warns("no policy");
    let text = run(&dir, "cache attach {db} 8M --policy gr --group-pages 16").ended(0).out;
    assert!(text.contains("flash cache cache: in use") && text.contains("16 written at a time"), "{text}");
    run(&dir, "cache attach {db} 8M").ended(2).warns("has a flash cache already");

    run(&dir, "cache resize {db} 12M").ended(0);
    let text = run(&dir, &format!("cache status {{db}} --json {}", json.display())).ended(0).out;
    assert!(text.contains("as precious as the store"), "{text}");
    let status: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    assert!(status["cache"]["bytes"].as_u64() > Some(8 << 20), "{status}");

    let text = run(&dir, "cache replace {db} 4M --path other --write-through").ended(0).out;
    assert!(text.contains("flash cache other") && text.contains("nothing in it is the only copy"), "{text}");
    std::fs::remove_file(dir.join("cache")).expect("left where it was");
    run(&dir, "check {db}").ended(0).says("no damage");
    run(&dir, "cache detach {db}").ended(0).says("no flash cache");
    std::fs::remove_file(dir.join("other")).expect("left where it was");
    run(&dir, "check {db}").ended(0).says("no damage");
}

#[test]
fn one_that_is_lost_is_given_up_if_log_was_kept_for_it() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    run(&dir, "cache attach {db} 4M").ended(0);
    run(&dir, "cache abandon {db}").ended(1).warns("cannot be given up");
    let db = firndb::Options::new().cache(|cache| cache.rebuildable(true)).open(&dir).expect("opened");
    {
        let table = db.table("rows").expect("the table");
        db.transact(|tx| tx.put(&table, b"key", b"another")).expect("a commit");
    }
    db.close().expect("closed");
    run(&dir, "cache status {db}").ended(0).says("can be rebuilt");
    std::fs::remove_file(dir.join("cache")).expect("there");
    run(&dir, "cache status {db}").ended(0).says("missing");
    run(&dir, "check {db}").ended(1).warns("nothing else has");
    run(&dir, "cache abandon {db}").ended(0).says("no flash cache");
    run(&dir, "check {db}").ended(0).says("no damage");
}

/// Cause: the other device was looked at after the detaching. Effect: a file that was refused cost
/// the database its cache.
#[test]
fn a_replacement_that_is_refused_leaves_the_cache_in_use() {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    made(&dir);
    run(&dir, "cache attach {db} 4M").ended(0);
    std::fs::write(home.path().join("other"), [1; 8192]).expect("written");
    let other = home.path().join("other").display().to_string();
    run(&dir, &format!("cache replace {{db}} 8M --path {other}")).ended(2).warns("is not empty");
    run(&dir, "cache status {db}").ended(0).says("flash cache cache: in use");
    run(&dir, "cache replace {db} 8M").ended(0).says("flash cache cache: in use");
}
