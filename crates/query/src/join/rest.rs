//! Left rows that were collected and not joined, and those that follow.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use firndb_txn::Transaction;
use std::collections::VecDeque;

/// Rows in memory, by their numbers.
pub(super) trait Kept: Send {
    fn len(&self) -> usize;
    fn bytes(&self, number: usize) -> &[u8];
}

pub(super) struct Rest {
    /// Its memory is given back with the last row.
    kept: Option<Box<dyn Kept>>,
    /// Of `kept`.
    next: usize,
    inputs: VecDeque<Input>,
}

impl Rest {
    pub(super) fn new(kept: Option<Box<dyn Kept>>, inputs: Vec<Input>) -> Rest {
        #[cfg(feature = "testing")]
        let kept = kept.filter(|_| !crate::broken::is(crate::broken::Break::HandedOverForgotten));
        Rest { kept, next: 0, inputs: inputs.into() }
    }
    /// And the rows of another input behind them.
    pub(super) fn then(mut self, input: Input) -> Rest {
        self.inputs.push_back(input);
        self
    }
}

impl Operator for Rest {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if let Some(rows) = &self.kept {
            while !out.is_full() && self.next < rows.len() {
                out.push(rows.bytes(self.next))?;
                self.next += 1;
            }
            if self.next == rows.len() {
                self.kept = None;
            }
        }
        while !out.is_full()
            && let Some(input) = self.inputs.front_mut()
        {
            if input.advance(txn, context)? {
                out.push(input.bytes())?;
            } else {
                self.inputs.pop_front();
            }
        }
        Ok(!out.is_empty())
    }
}
