//! Backup while working: a base backup and the archive of the log, from which the database is made
//! again, as it was at its end and as it was at an earlier commit.
//!
//! `cargo run -p firndb --example backup_while_working`

use firndb::{Database, Direction, KeyRange, Lsn, Options, RestoreTo, verify_backup};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of the rows in a database.
fn rows(directory: &Path) -> Result<Vec<u64>, firndb::Error> {
    let db = Database::open_read_only(directory)?;
    let (tx, mut found) = (&mut db.snapshot(), Vec::new());
    let mut rows = tx.scan(&db.table("rows")?, KeyRange::all(), Direction::Forward);
    while let Some((key, _)) = rows.next(tx)? {
        found.push(u64::from_be_bytes(key.try_into().expect("eight bytes")));
    }
    Ok(found)
}

/// Commits one row; returns the commit's position in the log.
fn add(db: &Database, number: u64) -> Result<Lsn, firndb::Error> {
    let table = db.open_table("rows")?;
    let mut tx = db.begin();
    tx.insert(&table, &number.to_be_bytes(), &[7; 200])?;
    let commit = tx.commit_async()?;
    commit.wait()?;
    Ok(commit.lsn())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let options = || Options::new().log(|log| log.bytes(4 << 20)).buffer_bytes(2 << 20);
    let db = options().archive(|archive| archive.directory(path("archive"))).open(path("db"))?;
    for number in 0..50 {
        add(&db, number)?;
    }

    // A client goes on committing while the backup is taken.
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(50));
    let backup = std::thread::scope(|scope| -> Result<_, firndb::Error> {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = committed.load(Ordering::Relaxed);
                add(&db, number).expect("committed");
                committed.store(number + 1, Ordering::Relaxed);
            }
        });
        let backup = db.backup(path("backup"), &mut |_progress| ControlFlow::Continue(()));
        stop.store(true, Ordering::Relaxed);
        backup
    })?;
    assert_eq!(verify_backup(path("backup"), &mut |_| ControlFlow::Continue(()))?, backup);

    // Work goes on, and then an operator makes a mistake.
    let before = committed.into_inner();
    let last_good = add(&db, before)?;
    let table = db.table("rows")?;
    db.transact(|tx| (0..=before).try_for_each(|number| tx.delete(&table, &number.to_be_bytes()).map(drop)))?;
    // A handle of a table keeps the database open.
    drop(table);
    add(&db, 1_000_000)?;
    // Closing archives the rest of the log.
    db.close()?;
    assert_eq!(rows(&path("db"))?, [1_000_000]);

    let restore = |target, to: &Path| options().restore(path("backup"), Some(&path("archive")), target, to);
    // From the backup alone: as it was when the backup ended.
    options().restore(path("backup"), None, RestoreTo::End, path("as_backed_up"))?;
    assert!((50..=before).contains(&(rows(&path("as_backed_up"))?.len() as u64)));
    // With the archive: everything, the mistake included.
    let report = restore(RestoreTo::End, &path("all"))?;
    assert!(report.at_end);
    assert_eq!(rows(&path("all"))?, [1_000_000]);
    // As it was before the mistake.
    restore(RestoreTo::Lsn(last_good), &path("rescued"))?;
    assert_eq!(rows(&path("rescued"))?, (0..=before).collect::<Vec<_>>());
    println!("{} rows were rescued; {} committed during the backup", before + 1, before - 50);
    Ok(())
}
