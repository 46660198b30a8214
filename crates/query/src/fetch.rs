//! Reading rows by their primary keys, many at a time.

use crate::context::Context;
use crate::error::QueryError;
use crate::row::RowBuilder;
use crate::source::SourceReader;
use firndb_spill::Reservation;
use firndb_table::{Rows, TableError};
use firndb_txn::Transaction;

/// Keys of the first read, how many times more the next ones may have, and the most of any.
const KEYS_FIRST: usize = 32;
const KEYS_GROWTH: usize = 4;
const KEYS_MAX: usize = 512;

/// Reads rows by sorted keys, a piece of the list at a time.
///
/// How many rows one read returns is known, how long they are is not: the number of keys follows
/// the longest row so far, so that a read stays within the bytes that it may take. Where large
/// values are longer than expected, the read ends before the one that does not fit; one row alone
/// may be longer than that, if the query's memory allows it.
pub(crate) struct Fetch {
    reader: SourceReader,
    rows: Rows,
    reserved: Reservation,
    page_size: usize,
    /// Bytes of a read, if it is of more than one row.
    most: usize,
    longest: usize,
    /// Keys of the last read.
    keys: usize,
}

impl Fetch {
    /// Its reads take `most` bytes.
    pub(crate) fn new(reader: SourceReader, most: usize, context: &Context) -> Fetch {
        let reserved = Reservation::none(&context.memory);
        let page_size = reader.source().table().page_size();
        Fetch { reader, rows: Rows::new(), reserved, page_size, most, longest: 0, keys: 0 }
    }

    /// How many keys the next read may take.
    pub(crate) fn keys_max(&self) -> usize {
        let most = match self.longest {
            0 => KEYS_FIRST,
            _ => KEYS_MAX.min(KEYS_GROWTH * self.keys.max(KEYS_FIRST)),
        };
        let row = self.longest.max(Rows::memory_of(1, self.page_size));
        (self.most / row).clamp(1, most)
    }

    /// Reads the rows of these keys, which ascend, and are as many as [`Fetch::keys_max`] allows;
    /// how many of them, from the first on, and one at least.
    pub(crate) fn read<K: AsRef<[u8]>>(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        keys: &[K],
    ) -> Result<usize, QueryError> {
        context.check(txn)?;
        let most = self.most;
        if self.rows.memory() > most {
            // A row was longer.
            self.rows = Rows::new();
        }
        self.reserved.set(most.min(Rows::memory_of(keys.len(), self.page_size)).max(self.rows.memory()))?;
        let (reserved, mut refused) = (&mut self.reserved, None);
        let read =
            self.reader.source().table().get_many_that_fit(txn, keys, &mut self.rows, |number, bytes| {
                if bytes <= reserved.bytes() {
                    return true;
                }
                let outcome =
                    if number > 0 && bytes > most { Ok(false) } else { reserved.set(bytes).map(|()| true) };
                outcome.unwrap_or_else(|error| {
                    refused = Some(error);
                    false
                })
            })?;
        if read == 0
            && let Some(error) = refused
        {
            return Err(error.into());
        }
        let longest = self.rows.iter().map(|row| row.map_or(0, <[u8]>::len)).max();
        self.longest = self.longest.max(longest.unwrap_or(0)).max(1);
        self.keys = read;
        context.work.add(|counts| {
            (counts.lookups, counts.rows) = (counts.lookups + read as u64, counts.rows + read as u64);
        });
        self.reserved.set(self.rows.memory())?;
        Ok(read)
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
