//! An engine in memory: for tests of workloads, and as the lower bound of any real engine's cost.
//!
//! Maps behind one lock that a transaction holds from begin to end, so transactions run one after
//! the other; rollback undoes changes by an undo list.

use crate::engine::{Access, Commit, CommitMode, Engine, Outcome, Scan, Session, Visit, Visitor};
use crate::indexed::{IndexBuffers, Indexed, PlainSchema, PlainTable, PlainTransaction};
use crate::schema::Schema;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// Tables in memory, one transaction at a time. Nothing is durable.
#[derive(Debug)]
pub struct MemoryEngine {
    layout: Arc<PlainSchema>,
    /// Every table and index.
    tables: Mutex<Vec<Table>>,
}

impl MemoryEngine {
    /// Empty tables.
    #[must_use]
    pub fn new(schema: &Schema) -> MemoryEngine {
        let layout = Arc::new(PlainSchema::new(schema));
        let tables = vec![Table::new(); layout.plain_tables().len()];
        MemoryEngine { layout, tables: Mutex::new(tables) }
    }
}

impl Engine for MemoryEngine {
    type Session<'e> = MemorySession<'e>;

    fn name(&self) -> &str {
        "memory"
    }
    fn isolation(&self) -> &str {
        "serial"
    }
    fn schema(&self) -> &Schema {
        self.layout.schema()
    }
    fn session(&self) -> Outcome<MemorySession<'_>> {
        Ok(MemorySession { engine: self, buffers: IndexBuffers::default() })
    }
}

/// A session of a [`MemoryEngine`].
#[derive(Debug)]
pub struct MemorySession<'e> {
    engine: &'e MemoryEngine,
    buffers: IndexBuffers,
}

impl Session for MemorySession<'_> {
    type Transaction<'s>
        = Indexed<'s, MemoryTransaction<'s>>
    where
        Self: 's;

    fn begin(&mut self, _access: Access) -> Outcome<Self::Transaction<'_>> {
        // A thread that panicked has rolled back its transaction while unwinding: the tables are
        // consistent.
        let tables = self.engine.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let plain = MemoryTransaction { tables, undo: Vec::new() };
        Ok(Indexed::new(plain, self.engine.layout.clone(), &mut self.buffers))
    }
}

/// The before-image of a key; `None` if it had no row.
type Before = (PlainTable, Vec<u8>, Option<Vec<u8>>);

/// A transaction on a [`MemoryEngine`]. Holds its lock.
#[derive(Debug)]
pub struct MemoryTransaction<'e> {
    tables: MutexGuard<'e, Vec<Table>>,
    undo: Vec<Before>,
}

impl MemoryTransaction<'_> {
    fn remember(&mut self, table: PlainTable, key: &[u8], before: Option<Vec<u8>>) {
        self.undo.push((table, key.to_vec(), before));
    }
}

impl Drop for MemoryTransaction<'_> {
    fn drop(&mut self) {
        while let Some((table, key, before)) = self.undo.pop() {
            match before {
                Some(row) => self.tables[table.0].insert(key, row),
                None => self.tables[table.0].remove(&key),
            };
        }
    }
}

impl PlainTransaction for MemoryTransaction<'_> {
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        row.clear();
        let found = self.tables[table.0].get(key);
        row.extend_from_slice(found.map_or(&[], Vec::as_slice));
        Ok(found.is_some())
    }

    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool> {
        if self.tables[table.0].contains_key(key) {
            return Ok(false);
        }
        self.put(table, key, row)?;
        Ok(true)
    }

    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()> {
        let before = self.tables[table.0].insert(key.to_vec(), row.to_vec());
        self.remember(table, key, before);
        Ok(())
    }

    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool> {
        let before = self.tables[table.0].remove(key);
        let found = before.is_some();
        if found {
            self.remember(table, key, before);
        }
        Ok(found)
    }

    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        if scan.range.is_empty() {
            return Ok(());
        }
        let high = match scan.range.high {
            [] => Bound::Unbounded,
            high => Bound::Excluded(high),
        };
        let mut rows = self.tables[table.0].range::<[u8], _>((Bound::Included(scan.range.low), high));
        for _ in 0..scan.limit {
            let row = if scan.reverse { rows.next_back() } else { rows.next() };
            let Some((key, row)) = row else { break };
            if visit(key, row) == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    fn commit(mut self, _mode: CommitMode) -> Outcome<Commit> {
        self.undo.clear();
        Ok(Commit::Durable)
    }

    fn rollback(self) -> Outcome<()> {
        Ok(())
    }
}
