//! redb: copy-on-write trees, a sync at every commit, a single writer.
//!
//! Commits are of the default kind: one sync, checksums over everything. A transaction opens a
//! table when it first touches it and keeps it open; opening it for every operation would cost redb
//! more than most of the operations do.

use crate::job::{Job, Settings};
use firndb_workloads::{
    Access, Commit, CommitMode, Engine, EngineError, IndexBuffers, Indexed, KeyRange, Outcome, PlainSchema,
    PlainTable, PlainTransaction, Scan, Schema, Session, Visit, Visitor,
};
use redb::{
    AccessGuard, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, StorageError,
    Table, TableDefinition, WriteTransaction,
};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

type Bytes = &'static [u8];

/// Opens the database in `settings.dir` and runs a job on it.
pub fn with<J: Job>(settings: &Settings, schema: &Schema, job: J) -> Outcome<J::Output> {
    let layout = Arc::new(PlainSchema::new(schema));
    let cache_bytes = usize::try_from(settings.cache_bytes).unwrap_or(usize::MAX);
    let database = Database::builder()
        .set_cache_size(cache_bytes)
        .create(settings.dir.join("redb.db"))
        .map_err(EngineError::fatal)?;
    let tables = layout.plain_tables();
    let txn = database.begin_write().map_err(EngineError::fatal)?;
    for table in &tables {
        txn.open_table(definition(table)).map_err(EngineError::fatal)?;
    }
    txn.commit().map_err(EngineError::fatal)?;
    job.run(&RedbEngine { layout, tables, database, cache_bytes })
}

fn definition(table: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(table)
}

/// An open database.
pub struct RedbEngine {
    layout: Arc<PlainSchema>,
    /// Table names, by plain table.
    tables: Vec<String>,
    database: Database,
    cache_bytes: usize,
}

impl Engine for RedbEngine {
    type Session<'e> = RedbSession<'e>;

    fn name(&self) -> &str {
        "redb"
    }
    fn isolation(&self) -> &str {
        "serializable"
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("durability".into(), "immediate, one phase".into()),
            ("cache_bytes".into(), self.cache_bytes.to_string()),
        ]
    }
    fn schema(&self) -> &Schema {
        self.layout.schema()
    }
    fn session(&self) -> Outcome<RedbSession<'_>> {
        Ok(RedbSession { engine: self, buffers: IndexBuffers::default() })
    }
}

/// A client.
pub struct RedbSession<'e> {
    engine: &'e RedbEngine,
    buffers: IndexBuffers,
}

impl Session for RedbSession<'_> {
    type Transaction<'s>
        = Indexed<'s, RedbTransaction<'s>>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        let engine = self.engine;
        let transaction = match access {
            Access::Read => RedbTransaction::Read {
                engine,
                tables: engine.tables.iter().map(|_| None).collect(),
                txn: engine.database.begin_read().map_err(EngineError::fatal)?,
            },
            Access::Write => {
                let txn = engine.database.begin_write().map_err(EngineError::fatal)?;
                RedbTransaction::Write { engine, writer: Writer::new(txn, engine.tables.len()) }
            }
        };
        Ok(Indexed::new(transaction, engine.layout.clone(), &mut self.buffers))
    }
}

/// A write transaction and the tables it has open.
///
/// Invariant: `tables` borrow from the transaction inside `txn`, which has a fixed address on the
/// heap, has no other owner, and is dropped or taken apart only after them: in `commit` and
/// `rollback`, which clear `tables` first, or on drop, where fields go in the order in which they
/// are declared.
pub struct Writer {
    tables: Vec<Option<Table<'static, Bytes, Bytes>>>,
    txn: Rc<WriteTransaction>,
}

impl Writer {
    fn new(txn: WriteTransaction, tables: usize) -> Writer {
        Writer { tables: (0..tables).map(|_| None).collect(), txn: Rc::new(txn) }
    }

    fn table<'a>(
        &'a mut self,
        name: &str,
        table: PlainTable,
    ) -> Outcome<&'a mut Table<'static, Bytes, Bytes>> {
        let slot = &mut self.tables[table.0];
        if slot.is_none() {
            let opened = self.txn.open_table(definition(name)).map_err(EngineError::fatal)?;
            // SAFETY: only the lifetime changes. The table's true lifetime is that of the
            // transaction in `self.txn`, which the `Rc` keeps at one address and which outlives
            // `self.tables` (see the invariant above); no reference to the table leaves this type
            // for longer than a `&mut self`.
            *slot = Some(unsafe {
                std::mem::transmute::<Table<'_, Bytes, Bytes>, Table<'static, Bytes, Bytes>>(opened)
            });
        }
        Ok(slot.as_mut().expect("the table was opened above"))
    }

    fn into_transaction(mut self) -> WriteTransaction {
        self.tables.clear();
        Rc::try_unwrap(self.txn).unwrap_or_else(|_| unreachable!("the Rc is never cloned"))
    }
}

