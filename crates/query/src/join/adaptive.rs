//! Joins that choose between lookups and hash by the number of left rows.
//!
//! Left rows are collected as the build side of a hash join. Up to a number of them lookups into
//! the right table are cheaper, and they are looked up; else they are joined by hash with a scan of
//! it, for which they are the build side already. If the right rows must be the build side, left
//! rows are collected only until there are too many.
//!
//! Where collecting them all is dear beside lookups, or the first rows should come soon, lookups
//! begin at once, and hand over once: the rows that were not looked up when there are too many and
//! all that follow are joined by hash. That costs at most the lookups of that number of rows, and
//! the hash join of the rest. Each left row is joined by one of the two methods.

use super::build_side::BuildSide;
use super::hash::HashJoin;
use super::index_nested_loops::{IndexNestedLoops, Lookups};
use super::rest::Rest;
use crate::batch::Batch;
use crate::context::{Adapted, Context};
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use firndb_txn::Transaction;

/// When it is a hash join, and of what.
pub(crate) struct ByHash {
    /// If there are more left rows.
    pub(crate) rows: u64,
    /// They are counted before any is looked up.
    pub(crate) counts_ahead: bool,
    /// The rows of the right table.
    pub(crate) scan: Input,
    /// The left rows are the build side; of an inner join only.
    pub(crate) builds_left: bool,
}

pub(crate) struct AdaptiveJoin {
    lookups: Lookups,
    /// Until it is known which method joins the rest.
    by_hash: Option<ByHash>,
    state: State,
}

enum State {
    Begin(Input),
    Looking(Box<IndexNestedLoops>),
    Hash(Box<HashJoin>),
    End,
}

impl AdaptiveJoin {
    pub(crate) fn new(left: Input, lookups: Lookups, by_hash: ByHash) -> AdaptiveJoin {
        AdaptiveJoin { lookups, by_hash: Some(by_hash), state: State::Begin(left) }
    }

    /// Counts the left rows, if that comes first.
    fn begin(
        &mut self,
        mut left: Input,
        txn: &mut Transaction,
        context: &Context,
    ) -> Result<State, QueryError> {
        let Some(by_hash) = self.by_hash.take_if(|by_hash| by_hash.counts_ahead) else {
            let most = self.by_hash.as_ref().map_or(u64::MAX, |by_hash| by_hash.rows);
            return Ok(self.looking(left, most, context));
        };
        let builds_left = by_hash.builds_left;
        let mut side = BuildSide::new(self.lookups.on.left_keys(), 0, !builds_left, context);
        side.read(&mut left, if builds_left { u64::MAX } else { by_hash.rows }, txn, context)?;
        if side.rows <= by_hash.rows {
            let rest = self.input(side.into_rest(&self.lookups.output.left_types, context)?, context);
            return Ok(self.looking(rest, u64::MAX, context));
        }
        self.adapted(0, true, context)?;
        if builds_left {
            let (on, output) = (self.lookups.on.exchanged(), self.lookups.output.clone().exchanged());
            return Ok(State::Hash(Box::new(HashJoin::of_side(by_hash.scan, side, &on, output))));
        }
        let rest = side.into_rest(&self.lookups.output.left_types, context)?.then(left);
        Ok(self.hash(rest, by_hash, context))
    }

    fn looking(&self, left: Input, most: u64, context: &Context) -> State {
        State::Looking(Box::new(IndexNestedLoops::new(left, self.lookups.clone(), most, context)))
    }

    /// The join of these left rows.
    fn hash(&self, rest: Rest, ByHash { scan, builds_left, .. }: ByHash, context: &Context) -> State {
        let (on, output, rest) = (&self.lookups.on, self.lookups.output.clone(), self.input(rest, context));
        State::Hash(Box::new(match builds_left {
            true => HashJoin::new(scan, rest, &on.exchanged(), output.exchanged(), 0, context),
            false => HashJoin::new(rest, scan, on, output, 0, context),
        }))
    }

    fn input(&self, rest: Rest, context: &Context) -> Input {
        Input::new(Box::new(rest), Batch::new(self.lookups.output.left_types.clone(), context))
    }

    /// Notes how it runs.
    fn adapted(&self, left_rows: u64, is_hash: bool, context: &Context) -> Result<(), QueryError> {
        let table = self.lookups.source.table().name()?;
        context.adapted.borrow_mut().push(Adapted { table, left_rows, is_hash });
        Ok(())
    }
}

impl Operator for AdaptiveJoin {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        loop {
            self.state = match std::mem::replace(&mut self.state, State::End) {
                State::Begin(left) => self.begin(left, txn, context)?,
                State::Looking(mut lookups) => {
                    if lookups.next(txn, context, out)? {
                        self.state = State::Looking(lookups);
                        return Ok(true);
                    }
                    let by_hash = self.by_hash.take().filter(|_| lookups.has_too_many());
                    self.adapted(lookups.looked_up(), by_hash.is_some(), context)?;
                    match by_hash {
                        Some(by_hash) => self.hash(lookups.into_rest(), by_hash, context),
                        None => State::End,
                    }
                }
                State::Hash(mut hash) => {
                    if hash.next(txn, context, out)? {
                        self.state = State::Hash(hash);
                        return Ok(true);
                    }
                    State::End
                }
                State::End => return Ok(false),
            };
        }
    }
}
