//! Firn as one of the engines that workloads drive: the traits of [`firndb_workloads`] over a
//! [`firndb::Database`].
//!
//! Place in the tree: used by the TPC-C run, the laboratory and `bench/compare`. Its dependencies
//! stay few: the example `hotpath` is built in release mode by the gate.

#![forbid(unsafe_code)]

pub mod lists;

use firndb::{
    Database, Direction, ErrorKind, Index, Isolation, KeyRange, Table, TableSpec, TransactionOptions,
};
use firndb_workloads::{
    Access, Change, Commit, CommitMode, Engine, EngineError, Found, IndexId, Outcome, Part, PendingCommit,
    Retry, Scan, Schema, Session, TableId, Transaction, Visit, Visitor,
};

/// A Firn database with a workload's tables.
pub struct FirnEngine {
    db: Database,
    schema: Schema,
    isolation: Isolation,
    tables: Vec<Table>,
    /// Of each table, its indexes.
    indexes: Vec<Vec<Index>>,
}

impl FirnEngine {
    /// Takes the schema's tables from `db`, and creates those that are not there.
    pub fn new(db: Database, schema: Schema, isolation: Isolation) -> Result<FirnEngine, firndb::Error> {
        schema.assert_sound();
        let mut tables = Vec::new();
        let mut indexes = Vec::new();
        for spec in &schema.tables {
            let table = match db.table(&spec.name) {
                Ok(table) => table,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    db.create_table_with(&spec.name, describe(spec))?
                }
                Err(error) => return Err(error),
            };
            let of_table: Result<Vec<Index>, firndb::Error> =
                spec.indexes.iter().map(|index| table.index(&index.name)).collect();
            indexes.push(of_table?);
            tables.push(table);
        }
        Ok(FirnEngine { db, schema, isolation, tables, indexes })
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.db
    }
    /// Ends the engine, and gives the database back.
    #[must_use]
    pub fn into_database(self) -> Database {
        self.db
    }
}

/// An engine that is a Firn database, perhaps with something in between.
pub trait OnFirn: Engine {
    /// The database.
    fn database(&self) -> &Database;
}

impl OnFirn for FirnEngine {
    fn database(&self) -> &Database {
        &self.db
    }
}

fn describe(spec: &firndb_workloads::TableSpec) -> TableSpec {
    spec.indexes.iter().fold(TableSpec::raw(), |table, index| table.with_index(describe_index(index)))
}

fn describe_index(index: &firndb_workloads::IndexSpec) -> firndb::IndexSpec {
    let parts = index.parts.iter().map(|part| match part {
        Part::Key(range) => firndb::IndexPart::Key(range.clone()),
        Part::Value(range) => firndb::IndexPart::Value(range.clone()),
    });
    firndb::IndexSpec::ranges(&index.name, index.unique, parts.collect())
}

/// Creates a table of a schema with its rows, which ascend by key, and builds its indexes.
pub fn load_table(
    db: &Database,
    spec: &firndb_workloads::TableSpec,
    rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<(), firndb::Error> {
    let table = db.load_table(&spec.name, TableSpec::raw(), rows.map(Ok))?;
    spec.indexes.iter().try_for_each(|index| db.create_index(&table, describe_index(index)))
}

fn failed(error: firndb::Error) -> EngineError {
    match error.kind() {
        ErrorKind::Conflict => EngineError::Retry(Retry::Conflict),
        ErrorKind::Deadlock => EngineError::Retry(Retry::Deadlock),
        _ => EngineError::fatal(error),
    }
}

impl Engine for FirnEngine {
    type Session<'e> = FirnSession<'e>;

    fn name(&self) -> &str {
        "firn"
    }
    fn isolation(&self) -> &str {
        match self.isolation {
            Isolation::ReadCommitted => "read committed",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
    fn settings(&self) -> Vec<(String, String)> {
        let statistics = self.db.statistics();
        vec![
            ("page_size".into(), statistics.page_size.to_string()),
            ("log_devices".into(), statistics.log_devices.len().to_string()),
            ("log_bytes".into(), statistics.log_space.capacity_bytes.to_string()),
            ("buffer_memory_bytes".into(), statistics.buffer.memory_bytes.to_string()),
            ("checkpoint_log_bytes".into(), statistics.checkpoint_interval.to_string()),
        ]
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn session(&self) -> Outcome<FirnSession<'_>> {
        Ok(FirnSession { engine: self })
    }
}

/// One client of a [`FirnEngine`].
pub struct FirnSession<'e> {
    engine: &'e FirnEngine,
}

impl Session for FirnSession<'_> {
    type Transaction<'s>
        = FirnTransaction<'s>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<FirnTransaction<'_>> {
        let options = TransactionOptions {
            isolation: self.engine.isolation,
            read_only: access == Access::Read,
            ..TransactionOptions::default()
        };
        let tx = self.engine.db.begin_with(options);
        Ok(FirnTransaction { engine: self.engine, tx, rows: firndb::Rows::new() })
    }
}

/// A transaction on a [`FirnEngine`].
pub struct FirnTransaction<'s> {
    engine: &'s FirnEngine,
    tx: firndb::Transaction,
    /// Rows read together.
    rows: firndb::Rows,
}

