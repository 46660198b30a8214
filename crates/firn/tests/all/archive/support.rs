//! What the tests of backups and of the archive share.
use firndb::{Database, Direction, KeyRange, Lsn, Options, Table};
use firndb_testkit::gate::Gate;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn small() -> Options {
    Options::new()
        .buffer_bytes(1 << 20)
        .log(|log| log.bytes(2 << 20).devices(2))
        .archive(|archive| archive.segment_bytes(256 << 10))
}

pub fn rows_of(db: &Database, table: &str) -> Rows {
    let table = db.table(table).unwrap();
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

pub fn go_on(_: firndb::BackupProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Waits until everything durable is archived.
pub fn wait_for_archive(db: &Database) {
    for _ in 0..10_000 {
        let archive = db.archive_statistics().unwrap();
        if archive.behind_bytes == 0 && archive.archived.is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the archive does not keep up: {:?}", db.archive_statistics());
}

pub fn commit_one(db: &Database, table: &Table, i: u64) -> Lsn {
    let mut tx = db.begin();
    tx.put(table, &(i % 50).to_be_bytes(), &[i as u8; 700]).unwrap();
    tx.put(table, b"last", &i.to_le_bytes()).unwrap();
    let commit = tx.commit_async().unwrap();
    commit.wait().unwrap();
    commit.lsn()
}

/// [`small`], with an archive behind a gate.
pub fn small_behind(gate: &Gate) -> Options {
    let gate = gate.clone();
    small().wrap_archive(Arc::new(move |inner| gate.over(inner)))
}
