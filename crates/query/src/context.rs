//! What the operators of one running query share.

use crate::error::{QueryError, QueryErrorKind};
use crate::work::{Computing, Work};
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_spill::Memory;
use firndb_spill::SpillSpace;
use firndb_txn::{CancelToken, StatementLimit, Transaction};
use std::cell::RefCell;

/// What a query may use, and how long.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    /// Bytes of memory for rows, at least [`QueryOptions::MEMORY_MIN`]. The pages that it reads lie
    /// in the buffer pool and do not count.
    pub memory: usize,
    /// Where rows go that do not fit; `None`: the query fails with kind `Full` instead.
    pub spill: Option<Arc<SpillSpace>>,
    /// Ends the query from outside, between two batches or while it waits for a lock.
    pub cancel: Option<CancelToken>,
    /// When the query ends with kind `Timeout`, between two batches or while it waits for a lock.
    pub deadline: Option<Moment>,
    /// What it computes takes this time, in a simulation.
    pub charged: Option<Computing>,
}

impl QueryOptions {
    /// Least memory of a query of few operators; each of more needs its share.
    pub const MEMORY_MIN: usize = 64 << 10;
}

impl Default for QueryOptions {
    fn default() -> QueryOptions {
        QueryOptions { memory: 64 << 20, spill: None, cancel: None, deadline: None, charged: None }
    }
}

/// How an adaptive join ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapted {
    /// The table that was joined.
    pub table: String,
    /// Rows of the other side that were looked up in it.
    pub left_rows: u64,
    /// There were more: they were joined by hash.
    pub is_hash: bool,
}

/// Bytes of a batch, and those that an operator which collects rows keeps in memory, of a plan of
/// `nodes` operators, which keep rows in this many `shares`.
pub(crate) fn divided(memory: usize, nodes: usize, shares: usize) -> (usize, usize) {
    let nodes = nodes.max(1);
    // A batch may have twice its bytes while it grows, and each operator has one or two: they take
    // eight times its bytes at most. An eighth is for what exceeds, and the rest for what is
    // collected.
    let batch_bytes =
        (memory / (32 * nodes)).clamp(*Context::BATCH_BYTES.start(), *Context::BATCH_BYTES.end());
    let collected = (memory / 8 * 7).saturating_sub(8 * nodes * batch_bytes).max(memory / 8 * 3);
    (batch_bytes, collected / shares.max(1))
}

/// What the operators of one running query share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) memory: Arc<Memory>,
    pub(crate) spill: Option<Arc<SpillSpace>>,
    /// Bytes that an operator which collects rows keeps in memory.
    pub(crate) share: usize,
    /// Bytes of a batch; one row may exceed it.
    pub(crate) batch_bytes: usize,
    /// What its operators compute.
    pub(crate) work: Work,
    /// Adaptive joins that have ended or gone over to hash.
    pub(crate) adapted: RefCell<Vec<Adapted>>,
    cancel: Option<CancelToken>,
    deadline: Option<Moment>,
    /// How often the transaction had written when the query began.
    writes: Option<u64>,
}

impl Context {
    /// Operators that the least memory serves; each more needs an eighth of it.
    pub(crate) const NODES_AT_LEAST: usize = 8;
    const BATCH_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=64 << 10;

    /// For a plan of `nodes` operators, which keep rows in this many `shares` of memory.
    pub(crate) fn new(options: &QueryOptions, nodes: usize, shares: usize) -> Result<Context, QueryError> {
        let least = QueryOptions::MEMORY_MIN / Context::NODES_AT_LEAST * nodes.max(Context::NODES_AT_LEAST);
        if options.memory < least {
            return Err(QueryError::bad_argument(format!(
                "a query of {nodes} operators needs at least {least} bytes of memory, not {}",
                options.memory
            )));
        }
        let (batch_bytes, share) = divided(options.memory, nodes, shares);
        Ok(Context {
            memory: Memory::new("query", options.memory),
            spill: options.spill.clone(),
            share,
            batch_bytes,
            work: Work::new(options.charged),
            adapted: RefCell::default(),
            cancel: options.cancel.clone(),
            deadline: options.deadline,
            writes: None,
        })
    }

    /// The transaction, when the query begins.
    pub(crate) fn begin(&mut self, txn: &Transaction) {
        self.writes.get_or_insert(txn.writes());
    }

    /// What ends its waits for locks.
    pub(crate) fn limit(&self) -> StatementLimit {
        StatementLimit { deadline: self.deadline, cancel: self.cancel.clone() }
    }

    /// In each batch: whether the query may go on.
    pub(crate) fn check(&self, txn: &Transaction) -> Result<(), QueryError> {
        self.work.settle();
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(QueryError::new(QueryErrorKind::Cancelled, "the query was cancelled"));
        }
        txn.check_cancelled()?;
        if self.deadline.is_some_and(|deadline| clock::now() >= deadline) {
            let message = "the query's deadline has passed: give it more time, or let it read less";
            return Err(QueryError::new(QueryErrorKind::Timeout, message));
        }
        if self.writes.is_some_and(|writes| writes != txn.writes()) {
            return Err(QueryError::bad_argument(
                "the transaction has written since the query began, which sees one state: take all its rows first, or run it again",
            ));
        }
        Ok(())
    }

    /// Where rows go that do not fit in memory.
    pub(crate) fn spill(&self) -> Result<&Arc<SpillSpace>, QueryError> {
        self.spill.as_ref().ok_or_else(|| {
            let message = "the query's rows do not fit in its memory and it has no spill device: raise its memory limit, or give it one";
            QueryError::new(QueryErrorKind::Full, message)
        })
    }
}
