//! A database that crashed with pages to be redone and two transactions to be rolled back.

use crate::support::bed::Bed;
use firndb::{Database, Options, Table};
use std::collections::BTreeMap;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pages of 1 KiB, and a log that takes no checkpoint by itself before it is a sixth full.
pub fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(512 << 10)
        .log(|log| log.bytes(16 << 20).devices(1))
        .tuning(|tuning| tuning.checkpoint_log_bytes(2 << 20))
        .background_threads(false)
}

pub fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

pub fn value(i: u32, version: u32) -> Vec<u8> {
    format!("{version} of {i} ").repeat(8).into_bytes()
}

pub const ROWS: u32 = 4000;

/// A database with rows on some hundred pages, all written; then changes of every tenth row that no
/// page in the store has, and two transactions that never end. What a crash leaves of it, and what
/// is committed.
pub fn crashed(options: &Options) -> (Bed, Rows) {
    let bed = Bed::new(1);
    let db = options.clone().create_on(bed.plain()).expect("created");
    let table = db.create_table("t").expect("created");
    let mut rows = Rows::new();
    let mut write = |tx_rows: &[(u32, u32)]| {
        db.transact(|tx| {
            tx_rows.iter().try_for_each(|&(i, v)| tx.put(&table, &key(i), &value(i, v)).map(drop))
        })
        .expect("committed");
        rows.extend(tx_rows.iter().map(|&(i, v)| (key(i), value(i, v))));
    };
    for from in (0..ROWS).step_by(200) {
        write(&(from..from + 200).map(|i| (i, 0)).collect::<Vec<_>>());
    }
    db.checkpoint().expect("taken");
    let mut first = db.begin();
    first.put(&table, &key(15), b"never").expect("written");
    first.delete(&table, &key(25)).expect("written");
    first.insert(&table, b"key of a loser", b"never").expect("written");
    let mut second = db.begin();
    second.put(&table, &key(2005), b"never").expect("written");
    for from in (0..ROWS).step_by(200) {
        write(&(from..from + 200).step_by(10).map(|i| (i, 1)).collect::<Vec<_>>());
    }
    let left = bed.duplicate();
    drop((first, second));
    drop((table, db));
    (left, rows)
}

pub fn opened(options: &Options, bed: &Bed) -> (Database, Table) {
    let db = options.clone().open_on(bed.plain()).unwrap_or_else(|error| panic!("does not open: {error}"));
    let table = db.table("t").expect("there");
    (db, table)
}

pub fn all(db: &Database, table: &Table) -> Rows {
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(table, firndb::KeyRange::all(), firndb::Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

pub fn assert_sound(db: &Database) {
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.leaked_pages, 0);
}
