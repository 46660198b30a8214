//! A transaction may be larger than the log, and so may what undoing it writes: a rollback then
//! waits for checkpoints like any other work, at run time and at the next opening, and never makes
//! a database that cannot be opened.

use crate::support::bed::Bed;
use firndb::{Database, ErrorKind, Options, Table};

const ROWS: u32 = 2000;

/// A log of 1 MiB.
fn options(background: bool) -> Options {
    Options::new()
        .page_size(4096)
        .buffer_bytes(4 << 20)
        .tuning(|tuning| tuning.version_bytes(64 << 10))
        .log(|log| log.devices(1).bytes(1 << 20))
        .background_threads(background)
}

fn value(row: u32, round: u32) -> Vec<u8> {
    vec![(row * 7 + round * 13) as u8; 400]
}

fn filled(disks: &Bed, options: &Options) -> (Database, Table) {
    let db = options.clone().create_on(disks.devices()).expect("created");
    let table = db.create_table("t").expect("created");
    for rows in (0..ROWS).collect::<Vec<_>>().chunks(100) {
        db.transact(|tx| {
            rows.iter().try_for_each(|row| tx.insert(&table, &row.to_be_bytes(), &value(*row, 0)))
        })
        .expect("inserted");
    }
    (db, table)
}

/// Changes every row several times: some megabytes of log.
fn change_all(tx: &mut firndb::Transaction, table: &Table) {
    for round in 1..5 {
        for row in 0..ROWS {
            tx.put(table, &row.to_be_bytes(), &value(row, round)).expect("checkpoints free space");
        }
    }
}

fn assert_unchanged(db: &Database, table: &Table) {
    let mut tx = db.snapshot();
    for row in 0..ROWS {
        let found = tx.get(table, &row.to_be_bytes()).expect("readable");
        assert_eq!(found, Some(value(row, 0)), "row {row}");
    }
    db.transact(|tx| tx.put(table, b"more", b"work")).expect("the database goes on");
}

fn rolls_back_at_run_time(background: bool, how: impl FnOnce(firndb::Transaction)) {
    let disks = Bed::new(1);
    let (db, table) = filled(&disks, &options(background));
    let mut tx = db.begin();
    change_all(&mut tx, &table);
    how(tx);
    assert_unchanged(&db, &table);
    db.close().expect("closed");
}

#[test]
fn a_rollback_larger_than_the_log_waits_for_checkpoints() {
    for background in [false, true] {
        rolls_back_at_run_time(background, |tx| tx.rollback().expect("rolled back"));
    }
}

#[test]
fn a_dropped_transaction_larger_than_the_log_is_undone() {
    rolls_back_at_run_time(false, drop);
}

#[test]
fn a_return_to_a_savepoint_may_outgrow_the_log() {
    let disks = Bed::new(1);
    let (db, table) = filled(&disks, &options(false));
    let mut tx = db.begin();
    tx.put(&table, b"kept", b"row").expect("written");
    let savepoint = tx.savepoint();
    change_all(&mut tx, &table);
    tx.rollback_to(&savepoint).expect("undone");
    tx.commit().expect("committed");
    assert_unchanged(&db, &table);
    assert_eq!(db.snapshot().get(&table, b"kept").expect("readable").as_deref(), Some(&b"row"[..]));
}

#[test]
fn a_prepared_transaction_larger_than_the_log_can_be_rolled_back() {
    let disks = Bed::new(1);
    let (db, table) = filled(&disks, &options(false));
    let mut tx = db.begin();
    change_all(&mut tx, &table);
    tx.prepare(b"gid").expect("prepared");
    db.rollback_prepared(b"gid").expect("rolled back");
    assert_eq!(db.rollback_prepared(b"gid").expect_err("it has ended").kind(), ErrorKind::BadArgument);
    assert_unchanged(&db, &table);
}

#[test]
fn recovery_rolls_back_what_is_larger_than_the_log() {
    let disks = Bed::new(1);
    let (db, table) = filled(&disks, &options(false));
    let mut tx = db.begin();
    change_all(&mut tx, &table);
    db.transact(|other| other.put(&table, b"other", b"row")).expect("durable, and with it all before");
    let after = disks.duplicate();
    drop(tx);
    drop(table);
    drop(db);
    let db = options(false).open_on(after.devices()).expect("the database opens");
    assert_eq!(db.recovery_report().losers, 1);
    let table = db.table("t").expect("there");
    assert_unchanged(&db, &table);
}

/// Deletions are nearly all undo: a checkpoint that had to spill half a log of them found no space
/// for it, and neither the transaction nor any later opening could end.
#[test]
fn before_images_in_memory_never_outgrow_what_a_checkpoint_can_spill() {
    for crash in [false, true] {
        let disks = Bed::new(1);
        let options = options(false).tuning(|tuning| tuning.version_bytes(16 << 20));
        let (db, table) = filled(&disks, &options);
        db.checkpoint().expect("there is space");
        let mut tx = db.begin();
        for row in 0..ROWS {
            tx.delete(&table, &row.to_be_bytes()).expect("checkpoints free space");
        }
        if crash {
            db.transact(|other| other.put(&table, b"other", b"row"))
                .expect("durable, and with it all before");
            let after = disks.duplicate();
            drop((tx, table, db));
            let db = options.open_on(after.devices()).expect("the database opens");
            let table = db.table("t").expect("there");
            assert_unchanged(&db, &table);
        } else {
            tx.rollback().expect("rolled back");
            assert_unchanged(&db, &table);
        }
    }
}
