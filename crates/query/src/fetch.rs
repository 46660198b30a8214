//! Reading rows by their primary keys, many at a time.

use crate::context::Context;
use crate::error::QueryError;
use crate::memory::Reservation;
use crate::row::RowBuilder;
use crate::source::SourceReader;
use firndb_table::{Rows, TableError};
use firndb_txn::Transaction;

/// Keys of the first read, how many times more the next ones may have, and the most of any.
const KEYS_FIRST: usize = 8;
const KEYS_GROWTH: usize = 4;
const KEYS_MAX: usize = 512;

/// Reads rows by sorted keys, a piece of the list at a time.
///
/// How many rows one read returns is known, how long they are is not: the number of keys follows
/// the longest row so far, so that a read stays within half of an operator's share.
pub(crate) struct Fetch {
    reader: SourceReader,
    rows: Rows,
    reserved: Reservation,
    longest: usize,
    /// Keys of the last read.
    keys: usize,
}

impl Fetch {
    pub(crate) fn new(reader: SourceReader, context: &Context) -> Fetch {
        let reserved = Reservation::none(&context.memory);
        Fetch { reader, rows: Rows::new(), reserved, longest: 0, keys: 0 }
    }

    /// How many keys the next read may take.
    pub(crate) fn keys_max(&self, context: &Context) -> usize {
        if self.longest == 0 {
            return KEYS_FIRST;
        }
        (context.share / 2 / self.longest).clamp(1, KEYS_MAX.min(KEYS_GROWTH * self.keys.max(KEYS_FIRST)))
    }

    /// Reads the rows of these keys, which ascend, and are as many as [`Fetch::keys_max`] allows.
    pub(crate) fn read<K: AsRef<[u8]>>(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        keys: &[K],
    ) -> Result<(), QueryError> {
        context.check(txn)?;
        self.reader.source().table().get_many(txn, keys, &mut self.rows)?;
        let lens = || self.rows.iter().map(|row| row.map_or(0, <[u8]>::len));
        self.longest = self.longest.max(lens().max().unwrap_or(0)).max(1);
        self.keys = keys.len();
        self.reserved.set(lens().sum())
    }

    /// The row that the key with this number makes, if it is wanted; an error if there is none: its
    /// key was found in an index, by the same snapshot or under the same locks.
    pub(crate) fn row(&mut self, number: usize, key: &[u8]) -> Result<Option<&RowBuilder>, QueryError> {
        match self.rows.get(number) {
            Some(row) => self.reader.read(key, row),
            None => Err(no_row(&self.reader)),
        }
    }

    /// As [`Fetch::row`], of a key that need not have a row.
    pub(crate) fn row_if_any(
        &mut self,
        number: usize,
        key: &[u8],
    ) -> Result<Option<&RowBuilder>, QueryError> {
        match self.rows.get(number) {
            Some(row) => self.reader.read(key, row),
            None => Ok(None),
        }
    }
}

fn no_row(reader: &SourceReader) -> QueryError {
    let name = reader.source().table().name().unwrap_or_else(|error: TableError| error.message);
    QueryError::damaged(format!(
        "table {name:?}: an index has an entry of a row that is not there; check the table"
    ))
}
