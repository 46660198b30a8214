//! Rows in batches.

use crate::context::Context;
use crate::error::QueryError;
use crate::row::{Row, RowBuilder};
use firndb_base::sync::Arc;
use firndb_spill::Reservation;
use firndb_table::ColumnType;

/// Rows of a batch at most.
const ROWS_MAX: usize = 1024;

/// Some rows of a query: up to 1,024, and no more once they have the bytes of a batch.
#[derive(Debug)]
pub struct Batch {
    types: Arc<[ColumnType]>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    most_bytes: usize,
    /// Of `bytes`, and of `ends`.
    reserved: [Reservation; 2],
}

impl Batch {
    pub(crate) fn new(types: Arc<[ColumnType]>, context: &Context) -> Batch {
        let none = || Reservation::none(&context.memory);
        Batch {
            types,
            bytes: Vec::new(),
            ends: Vec::new(),
            most_bytes: context.batch_bytes,
            reserved: [none(), none()],
        }
    }

    /// How many rows it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Types of the columns.
    #[must_use]
    pub fn types(&self) -> &[ColumnType] {
        &self.types
    }
    /// The row with this number.
    #[must_use]
    pub fn row(&self, number: usize) -> Row<'_> {
        Row::accepted(&self.types, self.row_bytes(number))
    }
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.len()).map(|number| self.row(number))
    }

    pub(crate) fn row_bytes(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= ROWS_MAX || self.bytes.len() >= self.most_bytes
    }

    /// Forgets the rows. What one long row took is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        if self.bytes.capacity() > 2 * self.most_bytes {
            self.bytes = Vec::new();
            self.reserved[0].set(0).expect("less than before");
        }
    }

    /// Keeps the first rows only.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Appends a row of the batch's columns: one that was built, or has been checked.
    pub(crate) fn push(&mut self, row: &[u8]) -> Result<(), QueryError> {
        debug_assert!(Row::new(&self.types, row).is_ok());
        let [bytes, ends] = &mut self.reserved;
        bytes.grow(&mut self.bytes, row.len())?;
        ends.grow(&mut self.ends, 1)?;
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    pub(crate) fn push_built(&mut self, row: &RowBuilder) -> Result<(), QueryError> {
        self.push(row.bytes())
    }
}
