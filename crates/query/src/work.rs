//! What a query computes: counted where it is done, priced by [`Computing`].
//!
//! The planner expects times by the same prices. In a simulation, where computing takes no time of
//! its own, a query can be told to take that of its counts ([`QueryOptions::charged`]).
//!
//! [`QueryOptions::charged`]: crate::QueryOptions::charged

use firndb_base::sim;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::time::Duration;

/// Microseconds of computing, of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computing {
    /// A row of a table decoded, and its condition evaluated.
    pub row_us: f64,
    /// An entry of an index stepped over.
    pub entry_us: f64,
    /// A row found by its key, among others of a sorted list.
    pub lookup_us: f64,
    /// An index opened at a key.
    pub probe_us: f64,
    /// A row kept: copied, and hashed or put into a list.
    pub keep_us: f64,
    /// Two keys, or a pair of rows, compared.
    pub compare_us: f64,
    /// A row handed from one operator to the next.
    pub return_us: f64,
}

impl Computing {
    /// Rough: estimated from counts of the instructions of single reads, not measured by operator.
    pub const FIRN: Computing = Computing {
        row_us: 0.2,
        entry_us: 0.1,
        lookup_us: 0.4,
        probe_us: 1.0,
        keep_us: 0.15,
        compare_us: 0.01,
        return_us: 0.05,
    };

    /// All of it longer by a factor; by zero: free.
    #[must_use]
    pub fn times(self, factor: f64) -> Computing {
        Computing {
            row_us: self.row_us * factor,
            entry_us: self.entry_us * factor,
            lookup_us: self.lookup_us * factor,
            probe_us: self.probe_us * factor,
            keep_us: self.keep_us * factor,
            compare_us: self.compare_us * factor,
            return_us: self.return_us * factor,
        }
    }
}

/// How often each was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows of tables looked at.
    pub rows: u64,
    /// Entries of indexes stepped over.
    pub entries: u64,
    /// Rows asked for by their keys.
    pub lookups: u64,
    /// Indexes opened at a key.
    pub probes: u64,
    /// Rows and keys kept.
    pub kept: u64,
    /// Pairs compared.
    pub compared: u64,
    /// Rows handed on.
    pub returned: u64,
}

impl Counts {
    /// Microseconds of computing.
    #[must_use]
    pub fn us(&self, computing: &Computing) -> f64 {
        let Counts { rows, entries, lookups, probes, kept, compared, returned } = *self;
        rows as f64 * computing.row_us
            + entries as f64 * computing.entry_us
            + lookups as f64 * computing.lookup_us
            + probes as f64 * computing.probe_us
            + kept as f64 * computing.keep_us
            + compared as f64 * computing.compare_us
            + returned as f64 * computing.return_us
    }
}

/// Least computing that is charged at once.
const CHARGED_US: f64 = 20.0;

/// The counts of a running query.
#[derive(Debug, Default)]
pub(crate) struct Work {
    counts: Cell<Counts>,
    seen: Arc<Seen>,
    charged: Option<Computing>,
    /// Microseconds that were charged.
    paid_us: Cell<f64>,
}

impl Work {
    pub(crate) fn new(charged: Option<Computing>) -> Work {
        Work { charged, seen: Arc::new(Seen::new(charged)), ..Work::default() }
    }
    pub(crate) fn add(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
    /// Sorting this many keys.
    pub(crate) fn add_sorted(&self, keys: usize) {
        self.add(|counts| counts.compared += keys as u64 * u64::from(keys.max(2).ilog2()));
    }
    /// For a condition that is asked under a page's latch.
    pub(crate) fn seen(&self) -> Arc<Seen> {
        self.seen.clone()
    }
    pub(crate) fn counts(&self) -> Counts {
        let counts = self.counts.get();
        Counts { rows: counts.rows + self.seen.rows(), ..counts }
    }

    /// Takes the time that is owed, in a simulation.
    pub(crate) fn settle(&self) {
        let Some(computing) = &self.charged else { return };
        let owed = self.counts().us(computing) - self.seen.paid_us() - self.paid_us.get();
        if owed >= CHARGED_US {
            self.paid_us.set(self.paid_us.get() + owed);
            sim::charge(Duration::from_nanos((owed * 1000.0) as u64));
        }
    }
}

/// Rows that scans look at where they lie. In a simulation, their time is taken there as well: a
/// scan that pays for a thousand rows at once would let what is read ahead of it run dry.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rows: AtomicU64,
    /// The time of one row is taken for this many at once; 0: it is not.
    charged_rows: u64,
    row_us: f64,
}

impl Seen {
    fn new(charged: Option<Computing>) -> Seen {
        let row_us = charged.map_or(0.0, |computing| computing.row_us);
        let charged_rows = if row_us > 0.0 { (CHARGED_US / row_us).ceil() as u64 } else { 0 };
        Seen { rows: AtomicU64::new(0), charged_rows, row_us }
    }

    /// Counts one; a query runs on one thread at a time.
    pub(crate) fn count_one(&self) {
        let rows = self.rows() + 1;
        self.rows.store(rows, Ordering::Relaxed);
        if self.charged_rows > 0 && rows.is_multiple_of(self.charged_rows) {
            sim::charge(Duration::from_nanos((self.charged_rows as f64 * self.row_us * 1000.0) as u64));
        }
    }

    fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// What was taken.
    fn paid_us(&self) -> f64 {
        match self.charged_rows {
            0 => 0.0,
            rows => (self.rows() / rows * rows) as f64 * self.row_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_looked_at_where_they_lie_pay_there_and_not_again() {
        let work = Work::new(Some(Computing::FIRN));
        let seen = work.seen();
        (0..250).for_each(|_| seen.count_one());
        assert_eq!((work.counts().rows, seen.paid_us()), (250, 40.0), "twice for a hundred rows");
        work.settle();
        assert_eq!(work.paid_us.get(), 0.0, "10 us are left, which are not worth a call");
        work.add(|counts| counts.probes = 20);
        work.settle();
        assert!((work.paid_us.get() - 30.0).abs() < 1e-9, "the rest: {}", work.paid_us.get());

        let free = Work::new(None).seen();
        (0..250).for_each(|_| free.count_one());
        assert_eq!((free.rows(), free.paid_us()), (250, 0.0));
    }
}