/// A transaction of either kind.
#[allow(missing_docs)]
pub enum RedbTransaction<'s> {
    Read { engine: &'s RedbEngine, tables: Vec<Option<ReadOnlyTable<Bytes, Bytes>>>, txn: ReadTransaction },
    Write { engine: &'s RedbEngine, writer: Writer },
}

impl RedbTransaction<'_> {
    fn writer(&mut self, table: PlainTable) -> Outcome<&mut Table<'static, Bytes, Bytes>> {
        match self {
            RedbTransaction::Write { engine, writer } => writer.table(&engine.tables[table.0], table),
            RedbTransaction::Read { .. } => Err(EngineError::Fatal("a read transaction cannot write".into())),
        }
    }

    /// Calls `read` with the table, of whichever kind it is.
    fn with_table<R>(&mut self, table: PlainTable, read: impl Reader<R>) -> Outcome<R> {
        let result = match self {
            RedbTransaction::Write { engine, writer } => {
                read.read(writer.table(&engine.tables[table.0], table)?)
            }
            RedbTransaction::Read { engine, tables, txn } => {
                let slot = &mut tables[table.0];
                if slot.is_none() {
                    let name = &engine.tables[table.0];
                    *slot = Some(txn.open_table(definition(name)).map_err(EngineError::fatal)?);
                }
                read.read(slot.as_ref().expect("the table was opened above"))
            }
        };
        result.map_err(EngineError::fatal)
    }
}

/// A read of a table of either kind. (A closure can't be generic over the table's type.)
trait Reader<R> {
    fn read<T: ReadableTable<Bytes, Bytes>>(self, table: &T) -> Result<R, StorageError>;
}

struct Get<'a> {
    key: &'a [u8],
    row: &'a mut Vec<u8>,
}
impl Reader<bool> for Get<'_> {
    fn read<T: ReadableTable<Bytes, Bytes>>(self, table: &T) -> Result<bool, StorageError> {
        self.row.clear();
        let found = table.get(self.key)?;
        if let Some(row) = &found {
            self.row.extend_from_slice(row.value());
        }
        Ok(found.is_some())
    }
}

struct Walk<'a, 'v> {
    scan: Scan<'a>,
    visit: Visitor<'v>,
}
impl Reader<()> for Walk<'_, '_> {
    fn read<T: ReadableTable<Bytes, Bytes>>(self, table: &T) -> Result<(), StorageError> {
        let KeyRange { low, high } = self.scan.range;
        if self.scan.range.is_empty() {
            return Ok(());
        }
        let high = if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(high) };
        let mut rows = table.range::<&[u8]>((Bound::Included(low), high))?;
        for _ in 0..self.scan.limit {
            let next = if self.scan.reverse { rows.next_back() } else { rows.next() };
            let Some(row) = next else { break };
            let (key, row): (AccessGuard<'_, Bytes>, AccessGuard<'_, Bytes>) = row?;
            if (self.visit)(key.value(), row.value()) == Visit::Stop {
                break;
            }
        }
        Ok(())
    }
}

impl PlainTransaction for RedbTransaction<'_> {
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.with_table(table, Get { key, row })
    }

    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool> {
        let table = self.writer(table)?;
        let there = table.get(key).map_err(EngineError::fatal)?.is_some();
        if !there {
            table.insert(key, row).map_err(EngineError::fatal)?;
        }
        Ok(!there)
    }

    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.writer(table)?.insert(key, row).map(drop).map_err(EngineError::fatal)
    }

    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool> {
        Ok(self.writer(table)?.remove(key).map_err(EngineError::fatal)?.is_some())
    }

    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        self.with_table(table, Walk { scan, visit })
    }

    fn commit(self, _mode: CommitMode) -> Outcome<Commit> {
        if let RedbTransaction::Write { writer, .. } = self {
            writer.into_transaction().commit().map_err(EngineError::fatal)?;
        }
        Ok(Commit::Durable)
    }

    fn rollback(self) -> Outcome<()> {
        match self {
            RedbTransaction::Write { writer, .. } => {
                writer.into_transaction().abort().map_err(EngineError::fatal)
            }
            RedbTransaction::Read { .. } => Ok(()),
        }
    }
}
