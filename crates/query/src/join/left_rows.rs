//! Rows of the left input in memory, each with its key and whether it has matched.

use super::on::{Output, join_key};
use super::rest::Kept;
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::row::Row;
use firndb_base::sync::Arc;
use firndb_spill::Reservation;
use firndb_spill::{Arena, Place};
use firndb_table::ColumnType;

pub(crate) struct LeftRows {
    types: Arc<[ColumnType]>,
    arena: Arena,
    rows: Vec<LeftRow>,
    reserved: Reservation,
    /// Bytes that the rows may take, if there is more than one.
    most_bytes: usize,
    scratch: Vec<u8>,
    /// How many have been looked at by [`LeftRows::put_unmatched`].
    looked_at: usize,
}

#[derive(Clone, Copy)]
struct LeftRow {
    row: Place,
    /// `None`: a column of it is NULL.
    key: Option<Place>,
    matched: bool,
}

impl LeftRows {
    pub(crate) fn new(types: Arc<[ColumnType]>, context: &Context, most_bytes: usize) -> LeftRows {
        LeftRows {
            types,
            arena: Arena::new(&context.memory, most_bytes),
            rows: Vec::new(),
            reserved: Reservation::none(&context.memory),
            most_bytes,
            scratch: Vec::new(),
            looked_at: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether another row may be kept.
    pub(crate) fn has_space(&self) -> bool {
        // The list may double, by copying.
        self.is_empty() || self.arena.bytes() + 3 * self.rows.len() * size_of::<LeftRow>() < self.most_bytes
    }

    /// Keeps a row, whose key these columns are.
    pub(crate) fn push(&mut self, bytes: &[u8], key_columns: &[usize]) -> Result<(), QueryError> {
        let is_whole = join_key(&Row::accepted(&self.types, bytes), key_columns, &mut self.scratch)?;
        self.reserved.grow(&mut self.rows, 1)?;
        let row = self.arena.push(&[bytes])?;
        let key = if is_whole { Some(self.arena.push(&[&self.scratch])?) } else { None };
        self.rows.push(LeftRow { row, key, matched: false });
        Ok(())
    }

    pub(crate) fn row(&self, number: usize) -> Row<'_> {
        Row::accepted(&self.types, self.bytes(number))
    }
    pub(crate) fn bytes(&self, number: usize) -> &[u8] {
        self.arena.get(self.rows[number].row)
    }
    pub(crate) fn key(&self, number: usize) -> Option<&[u8]> {
        self.rows[number].key.map(|key| self.arena.get(key))
    }
    pub(crate) fn is_matched(&self, number: usize) -> bool {
        self.rows[number].matched
    }
    pub(crate) fn set_matched(&mut self, number: usize) {
        self.rows[number].matched = true;
    }

    /// Sorts the rows by their keys, those without one first.
    pub(crate) fn sort(&mut self) {
        let arena = &self.arena;
        self.rows.sort_unstable_by_key(|row| row.key.map(|key| arena.get(key)));
    }

    /// Appends the rows that have not matched, of an outer join, until the batch is full; whether
    /// all were looked at.
    pub(crate) fn put_unmatched(&mut self, output: &mut Output, out: &mut Batch) -> Result<bool, QueryError> {
        while output.is_outer() && self.looked_at < self.rows.len() {
            if out.is_full() {
                return Ok(false);
            }
            if !self.rows[self.looked_at].matched {
                output.unmatched(self.row(self.looked_at), out)?;
            }
            self.looked_at += 1;
        }
        Ok(true)
    }

    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.rows.clear();
        self.looked_at = 0;
    }
}

impl Kept for LeftRows {
    fn len(&self) -> usize {
        LeftRows::len(self)
    }
    fn bytes(&self, number: usize) -> &[u8] {
        LeftRows::bytes(self, number)
    }
}
