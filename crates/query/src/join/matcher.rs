//! Right rows of a join, read by primary key, and put beside their left rows.

use super::left_rows::LeftRows;
use super::on::Output;
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::fetch::Fetch;
use crate::row::Row;
use crate::source::{Source, SourceReader};
use firndb_spill::Reservation;
use firndb_spill::{Arena, Place};
use firndb_txn::Transaction;

/// Pairs of a right row's primary key and the number of a left row, and the reading of their rows:
/// sorted by the keys, each of which is read once, many together.
pub(crate) struct Matcher {
    fetch: Fetch,
    keys: Arena,
    pairs: Vec<(Place, u32)>,
    reserved: Reservation,
    /// The next pair.
    at: usize,
    /// The first pair whose row has not been read.
    read_to: usize,
    /// The number of the next pair's key among those that were read.
    number: usize,
    /// Keys are those of rows that need not be there.
    may_miss: bool,
    most_bytes: usize,
}

impl Matcher {
    /// Whose pairs take at most as many bytes.
    pub(crate) fn new(source: Source, may_miss: bool, most_bytes: usize, context: &Context) -> Matcher {
        Matcher {
            fetch: Fetch::new(SourceReader::new(source), context.share / 2, context),
            keys: Arena::new(&context.memory, most_bytes),
            pairs: Vec::new(),
            reserved: Reservation::none(&context.memory),
            at: 0,
            read_to: 0,
            number: 0,
            may_miss,
            most_bytes,
        }
    }

    /// Bytes that a pair may take, with a key of this length.
    pub(crate) fn pair_bytes(key_len: usize) -> usize {
        // The list may double, by copying.
        key_len + 3 * size_of::<(Place, u32)>()
    }

    pub(crate) fn has_space(&self) -> bool {
        self.pairs.is_empty()
            || self.keys.bytes() + 3 * self.pairs.len() * size_of::<(Place, u32)>() < self.most_bytes
    }

    /// A right row's key. It is kept until [`Matcher::clear`].
    pub(crate) fn key(&mut self, key: &[u8]) -> Result<Place, QueryError> {
        Ok(self.keys.push(&[key])?)
    }

    pub(crate) fn pair(&mut self, key: Place, left: usize) -> Result<(), QueryError> {
        self.reserved.grow(&mut self.pairs, 1)?;
        self.pairs.push((key, u32::try_from(left).expect("rows in memory")));
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.pairs.clear();
        (self.at, self.read_to, self.number) = (0, 0, 0);
    }

    /// All pairs were added.
    pub(crate) fn sort(&mut self, context: &Context) {
        context.work.add_sorted(self.pairs.len());
        let keys = &self.keys;
        self.pairs.sort_unstable_by_key(|(key, left)| (keys.get(*key), *left));
    }

    /// Appends the join's rows until the batch is full; whether all pairs are done.
    pub(crate) fn put(
        &mut self,
        left: &mut LeftRows,
        output: &mut Output,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while self.at < self.pairs.len() {
            if out.is_full() {
                return Ok(false);
            }
            if self.at == self.read_to {
                self.read(txn, context)?;
            }
            let (key, number) = self.pairs[self.at];
            let bytes = self.keys.get(key);
            let row = match self.may_miss {
                true => self.fetch.row_if_any(self.number, bytes)?,
                false => self.fetch.row(self.number, bytes)?,
            };
            if let Some(row) = row {
                let types = output.right_types.clone();
                if output.pair(left.row(number as usize), Row::accepted(&types, row.bytes()), out)? {
                    left.set_matched(number as usize);
                }
            }
            let is_last = self.pairs.get(self.at + 1).is_none_or(|next| self.keys.get(next.0) != bytes);
            self.number += usize::from(is_last);
            self.at += 1;
        }
        Ok(true)
    }

    /// Reads the rows of the next keys.
    fn read(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let most = self.fetch.keys_max();
        let (mut keys, mut starts): (Vec<&[u8]>, Vec<usize>) = Default::default();
        while let Some((key, _)) = self.pairs.get(self.read_to) {
            let key = self.keys.get(*key);
            if keys.last() != Some(&key) {
                if keys.len() == most {
                    break;
                }
                keys.push(key);
                starts.push(self.read_to);
            }
            self.read_to += 1;
        }
        self.number = 0;
        let read = self.fetch.read(txn, context, &keys)?;
        // Those whose rows did not fit come with the next read.
        self.read_to = starts.get(read).copied().unwrap_or(self.read_to);
        Ok(())
    }
}
