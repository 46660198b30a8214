//! Index nested loops that hand over to a hash join when there are too many left rows.
//!
//! Left rows are counted as they are collected for lookups. Once there are more than those up to
//! which lookups are cheaper, the rows that were not looked up yet and all that follow are joined
//! by hash with a scan of the right table. Each left row is joined by one of the two methods. The
//! join hands over once: it costs at most the lookups of that number of rows, and the hash join of
//! the rest. Where it is cheap beside lookups, the rows behind the first block are counted before
//! any is looked up, and wait on the spill device: it costs only one of both then.

use super::hash::HashJoin;
use super::index_nested_loops::IndexNestedLoops;
use super::left_rows::LeftRows;
use super::on::{On, Output};
use crate::batch::Batch;
use crate::context::{Adapted, Context};
use crate::error::QueryError;
use crate::operator::{Input, Operator};
use crate::simple::Project;
use firndb_base::sync::Arc;
use firndb_table::{ColumnType, Table};
use firndb_txn::Transaction;
use std::collections::VecDeque;

pub(crate) struct AdaptiveJoin {
    /// Until it has ended or handed over.
    lookups: Option<IndexNestedLoops>,
    or_hash: Option<ByHash>,
    /// Of the rest.
    hash: Option<Box<dyn Operator>>,
    table: Table,
}

/// What the hash join of the rest needs.
pub(crate) struct ByHash {
    /// The rows of the right table.
    pub(crate) scan: Input,
    /// The left rows are the build side; of an inner join only.
    pub(crate) builds_left: bool,
    pub(crate) on: On,
    pub(crate) left_types: Arc<[ColumnType]>,
    pub(crate) right_types: Arc<[ColumnType]>,
}

impl AdaptiveJoin {
    /// `lookups` stops once it has met too many left rows.
    pub(crate) fn new(lookups: IndexNestedLoops, or_hash: ByHash, table: Table) -> AdaptiveJoin {
        AdaptiveJoin { lookups: Some(lookups), or_hash: Some(or_hash), hash: None, table }
    }
}

impl ByHash {
    fn join(self, rest: Input, context: &Context) -> Box<dyn Operator> {
        let ByHash { scan, builds_left, on, left_types, right_types } = self;
        if !builds_left {
            let output = Output::new(&on, left_types, right_types);
            return Box::new(HashJoin::new(rest, scan, &on, output, 0, context));
        }
        let (left, right) = (left_types.len(), right_types.len());
        let types = right_types.iter().chain(&*left_types).copied().collect();
        let on = on.exchanged(left, right);
        let output = Output::new(&on, right_types, left_types);
        let join = HashJoin::new(scan, rest, &on, output, 0, context);
        let joined = Input::new(Box::new(join), Batch::new(types, context));
        Box::new(Project::new(joined, (right..right + left).chain(0..right).collect()))
    }
}

impl Operator for AdaptiveJoin {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if let Some(lookups) = &mut self.lookups {
            if lookups.next(txn, context, out)? {
                return Ok(true);
            }
            let lookups = self.lookups.take().expect("it was there just now");
            let (is_hash, left_rows) = (lookups.has_too_many(), lookups.looked_up());
            context.adapted.borrow_mut().push(Adapted { table: self.table.name()?, left_rows, is_hash });
            if let Some(or_hash) = self.or_hash.take()
                && is_hash
            {
                let types = or_hash.left_types.clone();
                let (rows, left) = lookups.into_rest();
                let rest = Rest { rows: Some(rows), next: 0, left: left.into() };
                #[cfg(feature = "testing")]
                let rest = match crate::broken::is(crate::broken::Break::HandedOverForgotten) {
                    true => Rest { rows: None, ..rest },
                    false => rest,
                };
                let rest = Input::new(Box::new(rest), Batch::new(types, context));
                self.hash = Some(or_hash.join(rest, context));
            }
        }
        self.hash.as_mut().map_or(Ok(false), |hash| hash.next(txn, context, out))
    }
}

/// The left rows that were collected and not looked up, and those that follow.
struct Rest {
    rows: Option<LeftRows>,
    /// Of `rows`.
    next: usize,
    left: VecDeque<Input>,
}

impl Operator for Rest {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if let Some(rows) = &self.rows {
            while !out.is_full() && self.next < rows.len() {
                out.push(rows.bytes(self.next))?;
                self.next += 1;
            }
            if !out.is_empty() {
                return Ok(true);
            }
            self.rows = None;
        }
        while !out.is_full()
            && let Some(left) = self.left.front_mut()
        {
            if left.advance(txn, context)? {
                out.push(left.bytes())?;
            } else {
                self.left.pop_front();
            }
        }
        Ok(!out.is_empty())
    }
}
