//! Small databases in memory.

use super::bed::Bed;
use firndb::{Database, Direction, KeyRange, Options, Table, Transaction};
use std::collections::BTreeMap;

/// Rows by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small database in memory without threads of its own.
pub fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(1 << 20)
        .log(|log| log.devices(1).bytes(1 << 20))
        .background_threads(false)
}

/// A small database in memory with threads of its own.
pub fn busy() -> Options {
    quiet().background_threads(true).log(|log| log.devices(2).bytes(2 << 20))
}

/// Creates a database in memory.
pub fn create(options: Options) -> Database {
    options.create_on(Bed::new(1).devices()).expect("a fresh database")
}

/// Every row of a range, as the transaction sees it.
pub fn scan(
    tx: &mut Transaction,
    table: &Table,
    range: KeyRange,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = tx.scan(table, range, direction);
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next(tx).expect("an undisturbed scan") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}
