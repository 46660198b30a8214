//! What every operator is.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use firndb_txn::Transaction;

/// A part of a running plan, pulled: each call fills a batch. Between calls it holds no latch.
pub(crate) trait Operator: Send {
    /// Appends rows to `out`, which is empty, until it is full or there are no more; false once
    /// there are none, and then none were appended.
    fn next(&mut self, txn: &mut Transaction, context: &Context, out: &mut Batch)
    -> Result<bool, QueryError>;
}

/// Fills a batch with the operator's next rows; false at the end.
pub(crate) fn pull(
    from: &mut dyn Operator,
    txn: &mut Transaction,
    context: &Context,
    batch: &mut Batch,
) -> Result<bool, QueryError> {
    context.check(txn)?;
    batch.clear();
    let more = from.next(txn, context, batch)?;
    context.work.add(|counts| counts.returned += batch.len() as u64);
    assert_eq!(more, !batch.is_empty(), "an operator that goes on returns a row");
    Ok(more)
}

/// Rows of an operator one by one.
pub(crate) struct Input {
    from: Box<dyn Operator>,
    batch: Batch,
    /// The row after the current one.
    next: usize,
    ended: bool,
}

impl Input {
    pub(crate) fn new(from: Box<dyn Operator>, batch: Batch) -> Input {
        Input { from, batch, next: 0, ended: false }
    }

    /// Steps to the next row; false at the end.
    pub(crate) fn advance(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        if self.next == self.batch.len() {
            self.next = 0;
            if self.ended || !pull(&mut *self.from, txn, context, &mut self.batch)? {
                self.ended = true;
                self.batch.clear();
                return Ok(false);
            }
        }
        self.next += 1;
        Ok(true)
    }

    /// The row that the last `advance` stepped to.
    pub(crate) fn row(&self) -> crate::row::Row<'_> {
        self.batch.row(self.next - 1)
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        self.batch.row_bytes(self.next - 1)
    }
}
