//! Sort-merge: both inputs come sorted by their keys. The right rows with one key are kept, in
//! memory or on the spill device, for all left rows with that key.

use super::on::{On, Output, join_key};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::row::Row;
use firndb_base::sync::Arc;
use firndb_spill::Reservation;
use firndb_spill::{Arena, Place};
use firndb_spill::{Run, RunReader, RunWriter};
use firndb_txn::Transaction;

pub(crate) struct SortMerge {
    left: Input,
    right: Input,
    left_keys: Vec<usize>,
    right_keys: Vec<usize>,
    output: Output,
    left_key: Vec<u8>,
    /// Of the current right row, if there is one.
    right_key: Option<Vec<u8>>,
    right_started: bool,
    group: Group,
    state: State,
}

enum State {
    NextLeft,
    /// The left row beside the group's rows; whether it has matched.
    Pairs(bool),
    End,
}

/// Right rows with one key.
struct Group {
    key: Option<Vec<u8>>,
    arena: Arena,
    places: Vec<Place>,
    reserved: Reservation,
    /// The rows behind those in memory.
    spilled: Option<Arc<Run>>,
    /// The next row in memory, and then the reader of the others.
    next: usize,
    reader: Option<RunReader>,
}

impl Group {
    fn clear(&mut self) {
        self.key = None;
        self.arena.clear();
        self.places.clear();
        (self.spilled, self.reader) = (None, None);
    }

    /// Begins again with the first row.
    fn rewind(&mut self) {
        (self.next, self.reader) = (0, None);
    }

    /// The next row; `None` at the end.
    fn advance(&mut self, context: &Context) -> Result<Option<&[u8]>, QueryError> {
        if let Some(place) = self.places.get(self.next) {
            self.next += 1;
            return Ok(Some(self.arena.get(*place)));
        }
        let Some(run) = &self.spilled else { return Ok(None) };
        if self.reader.is_none() {
            let buffer = context.spill()?.sizes(context.share).run();
            self.reader = Some(RunReader::new(run.clone(), buffer, &context.memory)?);
        }
        let reader = self.reader.as_mut().expect("made just now");
        Ok(if reader.advance()? { Some(reader.row()) } else { None })
    }
}

impl SortMerge {
    /// Both inputs are sorted by the keys of `on`, ascending.
    pub(crate) fn new(left: Input, right: Input, on: &On, output: Output, context: &Context) -> SortMerge {
        let group = Group {
            key: None,
            arena: Arena::new(&context.memory, context.share / 2),
            places: Vec::new(),
            reserved: Reservation::none(&context.memory),
            spilled: None,
            next: 0,
            reader: None,
        };
        SortMerge {
            left,
            right,
            left_keys: on.left_keys(),
            right_keys: on.right_keys(),
            output,
            left_key: Vec::new(),
            right_key: None,
            right_started: false,
            group,
            state: State::NextLeft,
        }
    }

    /// Steps the right input to its next row with a whole key.
    fn next_right(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        let mut key = self.right_key.take().unwrap_or_default();
        while self.right.advance(txn, context)? {
            if join_key(&self.right.row(), &self.right_keys, &mut key)? {
                self.right_key = Some(key);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Has the group hold the right rows with the left row's key; whether there are any.
    fn find_group(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        if self.group.key.as_ref() == Some(&self.left_key) {
            return Ok(true);
        }
        self.group.clear();
        if !self.right_started {
            self.right_started = true;
            self.next_right(txn, context)?;
        }
        while self.right_key.as_ref().is_some_and(|key| *key < self.left_key) {
            self.next_right(txn, context)?;
        }
        if self.right_key.as_ref() != Some(&self.left_key) {
            return Ok(false);
        }
        let mut writer: Option<RunWriter> = None;
        while self.right_key.as_ref() == Some(&self.left_key) {
            let (row, Group { arena, places, reserved, .. }) = (self.right.bytes(), &mut self.group);
            let bytes = arena.bytes_with(row.len()) + 3 * places.len() * size_of::<Place>();
            if writer.is_none() && (places.is_empty() || bytes <= context.share / 2) {
                reserved.grow(places, 1)?;
                places.push(arena.push(&[row])?);
            } else {
                if writer.is_none() {
                    let space = context.spill()?;
                    writer = Some(RunWriter::new(space, space.sizes(context.share), &context.memory)?);
                }
                writer.as_mut().expect("made just now").push(0, &[row])?;
            }
            self.next_right(txn, context)?;
        }
        let runs = writer.map(RunWriter::finish).transpose()?;
        self.group.spilled = runs.and_then(|mut runs| runs.pop()).map(Arc::new);
        self.group.key = Some(self.left_key.clone());
        Ok(true)
    }

    fn next_left(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<State, QueryError> {
        if !self.left.advance(txn, context)? {
            return Ok(State::End);
        }
        let is_whole = join_key(&self.left.row(), &self.left_keys, &mut self.left_key)?;
        if is_whole && self.find_group(txn, context)? {
            self.group.rewind();
            return Ok(State::Pairs(false));
        }
        if self.output.is_outer() {
            self.output.unmatched(self.left.row(), out)?;
        }
        Ok(State::NextLeft)
    }
}

impl Operator for SortMerge {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let mut pairs = 0u64;
        while !out.is_full() {
            match self.state {
                State::NextLeft => self.state = self.next_left(txn, context, out)?,
                State::Pairs(matched) => {
                    pairs += 1;
                    context.work.add(|counts| counts.compared += 1);
                    if pairs.is_multiple_of(1 << 14) {
                        context.check(txn)?;
                    }
                    let types = self.output.right_types.clone();
                    if let Some(row) = self.group.advance(context)? {
                        let right = Row::new(&types, row)?;
                        let matches = self.output.pair(self.left.row(), right, out)?;
                        self.state = State::Pairs(matched || matches);
                        continue;
                    }
                    if !matched && self.output.is_outer() {
                        self.output.unmatched(self.left.row(), out)?;
                    }
                    self.state = State::NextLeft;
                }
                State::End => break,
            }
        }
        Ok(!out.is_empty())
    }
}
