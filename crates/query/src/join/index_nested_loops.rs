//! Index nested loops: the matches of each left row are found by a key of the right table.
//!
//! Left rows are collected as memory allows and sorted by their keys, so that the index is walked
//! in its order and equal keys are looked up once; the right rows are then sorted by their primary
//! keys and read together.

use super::left_rows::LeftRows;
use super::matcher::Matcher;
use super::on::{On, Output, key_values};
use super::rest::Rest;
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::source::Source;
use firndb_btree::Direction;
use firndb_spill::Place;
use firndb_table::{Index, IndexCursor, KeyRange};
use firndb_txn::Transaction;

/// What the right rows are found by.
#[derive(Clone)]
pub(crate) enum Inner {
    /// The whole primary key.
    PrimaryKey,
    /// The first columns of an index.
    Index(Index),
}

/// What left rows are joined with, and how.
#[derive(Clone)]
pub(crate) struct Lookups {
    pub(crate) source: Source,
    pub(crate) inner: Inner,
    /// Left columns, in the order of the columns of the index or primary key.
    pub(crate) left_keys: Vec<usize>,
    pub(crate) on: On,
    pub(crate) output: Output,
}

pub(crate) struct IndexNestedLoops {
    left: Input,
    by: Lookups,
    rows: LeftRows,
    /// Left rows that were met, the most that are looked up, and those that were.
    met: u64,
    most: u64,
    looked_up: u64,
    matcher: Matcher,
    state: State,
    /// Left rows with one key: from the first on, up to the second.
    group: (usize, usize),
    /// Entries with that key.
    entries: Option<IndexCursor>,
    lookups: u64,
}

enum State {
    Fill,
    Look,
    Pairs,
    Unmatched,
    /// There are more left rows than may be looked up: those that are collected were not.
    TooMany,
    End,
}

impl IndexNestedLoops {
    /// Looks up no more left rows than `most`.
    pub(crate) fn new(left: Input, by: Lookups, most: u64, context: &Context) -> IndexNestedLoops {
        let may_miss = matches!(by.inner, Inner::PrimaryKey);
        IndexNestedLoops {
            left,
            matcher: Matcher::new(by.source.clone(), may_miss, context.share / 8, context),
            rows: LeftRows::new(by.output.left_types.clone(), context, context.share / 4),
            by,
            met: 0,
            most,
            looked_up: 0,
            state: State::Fill,
            group: (0, 0),
            entries: None,
            lookups: 0,
        }
    }

    fn fill(&mut self, txn: &mut Transaction, context: &Context) -> Result<State, QueryError> {
        self.rows.clear();
        while self.rows.has_space() && self.left.advance(txn, context)? {
            self.rows.push(self.left.bytes(), &self.by.left_keys)?;
            self.met += 1;
            if self.has_too_many() {
                return Ok(State::TooMany);
            }
            context.work.add(|counts| counts.kept += 1);
        }
        self.looked_up += self.rows.len() as u64;
        context.work.add_sorted(self.rows.len());
        self.rows.sort();
        self.group = (0, 0);
        Ok(if self.rows.is_empty() { State::End } else { State::Look })
    }

    /// Whether it stopped since there are more left rows than may be looked up.
    pub(crate) fn has_too_many(&self) -> bool {
        self.met > self.most
    }

    /// Left rows whose matches were looked up.
    pub(crate) fn looked_up(&self) -> u64 {
        self.looked_up
    }

    /// The left rows that were not looked up: those that are collected, and those that follow.
    pub(super) fn into_rest(self) -> Rest {
        Rest::new(Some(Box::new(self.rows)), vec![self.left])
    }

    /// Goes on to the left rows with the next key; false if there are none.
    fn next_group(&mut self) -> bool {
        let mut first = self.group.1;
        while first < self.rows.len() && self.rows.key(first).is_none() {
            first += 1;
        }
        let mut end = first;
        while end < self.rows.len() && self.rows.key(end) == self.rows.key(first) {
            end += 1;
        }
        self.group = (first, end);
        first < end
    }

    /// Finds the primary keys of matches, while memory allows.
    fn look(&mut self, txn: &mut Transaction, context: &Context) -> Result<(), QueryError> {
        self.matcher.clear();
        while self.matcher.has_space() {
            if let Some(entries) = &mut self.entries {
                match entries.next_entry(txn)? {
                    Some((_, primary_key)) => {
                        let key = self.matcher.key(primary_key)?;
                        self.pair_group(key)?;
                        context.work.add(|counts| counts.entries += 1);
                    }
                    None => self.entries = None,
                }
                continue;
            }
            self.lookups += 1;
            if self.lookups.is_multiple_of(256) {
                context.check(txn)?;
            }
            if !self.next_group() {
                return Ok(());
            }
            let values = key_values(self.rows.row(self.group.0), &self.by.left_keys)?;
            let mut key = Vec::new();
            match &self.by.inner {
                Inner::PrimaryKey => {
                    self.by.source.schema().encode_key(&values, &mut key)?;
                    let key = self.matcher.key(&key)?;
                    self.pair_group(key)?;
                }
                Inner::Index(index) => {
                    index.encode(&values, &mut key)?;
                    context.work.add(|counts| counts.probes += 1);
                    self.entries = Some(index.scan(KeyRange::prefix(&key), Direction::Forward));
                }
            }
        }
        Ok(())
    }

    fn pair_group(&mut self, key: Place) -> Result<(), QueryError> {
        (self.group.0..self.group.1).try_for_each(|number| self.matcher.pair(key, number))
    }

    /// Whether every left row's matches were looked for.
    fn is_done(&self) -> bool {
        self.entries.is_none() && self.group.1 == self.rows.len()
    }
}

impl Operator for IndexNestedLoops {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() {
            match self.state {
                State::Fill => self.state = self.fill(txn, context)?,
                State::Look => {
                    self.look(txn, context)?;
                    self.matcher.sort(context);
                    self.state = State::Pairs;
                }
                State::Pairs => {
                    if self.matcher.put(&mut self.rows, &mut self.by.output, txn, context, out)? {
                        self.state = if self.is_done() { State::Unmatched } else { State::Look };
                    }
                }
                State::Unmatched => {
                    if self.rows.put_unmatched(&mut self.by.output, out)? {
                        self.state = State::Fill;
                    }
                }
                State::TooMany | State::End => break,
            }
        }
        Ok(!out.is_empty())
    }
}
