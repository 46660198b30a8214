//! The rest of a fetch by an index, as a scan of the table.
//!
//! No row is returned twice, and none is left out, without a list of those that were: a fetch reads
//! entries in the order of the index, and returns the rows of all entries up to some key before it
//! reads on. What is left are the rows whose entries lie past that key, and a row says by itself
//! which entry it has. By a snapshot both are of one state. Under serializable isolation the
//! entries that were read are locked with the gaps between them, and their rows are locked: no row
//! gets an entry among them, or loses it, before the transaction ends; and a transaction that
//! writes itself ends its query.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_table::{Cursor, Index, KeyRange};
use firndb_txn::Transaction;

pub(crate) struct RestScan {
    cursor: Cursor,
    reader: SourceReader,
    index: Index,
    /// Of the index.
    range: KeyRange,
    /// The key of the last entry whose row was returned, or was not wanted; `None`: there is none.
    passed: Option<Vec<u8>>,
    entry: Vec<u8>,
}

impl RestScan {
    /// Of a fetch of a range of an index; its rows lie in `of_table`.
    pub(crate) fn new(
        source: Source,
        (index, range): (Index, KeyRange),
        of_table: KeyRange,
        passed: Option<Vec<u8>>,
        context: &Context,
    ) -> RestScan {
        let may_want = source.may_want(context.work.seen());
        let cursor = source.table().scan(of_table, Direction::Forward).filter(may_want);
        RestScan { cursor, reader: SourceReader::new(source), index, range, passed, entry: Vec::new() }
    }

    pub(crate) fn fill(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<(), QueryError> {
        while !out.is_full()
            && let Some((key, row)) = self.cursor.next(txn)?
        {
            let Some(wanted) = self.reader.read(key, row)? else {
                // One of some thousand unwanted ones.
                context.check(txn)?;
                continue;
            };
            self.index.entry_of(key, row, &mut self.entry)?;
            let is_left = self.passed.as_ref().is_none_or(|passed| self.entry > *passed);
            #[cfg(feature = "testing")]
            let is_left = is_left || crate::broken::is(crate::broken::Break::PassedForgotten);
            if is_left && self.range.place(&self.entry).is_eq() {
                out.push_built(wanted)?;
            }
        }
        Ok(())
    }
}
