//! A range of an index, as a scan of the table: a row says by itself which entry it has.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_table::{Cursor, Index, KeyRange};
use firndb_txn::Transaction;

pub(crate) struct RangeScan {
    cursor: Cursor,
    reader: SourceReader,
    index: Index,
    /// Of the index.
    range: KeyRange,
    entry: Vec<u8>,
}

impl RangeScan {
    /// The rows of a range of an index, which lie in `of_table`.
    pub(crate) fn new(
        source: Source,
        (index, range): (Index, KeyRange),
        of_table: KeyRange,
        context: &Context,
    ) -> RangeScan {
        let may_want = source.may_want(context.work.seen());
        let cursor = source.table().scan(of_table, Direction::Forward).filter(may_want);
        RangeScan { cursor, reader: SourceReader::new(source), index, range, entry: Vec::new() }
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
            if self.range.place(&self.entry).is_eq() {
                out.push_built(wanted)?;
            }
        }
        Ok(())
    }
}
