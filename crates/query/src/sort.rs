//! Sorting by columns.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_spill::{Sorted, Sorter};
use firndb_table::{ColumnType, encode_sort_key};
use firndb_txn::Transaction;

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortColumn {
    /// Its position.
    pub column: usize,
    /// Whether large values come first, and NULL last.
    pub descending: bool,
}

/// Replaces `key` by bytes that sort as the row does by these columns.
pub(crate) fn sort_key(row: &Row<'_>, by: &[SortColumn], key: &mut Vec<u8>) -> Result<(), Malformed> {
    key.clear();
    for part in by {
        encode_sort_key(row.value(part.column)?, part.descending, key);
    }
    Ok(())
}

/// Rows of its input in another order.
pub(crate) struct Sort {
    input: Option<Input>,
    by: Vec<SortColumn>,
    types: Arc<[ColumnType]>,
    sorted: Option<Sorted>,
}

impl Sort {
    pub(crate) fn new(input: Input, by: Vec<SortColumn>, types: Arc<[ColumnType]>) -> Sort {
        Sort { input: Some(input), by, types, sorted: None }
    }

    fn collect(&mut self, txn: &mut Transaction, context: &Context) -> Result<Sorted, QueryError> {
        let mut input = self.input.take().expect("the input is read once");
        let mut sorter = Sorter::new(&context.memory, context.share, context.spill.clone());
        let mut key = Vec::new();
        while input.advance(txn, context)? {
            sort_key(&input.row(), &self.by, &mut key)?;
            sorter.push(&key, input.bytes())?;
            let compared = sorter.take_compared();
            context
                .work
                .add(|counts| (counts.kept, counts.compared) = (counts.kept + 1, counts.compared + compared));
        }
        drop(input);
        let mut sorted = sorter.finish(|| context.check(txn))?;
        context.work.add(|counts| counts.compared += sorted.take_compared());
        Ok(sorted)
    }
}

impl Operator for Sort {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.collect(txn, context)?);
        }
        let sorted = self.sorted.as_mut().expect("sorted above");
        while !out.is_full() {
            let Some((_, row)) = sorted.next_row()? else { break };
            // What was on the spill device is not trusted to be a row.
            Row::new(&self.types, row)?;
            out.push(row)?;
        }
        Ok(!out.is_empty())
    }
}
