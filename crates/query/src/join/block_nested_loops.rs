//! Block nested loops: as many left rows as memory holds, and the right input once for each such
//! block. For conditions without an equality, and for small right inputs.

use super::left_rows::LeftRows;
use super::on::{On, Output, join_key};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use firndb_txn::Transaction;

/// Begins the right input anew. It returns the same rows each time, since a query sees one state.
pub(crate) type Reopen = Box<dyn FnMut(&Context) -> Result<Input, QueryError> + Send>;

pub(crate) struct BlockNestedLoops {
    left: Input,
    reopen: Reopen,
    output: Output,
    left_keys: Vec<usize>,
    right_keys: Vec<usize>,
    block: LeftRows,
    state: State,
    right_key: Vec<u8>,
    compared: u64,
}

enum State {
    Fill,
    /// Through the right input; the next left row for the current right one, whose key is whole.
    Pairs(Input, usize),
    Unmatched,
    End,
}

impl BlockNestedLoops {
    pub(crate) fn new(
        left: Input,
        reopen: Reopen,
        on: &On,
        output: Output,
        context: &Context,
    ) -> BlockNestedLoops {
        BlockNestedLoops {
            left,
            reopen,
            left_keys: on.left_keys(),
            right_keys: on.right_keys(),
            block: LeftRows::new(output.left_types.clone(), context, context.share),
            output,
            state: State::Fill,
            right_key: Vec::new(),
            compared: 0,
        }
    }

    fn fill(&mut self, txn: &mut Transaction, context: &Context) -> Result<State, QueryError> {
        self.block.clear();
        while self.block.has_space() && self.left.advance(txn, context)? {
            self.block.push(self.left.bytes(), &self.left_keys)?;
            context.work.add(|counts| counts.kept += 1);
        }
        if self.block.is_empty() {
            return Ok(State::End);
        }
        // No right row is current yet: all left rows have been compared with none.
        Ok(State::Pairs((self.reopen)(context)?, self.block.len()))
    }

    /// Joins until the batch is full; whether the right input has ended.
    fn pairs(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let State::Pairs(right, next) = &mut self.state else { unreachable!("called in this state") };
        loop {
            let from = *next;
            while *next < self.block.len() {
                if out.is_full() {
                    context.work.add(|counts| counts.compared += (*next - from) as u64);
                    return Ok(false);
                }
                let number = *next;
                *next += 1;
                self.compared += 1;
                if self.compared.is_multiple_of(1 << 16) {
                    context.check(txn)?;
                }
                if self.block.key(number) == Some(&self.right_key)
                    && self.output.pair(self.block.row(number), right.row(), out)?
                {
                    self.block.set_matched(number);
                }
            }
            context.work.add(|counts| counts.compared += (*next - from) as u64);
            if !right.advance(txn, context)? {
                return Ok(true);
            }
            let is_whole = join_key(&right.row(), &self.right_keys, &mut self.right_key)?;
            *next = if is_whole { 0 } else { self.block.len() };
        }
    }
}

impl Operator for BlockNestedLoops {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() {
            match self.state {
                State::Fill => self.state = self.fill(txn, context)?,
                State::Pairs(..) => {
                    if self.pairs(txn, context, out)? {
                        self.state = State::Unmatched;
                    }
                }
                State::Unmatched => {
                    if self.block.put_unmatched(&mut self.output, out)? {
                        self.state = State::Fill;
                    }
                }
                State::End => break,
            }
        }
        Ok(!out.is_empty())
    }
}
