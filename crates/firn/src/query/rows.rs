//! Rows of a query that runs.

use super::explanation::Explanation;
use crate::error::Error;
use crate::transaction::Transaction;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_buffer::BufferPool;
use firndb_query::{Adapted, Counts, Query as Running};
use firndb_table::Value;
use std::collections::VecDeque;
use std::time::Duration;

/// The rows of a query. Owned: holds no latch and no lock between calls.
///
/// It sees one state: its transaction's snapshot; under read committed a snapshot of its own; under
/// serializable isolation the current rows, which stay as they are until the transaction ends. A
/// transaction that writes before it has taken all rows gets `BadArgument` for the next batch of
/// them.
pub struct Rows {
    pub(super) running: Running,
    pub(super) names: Arc<[String]>,
    pub(super) waiting: VecDeque<Vec<Value>>,
    pub(super) explanation: Explanation,
    pub(super) returned: u64,
    pub(super) spent: Duration,
    pub(super) pool: Arc<BufferPool>,
    /// Pages that were missed in DRAM meanwhile.
    pub(super) missed: u64,
}

/// A row of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// The value of a column, by the name that the query selects it by.
    ///
    /// Errors: `BadArgument`, which lists the names, if there is none.
    pub fn get(&self, name: &str) -> Result<&Value, Error> {
        match self.names.iter().position(|one| one == name) {
            Some(at) => Ok(&self.values[at]),
            None => {
                let all = self.names.join(", ");
                Err(Error::bad_argument(format!("the row has no column {name:?}; it has {all}")))
            }
        }
    }
    /// Its values, in the order of the columns.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }
    /// Its values, owned.
    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

impl Rows {
    /// The names of the columns.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The next row; `None` at the end. `tx` is the transaction that the query was run with.
    ///
    /// Errors: `Cancelled`; `Timeout` at the query's deadline; `OutOfMemory` and `Full` if its rows
    /// need more memory than it may have; those of reading. After an error it has ended.
    pub fn next(&mut self, tx: &mut Transaction) -> Result<Option<Row>, Error> {
        if self.waiting.is_empty() {
            let (from, missed): (Moment, u64) = (clock::now(), self.pool.statistics().misses);
            let outcome = self.fill(tx);
            self.spent += clock::now().since(from);
            self.missed += self.pool.statistics().misses - missed;
            tx.note(outcome)?;
        }
        let row = self.waiting.pop_front();
        self.returned += u64::from(row.is_some());
        Ok(row.map(|values| Row { names: self.names.clone(), values }))
    }

    fn fill(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        tx.check_open()?;
        let Some(batch) = self.running.next(&mut tx.inner)? else { return Ok(()) };
        for row in batch.rows() {
            let values = (0..row.len()).map(|at| Ok(row.get(at)?.to_value()));
            self.waiting.push_back(values.collect::<Result<_, Error>>()?);
        }
        Ok(())
    }

    /// All rows that are left.
    ///
    /// Errors: as [`Rows::next`].
    pub fn all(&mut self, tx: &mut Transaction) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        while let Some(row) = self.next(tx)? {
            rows.push(row);
        }
        Ok(rows)
    }

    /// What it has computed so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.running.counts()
    }

    /// What was expected beside what has happened so far.
    #[must_use]
    pub fn report(&self) -> String {
        let milliseconds = |us: f64| us / 1000.0;
        let adapted = |join: &Adapted| {
            let rest = if join.is_hash { ", the rest joined by hash" } else { "" };
            format!("adaptive join with {}: {} rows looked up{rest}\n", join.table, join.left_rows)
        };
        let adapted: String = self.running.adapted().iter().map(adapted).collect();
        format!(
            "{}rows: {:.0} expected, {} returned\ntime: {:.3} ms expected, {:.3} ms spent\npages: {:.0} reads expected; {} missed in DRAM by all threads meanwhile\nmemory: {} bytes at most, {} bytes spilled\n{adapted}",
            self.explanation,
            self.explanation.rows,
            self.returned,
            milliseconds(self.explanation.us),
            milliseconds(self.spent.as_secs_f64() * 1e6),
            self.explanation.cache_pages + self.explanation.store_pages,
            self.missed,
            self.running.peak_memory(),
            self.running.spilled_bytes()
        )
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rows({:?}, {} returned)", self.names, self.returned)
    }
}
