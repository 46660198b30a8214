//! Reading tables and indexes in their order.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::Operator;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_table::{Cursor, Index, IndexCursor, IndexDefinition, KeyRange};
use firndb_txn::Transaction;

/// Rows of a table in the order of their primary keys. The condition is asked where they lie, under
/// the leaf's latch, so that only wanted rows are copied.
pub(crate) struct TableScan {
    cursor: Cursor,
    reader: SourceReader,
}

impl TableScan {
    pub(crate) fn new(source: Source, range: KeyRange, direction: Direction, context: &Context) -> TableScan {
        let may_want = source.may_want(context.work.seen());
        let cursor = source.table().scan(range, direction).filter(may_want);
        TableScan { cursor, reader: SourceReader::new(source) }
    }
}

impl Operator for TableScan {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full()
            && let Some((key, row)) = self.cursor.next(txn)?
        {
            match self.reader.read(key, row)? {
                Some(row) => out.push_built(row)?,
                // One of some thousand unwanted ones.
                None => context.check(txn)?,
            }
        }
        Ok(!out.is_empty())
    }
}

/// Rows of a table in the order of an index.
pub(crate) struct IndexScan {
    cursor: IndexCursor,
    reader: SourceReader,
}

/// Rows, wanted or not, after which the query is asked whether it may go on.
const CHECK_AFTER: usize = 1024;

impl IndexScan {
    pub(crate) fn new(source: Source, index: &Index, range: KeyRange, direction: Direction) -> IndexScan {
        IndexScan { cursor: index.scan(range, direction), reader: SourceReader::new(source) }
    }
}

impl Operator for IndexScan {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let mut rows = 0;
        while !out.is_full()
            && let Some(found) = self.cursor.next(txn)?
        {
            if let Some(row) = self.reader.read(found.primary_key, found.row)? {
                out.push_built(row)?;
            }
            rows += 1;
            context.work.add(|counts| {
                (counts.entries, counts.lookups) = (counts.entries + 1, counts.lookups + 1);
                counts.rows += 1;
            });
            if rows % CHECK_AFTER == 0 {
                context.check(txn)?;
            }
        }
        Ok(!out.is_empty())
    }
}

/// Columns that an index holds, in its order, without reading rows.
pub(crate) struct IndexOnly {
    cursor: IndexCursor,
    definition: IndexDefinition,
    reader: SourceReader,
}

impl IndexOnly {
    pub(crate) fn new(
        source: Source,
        index: &Index,
        range: KeyRange,
        direction: Direction,
    ) -> Result<IndexOnly, QueryError> {
        let definition = index.definition()?;
        source.check_covered(|column| definition.covers(source.schema(), column))?;
        let cursor = index.scan(range, direction);
        Ok(IndexOnly { cursor, definition, reader: SourceReader::new(source) })
    }
}

impl Operator for IndexOnly {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let schema = self.reader.source().schema().clone();
        let mut entries = 0;
        while !out.is_full()
            && let Some((key, primary_key)) = self.cursor.next_entry(txn)?
        {
            if self.reader.read_columns(&self.definition.stored(&schema, key, primary_key))? {
                self.reader.push(out)?;
            }
            entries += 1;
            context.work.add(|counts| {
                (counts.entries, counts.rows) = (counts.entries + 1, counts.rows + 1);
            });
            if entries % CHECK_AFTER == 0 {
                context.check(txn)?;
            }
        }
        Ok(!out.is_empty())
    }
}
