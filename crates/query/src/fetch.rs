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

/// How many keys one read takes at most, if rows may take as many bytes.
pub(crate) fn keys_of(most: usize, page_size: usize) -> usize {
    (most / Rows::memory_of(1, page_size)).clamp(1, KEYS_MAX)
}

/// How many reads it takes to have the rows of this many keys, of which one read takes `most`: each
/// is waited for.
pub(crate) fn reads_of(keys: f64, most: f64) -> f64 {
    let (mut reads, mut left, mut next) = (0.0, keys, KEYS_FIRST as f64);
    while left > 0.0 && next < most {
        (reads, left, next) = (reads + 1.0, left - next, next * KEYS_GROWTH as f64);
    }
    reads + (left / most).ceil().max(0.0)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_begin_small_and_grow_to_the_most() {
        let cases = [(0.0, 512.0, 0.0), (32.0, 512.0, 1.0), (33.0, 512.0, 2.0), (161.0, 512.0, 3.0)];
        let more = [(160.0 + 1024.0, 512.0, 4.0), (100.0, 10.0, 10.0), (232.0, 100.0, 3.0)];
        for (keys, most, reads) in cases.into_iter().chain(more) {
            assert_eq!(reads_of(keys, most), reads, "{keys} keys, {most} at most");
        }
        assert_eq!((keys_of(1, 4096), keys_of(1 << 30, 4096)), (1, KEYS_MAX));
    }
}