impl FirnTransaction<'_> {
    fn table(&self, table: TableId) -> &Table {
        &self.engine.tables[table.0]
    }
}

/// The range that a scan walks, in Firn's words.
fn range_of(scan: &Scan<'_>) -> KeyRange {
    use std::ops::Bound;
    let high = if scan.range.high.is_empty() { Bound::Unbounded } else { Bound::Excluded(scan.range.high) };
    KeyRange::new(Bound::Included(scan.range.low), high)
}

fn direction_of(scan: &Scan<'_>) -> Direction {
    if scan.reverse { Direction::Backward } else { Direction::Forward }
}

impl Transaction for FirnTransaction<'_> {
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        let table = &self.engine.tables[table.0];
        self.tx.get_into(table, key, row).map_err(failed)
    }
    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        let table = &self.engine.tables[table.0];
        self.tx.get_for_update_into(table, key, row).map_err(failed)
    }
    fn get_many(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        let table = &self.engine.tables[table.0];
        self.tx.get_many_into(table, keys, &mut self.rows).map_err(failed)?;
        self.rows.iter().enumerate().for_each(|(number, row)| found(number, row));
        Ok(())
    }
    fn get_many_for_update(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        let table = &self.engine.tables[table.0];
        self.tx.get_many_for_update_into(table, keys, &mut self.rows).map_err(failed)?;
        self.rows.iter().enumerate().for_each(|(number, row)| found(number, row));
        Ok(())
    }
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        let found = &self.engine.tables[table.0];
        self.tx.insert(found, key, row).map_err(|error| match error.kind() {
            ErrorKind::Duplicate => EngineError::Duplicate(table),
            _ => failed(error),
        })
    }
    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        let table = &self.engine.tables[table.0];
        self.tx.put(table, key, row).map(|_| ()).map_err(failed)
    }
    fn update_with(
        &mut self,
        table: TableId,
        key: &[u8],
        row: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Outcome<bool> {
        let table = &self.engine.tables[table.0];
        self.tx.update_with(table, key, row, |row| change(row)).map_err(failed)
    }
    fn update_many_with(&mut self, table: TableId, keys: &[&[u8]], change: Change<'_>) -> Outcome<()> {
        let table = &self.engine.tables[table.0];
        let in_place = |number, row: Option<&mut Vec<u8>>| change(number, row.map(Vec::as_mut_slice));
        self.tx.update_many_with(table, keys, in_place).map_err(failed)
    }
    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool> {
        let table = &self.engine.tables[table.0];
        self.tx.delete(table, key).map_err(failed)
    }
    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        let mut cursor = self.tx.scan(self.table(table), range_of(&scan), direction_of(&scan));
        for _ in 0..scan.limit {
            match cursor.next(&mut self.tx).map_err(failed)? {
                Some((key, row)) if visit(key, row) == Visit::Continue => {}
                _ => break,
            }
        }
        Ok(())
    }
    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        let index = &self.engine.indexes[table.0][index.0];
        let mut cursor = self.tx.scan_index(index, range_of(&scan), direction_of(&scan));
        for _ in 0..scan.limit {
            match cursor.next(&mut self.tx).map_err(failed)? {
                Some(found) if visit(found.primary_key, found.row) == Visit::Continue => {}
                _ => break,
            }
        }
        Ok(())
    }
    fn commit(self, mode: CommitMode) -> Outcome<Commit> {
        match mode {
            CommitMode::Wait => self.tx.commit().map(|()| Commit::Durable).map_err(failed),
            CommitMode::Async => {
                let commit = self.tx.commit_async().map_err(failed)?;
                if commit.is_durable() {
                    Ok(Commit::Durable)
                } else {
                    Ok(Commit::Pending(Box::new(Pending(commit))))
                }
            }
        }
    }
    fn rollback(self) -> Outcome<()> {
        self.tx.rollback().map_err(failed)
    }
}

/// A commit on its way to the devices.
struct Pending(firndb::Commit);

impl PendingCommit for Pending {
    fn is_durable(&mut self) -> Outcome<bool> {
        Ok(self.0.is_durable())
    }
    fn wait(self: Box<Self>) -> Outcome<()> {
        self.0.wait().map_err(failed)
    }
}
