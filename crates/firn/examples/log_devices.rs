//! Several log devices: every commit on two of three, so that the loss of one loses nothing; the
//! failed one is replaced while the database works.
//!
//! The directories stand for drives: give each log file a drive of its own.
//!
//! `cargo run -p firndb --example log_devices`

use firndb::{Database, LogEventKind, Options};
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

fn put(db: &Database, numbers: std::ops::Range<u64>) -> Result<(), firndb::Error> {
    let table = db.open_table("rows")?;
    for number in numbers {
        db.transact(|tx| tx.insert(&table, &number.to_be_bytes(), b"precious"))?;
    }
    Ok(())
}

fn assert_rows(db: &Database, count: u64) -> Result<(), firndb::Error> {
    let (table, tx) = (db.table("rows")?, &mut db.snapshot());
    for number in 0..count {
        assert!(tx.get(&table, &number.to_be_bytes())?.is_some(), "row {number} is lost");
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let drives: Vec<PathBuf> = (0..4).map(|number| dir.path().join(format!("drive{number}"))).collect();
    drives.iter().try_for_each(std::fs::create_dir)?;
    let logs: Vec<PathBuf> = drives.iter().map(|drive| drive.join("firn.log")).collect();
    let path = dir.path().join("db");

    let options = Options::new().log(|log| log.bytes(3 << 20).paths(logs[..3].to_vec()).copies(2));
    let db = options.open(&path)?;
    put(&db, 0..30)?;
    let array = db.log_array();
    assert_eq!((array.members.len(), array.copies_now, array.may_lose), (3, 2, 1));
    db.close()?;

    // A drive fails while the database is closed.
    std::fs::remove_file(&logs[1])?;
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = events.clone();
    let db = Options::new()
        .log(|log| log.on_event(move |event| heard.lock().expect("no panic").push(event.kind)))
        .open(&path)?;
    assert_eq!(events.lock().expect("no panic")[0], LogEventKind::Lost);
    assert_rows(&db, 30)?;
    put(&db, 30..60)?;

    // A new drive takes its place, without an interruption.
    let id = db.add_log_device(&logs[3])?;
    put(&db, 60..90)?;
    db.checkpoint()?;
    let array = db.log_array();
    assert!(array.members.iter().any(|member| member.id == id));
    assert_eq!((array.members.len(), array.may_lose), (3, 1), "two copies of all log again");

    // One that works can be taken out, too.
    db.remove_log_device(array.members[0].id)?;
    put(&db, 90..120)?;
    db.close()?;
    let db = Database::open(&path)?;
    assert_rows(&db, 120)?;
    let kinds = events.lock().expect("no panic").clone();
    assert!(kinds.contains(&LogEventKind::Added) && kinds.contains(&LogEventKind::Removed));
    println!("120 rows survived: {kinds:?}");
    Ok(())
}
