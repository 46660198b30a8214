//! While the archive holds the log (`ArchiveFull::Refuse`), no checkpoint frees space. What is open
//! then can be rolled back all the same, and refused statements have not used up the space for it.

use crate::archive::support::{rows_of, small_behind, wait_for_archive};
use crate::support::bed::Bed;
use firndb::{ArchiveFull, Database, ErrorKind, Options, Progress, Table, Transaction};
use firndb_testkit::gate::{Gate, Mode};
use std::path::Path;
use std::time::{Duration, Instant};

const LOG: u64 = 512 << 10;

/// Little of everything: each statement spills before-images.
fn options(gate: &Gate, archive: &Path) -> Options {
    small_behind(gate)
        .page_size(1024)
        .buffer_bytes(80 * 1024)
        .tuning(|tuning| tuning.version_bytes(1000))
        .log(|log| log.devices(1).bytes(LOG))
        .archive(|settings| {
            settings.directory(archive).when_full(ArchiveFull::Refuse).patience(Duration::from_millis(20))
        })
}

fn key(client: u32, number: u32) -> Vec<u8> {
    [client.to_be_bytes(), number.to_be_bytes()].concat()
}

/// Row `number` of `client`, as it was committed, and after it was changed.
fn value(number: u32, changed: bool) -> Vec<u8> {
    vec![number as u8 ^ if changed { 0xff } else { 0 }; 100 + if changed { number as usize } else { 0 }]
}

/// Waits until all is archived; a database without threads does it itself.
fn archive_all(db: &Database) {
    while db.step().expect("a step") == Progress::Worked {}
    wait_for_archive(db);
}

fn filled(db: &Database, clients: u32) -> Table {
    let table = db.create_table("rows").expect("created");
    for client in 0..clients {
        let put = |tx: &mut Transaction| {
            (0..60)
                .try_for_each(|number| tx.put(&table, &key(client, number), &value(number, false)).map(drop))
        };
        db.transact(put).expect("there is space");
    }
    archive_all(db);
    table
}

/// Open transactions of `clients`, which change their rows.
fn open_changes(db: &Database, table: &Table, clients: u32) -> Vec<Transaction> {
    let mut open: Vec<Transaction> = (0..clients).map(|_| db.begin()).collect();
    for number in 0..60 {
        for (client, tx) in (0..).zip(&mut open) {
            tx.put(table, &key(client, number), &value(number, true)).expect("there is space");
        }
    }
    open
}

/// Commits until the log is full; returns the error.
fn fill(db: &Database, table: &Table) -> firndb::Error {
    for i in 0..100_000u32 {
        if let Err(error) = db.transact(|tx| tx.put(table, &key(1000, i % 50), &[i as u8; 400])) {
            return error;
        }
    }
    panic!("the log is never full");
}

/// Waits until writes are taken again.
fn goes_on(db: &Database, table: &Table) {
    let begun = Instant::now();
    let _ = db.step();
    while let Err(error) = db.transact(|tx| tx.put(table, b"again", b"")) {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_undone(db: &Database, clients: u32) {
    let rows = rows_of(db, "rows");
    for client in 0..clients {
        for number in 0..60 {
            assert_eq!(
                rows.get(&key(client, number)),
                Some(&value(number, false)),
                "row {number} of client {client}"
            );
        }
    }
}

#[test]
fn what_was_open_when_the_log_became_full_is_rolled_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (gate, disks) = (Gate::default(), Bed::new(1));
    let db = options(&gate, &dir.path().join("archive")).create_on(disks.devices()).expect("created");
    let table = filled(&db, 4);
    gate.set(Mode::Full);
    let open = open_changes(&db, &table, 4);
    let refused = fill(&db, &table);
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    for tx in open {
        tx.rollback().expect("there is space to undo");
    }
    assert_undone(&db, 4);
    gate.set(Mode::Open);
    goes_on(&db, &table);
    assert!(db.archive_statistics().expect("there is one").gaps.is_empty());
    assert_undone(&db, 4);
    db.close().expect("closed");
}

/// Refused statements took two checkpoints each, and spilled before-images: with records of their
/// own.
#[test]
fn work_that_is_refused_does_not_use_up_the_room_for_undoing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (gate, disks) = (Gate::default(), Bed::new(1));
    let db = options(&gate, &dir.path().join("archive")).create_on(disks.devices()).expect("created");
    let table = filled(&db, 4);
    gate.set(Mode::Full);
    let open = open_changes(&db, &table, 2);
    assert_eq!(fill(&db, &table).kind(), ErrorKind::Full);
    let before = db.statistics().log_end;
    for i in 0..400u32 {
        let mut tx = db.begin();
        let error = (0..20)
            .find_map(|n| tx.put(&table, &key(3, (i + n) % 60), &value(n, true)).err())
            .expect("the log is full");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        tx.rollback().expect("nothing much to undo");
    }
    let grown = db.statistics().log_end.since(before);
    assert!(grown < LOG / 16, "{grown} bytes of log from work that was refused");
    for tx in open {
        tx.rollback().expect("there is space to undo");
    }
    assert_undone(&db, 3);
    gate.set(Mode::Open);
    goes_on(&db, &table);
    db.close().expect("closed");
}

/// Opened again and again while the archive stays full.
#[test]
fn a_full_archive_may_outlast_crashes() {
    let dir = tempfile::tempdir().expect("a directory");
    let (gate, disks) = (Gate::default(), Bed::new(1));
    let archive = dir.path().join("archive");
    // Without threads, since a crash is between two writes here.
    let options = || {
        options(&gate, &archive).background_threads(false).archive(|archive| archive.delay(Duration::ZERO))
    };
    let db = options().create_on(disks.devices()).expect("created");
    let table = filled(&db, 4);
    gate.set(Mode::Full);
    let open = open_changes(&db, &table, 3);
    assert_eq!(fill(&db, &table).kind(), ErrorKind::Full);
    let mut disks = disks.duplicate();
    drop((open, table, db));
    for life in 0..6 {
        let db = options().open_on(disks.devices()).unwrap_or_else(|e| panic!("{life}: {e}"));
        let table = db.table("rows").expect("there");
        let mut tx = db.begin();
        // Refused or not: it can be undone.
        let _ = (0..60).try_for_each(|n| tx.put(&table, &key(3, n), &value(n, true)).map(drop));
        tx.rollback().unwrap_or_else(|e| panic!("{life}: {e}"));
        assert_undone(&db, 4);
        let crashed = disks.duplicate();
        drop(db);
        disks = crashed;
    }
    gate.set(Mode::Open);
    let db = options().open_on(disks.devices()).expect("opened");
    let table = db.table("rows").expect("there");
    goes_on(&db, &table);
    assert_undone(&db, 4);
    db.close().expect("closed");
}
