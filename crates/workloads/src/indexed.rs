//! Secondary indexes for engines that have none.
//!
//! An index is one more table: index key to primary key. [`Indexed`] maintains it in the same
//! transaction as its table. An adapter lists the tables it needs with
//! [`PlainSchema::plain_tables`] and implements [`PlainTransaction`] over their positions in that
//! list.

use crate::engine::{
    Commit, CommitMode, EngineError, Found, KeyRange, Outcome, Scan, Transaction, Visit, Visitor, one_by_one,
};
use crate::schema::{IndexId, IndexSpec, Schema, TableId};
use std::sync::Arc;

/// A table of an engine without indexes: its position in the list of [`PlainSchema::plain_tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlainTable(pub usize);

/// A transaction of an engine that has clustered tables of bytes and nothing more. The methods are
/// those of [`Transaction`].
pub trait PlainTransaction {
    /// Reads a row into `row` and returns whether it exists.
    fn get(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool>;
    /// As `get`, and locks the row against other writers. Engines with a single writer need not
    /// override it.
    fn get_for_update(&mut self, table: PlainTable, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.get(table, key, row)
    }
    /// Reads several rows, together if the engine can.
    fn get_many(&mut self, table: PlainTable, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        one_by_one(keys, found, |key, row| self.get(table, key, row))
    }
    /// Adds a row and returns true, or returns false if its key exists already.
    fn insert(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<bool>;
    /// Adds or replaces a row.
    fn put(&mut self, table: PlainTable, key: &[u8], row: &[u8]) -> Outcome<()>;
    /// Deletes a row; returns whether it existed.
    fn delete(&mut self, table: PlainTable, key: &[u8]) -> Outcome<bool>;
    /// Visits rows in the order of their keys.
    fn scan(&mut self, table: PlainTable, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()>;
    /// Ends the transaction and keeps its changes.
    fn commit(self, mode: CommitMode) -> Outcome<Commit>;
    /// Ends the transaction and undoes its changes.
    fn rollback(self) -> Outcome<()>;
}

/// The position of each table and index of a schema among the plain tables.
#[derive(Clone, Debug)]
pub struct PlainSchema {
    schema: Schema,
    /// The plain table of each table; those of its indexes follow it.
    first: Vec<usize>,
}

impl PlainSchema {
    /// Assigns plain tables to `schema`.
    #[must_use]
    pub fn new(schema: &Schema) -> PlainSchema {
        schema.assert_sound();
        let mut first = Vec::with_capacity(schema.tables.len());
        let mut next = 0;
        for table in &schema.tables {
            first.push(next);
            next += 1 + table.indexes.len();
        }
        PlainSchema { schema: schema.clone(), first }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Names of the plain tables, by position: each table, then its indexes as `table__index`.
    #[must_use]
    pub fn plain_tables(&self) -> Vec<String> {
        let mut names = Vec::new();
        for table in &self.schema.tables {
            names.push(table.name.clone());
            names.extend(table.indexes.iter().map(|index| format!("{}__{}", table.name, index.name)));
        }
        names
    }

    /// A table's own plain table.
    #[must_use]
    pub fn table(&self, table: TableId) -> PlainTable {
        PlainTable(self.first[table.0])
    }

    /// An index's plain table.
    #[must_use]
    pub fn index(&self, table: TableId, index: IndexId) -> PlainTable {
        PlainTable(self.first[table.0] + 1 + index.0)
    }

    fn indexes(&self, table: TableId) -> impl Iterator<Item = (PlainTable, &IndexSpec)> {
        let specs = self.schema.table(table).indexes.iter();
        specs.enumerate().map(move |(at, spec)| (self.index(table, IndexId(at)), spec))
    }
}

/// Buffers that a session keeps between its transactions.
#[derive(Clone, Debug, Default)]
pub struct IndexBuffers {
    row: Vec<u8>,
    index_key: Vec<u8>,
    old_index_key: Vec<u8>,
    /// Primary keys found by an index scan, end to end.
    found: Vec<u8>,
    /// Where an index scan continues.
    position: Vec<u8>,
}

/// A [`PlainTransaction`] with secondary indexes.
pub struct Indexed<'s, T> {
    plain: T,
    layout: Arc<PlainSchema>,
    buffers: &'s mut IndexBuffers,
}

/// Index entries read at once before their rows are looked up: few enough that a visitor that stops
/// early costs little; enough that cursors are opened rarely.
const INDEX_SCAN_BATCH: usize = 32;

impl<'s, T: PlainTransaction> Indexed<'s, T> {
    /// Adds the indexes of `layout` to `plain`.
    pub fn new(plain: T, layout: Arc<PlainSchema>, buffers: &'s mut IndexBuffers) -> Indexed<'s, T> {
        Indexed { plain, layout, buffers }
    }

    /// Updates the indexes from the row `self.buffers.row` (if `had_row`) to `row` (if there is
    /// one).
    fn keep_indexes(&mut self, table: TableId, key: &[u8], had_row: bool, row: Option<&[u8]>) -> Outcome<()> {
        let IndexBuffers { row: old, index_key, old_index_key, .. } = &mut *self.buffers;
        for (plain, spec) in self.layout.indexes(table) {
            if had_row {
                spec.key_of(key, old, old_index_key);
            }
            if let Some(row) = row {
                spec.key_of(key, row, index_key);
                if had_row && index_key == old_index_key {
                    continue;
                }
                if !self.plain.insert(plain, index_key, key)? {
                    return Err(EngineError::Duplicate(table));
                }
            }
            if had_row && !self.plain.delete(plain, old_index_key)? {
                return Err(missing_entry(spec));
            }
        }
        Ok(())
    }

    fn has_indexes(&self, table: TableId) -> bool {
        !self.layout.schema.table(table).indexes.is_empty()
    }

    /// Reads the next few primary keys of an index into `buffers.found`; returns their number.
    fn read_index_batch(&mut self, plain: PlainTable, scan: Scan<'_>) -> Outcome<usize> {
        let IndexBuffers { found, position, .. } = &mut *self.buffers;
        found.clear();
        let mut count = 0;
        self.plain.scan(plain, scan, &mut |index_key, key| {
            found.extend_from_slice(key);
            position.clear();
            position.extend_from_slice(index_key);
            count += 1;
            Visit::Continue
        })?;
        Ok(count)
    }
}

fn missing_entry(spec: &IndexSpec) -> EngineError {
    EngineError::Fatal(format!("index {} has no entry for a row of its table", spec.name))
}

impl<T: PlainTransaction> Transaction for Indexed<'_, T> {
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.plain.get(self.layout.table(table), key, row)
    }

    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.plain.get_for_update(self.layout.table(table), key, row)
    }

    fn get_many(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        self.plain.get_many(self.layout.table(table), keys, found)
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        if !self.plain.insert(self.layout.table(table), key, row)? {
            return Err(EngineError::Duplicate(table));
        }
        self.keep_indexes(table, key, false, Some(row))
    }

    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        let plain = self.layout.table(table);
        if self.has_indexes(table) {
            let had_row = self.plain.get_for_update(plain, key, &mut self.buffers.row)?;
            self.keep_indexes(table, key, had_row, Some(row))?;
        }
        self.plain.put(plain, key, row)
    }

    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool> {
        let plain = self.layout.table(table);
        if self.has_indexes(table) {
            if !self.plain.get_for_update(plain, key, &mut self.buffers.row)? {
                return Ok(false);
            }
            self.keep_indexes(table, key, true, None)?;
        }
        self.plain.delete(plain, key)
    }

    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        self.plain.scan(self.layout.table(table), scan, visit)
    }

    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        let layout = self.layout.clone();
        let spec = layout.schema.table(table);
        let plain = layout.index(table, index);
        let mut left = scan.limit;
        let mut from = scan.range.low.to_vec();
        let mut to = scan.range.high.to_vec();
        while left > 0 {
            let asked = left.min(INDEX_SCAN_BATCH);
            let range = KeyRange { low: &from, high: &to };
            let count = self.read_index_batch(plain, Scan { range, reverse: scan.reverse, limit: asked })?;
            let found = std::mem::take(&mut self.buffers.found);
            let mut visited = Visit::Continue;
            for key in found.chunks_exact(spec.key_len) {
                if !self.plain.get(layout.table(table), key, &mut self.buffers.row)? {
                    return Err(EngineError::Fatal(format!(
                        "an entry of index {} points to no row",
                        spec.indexes[index.0].name
                    )));
                }
                visited = visit(key, &self.buffers.row);
                if visited == Visit::Stop {
                    break;
                }
            }
            self.buffers.found = found;
            if visited == Visit::Stop || count < asked {
                break;
            }
            left -= count;
            // The last entry seen bounds the rest: excluded as `high`, skipped as `low`.
            let bound = if scan.reverse { &mut to } else { &mut from };
            bound.clear();
            bound.extend_from_slice(&self.buffers.position);
            if !scan.reverse {
                bound.push(0);
            }
        }
        Ok(())
    }

    fn commit(self, mode: CommitMode) -> Outcome<Commit> {
        self.plain.commit(mode)
    }

    fn rollback(self) -> Outcome<()> {
        self.plain.rollback()
    }
}
