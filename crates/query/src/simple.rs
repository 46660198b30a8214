//! Operators that keep no rows: filter, project, limit, count.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::operator::{Input, Operator, pull};
use crate::predicate::Predicate;
use crate::row::RowBuilder;
use firndb_table::ValueRef;
use firndb_txn::Transaction;

/// The rows for which a condition is true.
pub(crate) struct Filter {
    input: Input,
    predicate: Predicate,
}

impl Filter {
    pub(crate) fn new(input: Input, predicate: Predicate) -> Filter {
        Filter { input, predicate }
    }
}

impl Operator for Filter {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() && self.input.advance(txn, context)? {
            if self.predicate.holds(&self.input.row())? {
                out.push(self.input.bytes())?;
            }
        }
        Ok(!out.is_empty())
    }
}

/// Some columns of the rows, in any order; one may come twice.
pub(crate) struct Project {
    input: Input,
    columns: Vec<usize>,
    row: RowBuilder,
}

impl Project {
    pub(crate) fn new(input: Input, columns: Vec<usize>) -> Project {
        Project { input, columns, row: RowBuilder::default() }
    }
}

impl Operator for Project {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() && self.input.advance(txn, context)? {
            let row = self.input.row();
            self.row.begin(self.columns.len());
            for column in &self.columns {
                self.row.put(row.value(*column)?)?;
            }
            out.push_built(&self.row)?;
        }
        Ok(!out.is_empty())
    }
}

/// The first rows.
pub(crate) struct Limit {
    input: Box<dyn Operator>,
    left: u64,
}

impl Limit {
    pub(crate) fn new(input: Box<dyn Operator>, rows: u64) -> Limit {
        Limit { input, left: rows }
    }
}

impl Operator for Limit {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        if self.left == 0 || !pull(&mut *self.input, txn, context, out)? {
            return Ok(false);
        }
        out.truncate(usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len()));
        self.left -= out.len() as u64;
        Ok(true)
    }
}

/// How many rows there are: one row of one column.
pub(crate) struct Count {
    input: Box<dyn Operator>,
    batch: Option<Batch>,
}

impl Count {
    /// `batch` takes the rows of the input.
    pub(crate) fn new(input: Box<dyn Operator>, batch: Batch) -> Count {
        Count { input, batch: Some(batch) }
    }
}

impl Operator for Count {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        let Some(mut batch) = self.batch.take() else { return Ok(false) };
        let mut rows = 0u64;
        while pull(&mut *self.input, txn, context, &mut batch)? {
            rows += batch.len() as u64;
        }
        let mut row = RowBuilder::default();
        row.begin(1);
        row.put(ValueRef::U64(rows))?;
        out.push_built(&row)?;
        Ok(true)
    }
}
