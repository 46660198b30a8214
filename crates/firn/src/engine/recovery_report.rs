//! What recovery did and what it cost, for `firn stat` and for the caller that opened the database.

use crate::engine::devices::Counted;
use firndb_base::clock::{self, Moment};
use std::time::Duration;

/// Cost of one part of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryCost {
    /// How long it took.
    pub time: Duration,
    /// Reads of the log's devices.
    pub log_reads: u64,
    /// Reads of the flash cache.
    pub cache_reads: u64,
    /// Reads of the page store, those of its map included.
    pub store_reads: u64,
}

impl RecoveryCost {
    /// All reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.log_reads + self.cache_reads + self.store_reads
    }
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: RecoveryCost) -> RecoveryCost {
        RecoveryCost {
            time: self.time + other.time,
            log_reads: self.log_reads + other.log_reads,
            cache_reads: self.cache_reads + other.cache_reads,
            store_reads: self.store_reads + other.store_reads,
        }
    }
}

/// What recovery did, and what is left of it; shown by `firn stat` and to the caller who opened the
/// database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the database had been closed cleanly.
    pub clean: bool,
    /// Bytes of log read again.
    pub log_bytes: u64,
    /// Bytes of log that only the archive had.
    pub from_archive: u64,
    /// Bytes of log that were read from the archive since it is the faster source; all others are
    /// from the log's devices.
    pub archive_first: u64,
    /// Records read again.
    pub records: u64,
    /// Page changes repeated so far.
    pub redone: u64,
    /// Transactions to be rolled back when transactions could begin.
    pub losers: u64,
    /// Of these, transactions that are still to be rolled back, including those set aside; their
    /// rows are locked.
    pub losers_left: u64,
    /// Transactions that cannot be rolled back before the next opening, because of damage.
    pub losers_set_aside: u64,
    /// Prepared transactions found.
    pub prepared: u64,
    /// Pages redone on demand and in the background.
    pub redo: RedoCounts,
    /// Whether nothing is left to be done.
    pub complete: bool,
    /// Finding the log's end.
    pub scan: RecoveryCost,
    /// Restoring the flash cache's directory.
    pub cache: RecoveryCost,
    /// Reading the log into open transactions and pending changes.
    pub analysis: RecoveryCost,
    /// Bringing the page map up to date with what analysis found.
    pub map: RecoveryCost,
    /// Opening the log for appending, redo of pages that were not left for later, and reading the
    /// catalog.
    pub opening: RecoveryCost,
    /// From the begin of transactions to the end of recovery; so far, if it goes on.
    pub rest_time: Duration,
}

impl RecoveryReport {
    /// The parts of the work before transactions could begin, in this order, each with a name.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, RecoveryCost); 5] {
        [
            ("finding the log's end", self.scan),
            ("the cache's directory", self.cache),
            ("analysis", self.analysis),
            ("the page map", self.map),
            ("opening", self.opening),
        ]
    }
    /// The time of the work that grows with the log.
    pub(crate) fn reading_the_log(&self) -> Duration {
        self.scan.time + self.analysis.time + self.map.time
    }
    /// The work before transactions could begin.
    #[must_use]
    pub fn before_transactions(&self) -> RecoveryCost {
        self.parts().into_iter().fold(RecoveryCost::default(), |sum, (_, cost)| sum.plus(cost))
    }
}

/// Measures parts of recovery, one after the other.
pub(crate) struct Meter {
    since: Moment,
    reads: [u64; 3],
}

impl Meter {
    pub fn new(devices: &Counted) -> Meter {
        Meter { since: clock::now(), reads: reads(devices) }
    }

    /// What it cost since the last call.
    pub fn lap(&mut self, devices: &Counted) -> RecoveryCost {
        let now = Meter::new(devices);
        let [log_reads, cache_reads, store_reads] =
            std::array::from_fn(|at| now.reads[at].saturating_sub(self.reads[at]));
        let cost = RecoveryCost { time: now.since.since(self.since), log_reads, cache_reads, store_reads };
        *self = now;
        cost
    }
}

fn reads(devices: &Counted) -> [u64; 3] {
    let logs = devices.logs.list().iter().map(|(_, log)| log.snapshot().reads.ops).sum();
    let cache = devices.cache_counted().map_or(0, |cache| cache.snapshot().reads.ops);
    [logs, cache, devices.store.snapshot().reads.ops]
}

/// What redo on demand has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedoCounts {
    /// Pages that changed since the redo start and were found in the flash cache in their newest
    /// version; by its directory, without reading them.
    pub pages_current: u64,
    /// Pages with changes that the tiers might lack, when transactions could begin.
    pub pages_pending: u64,
    /// Of these, pages that are still to be redone, including those set aside.
    pub pages_left: u64,
    /// Pages that are damaged or cannot be read: set aside until the next opening, or until a
    /// transaction reads them and they are readable.
    pub pages_set_aside: u64,
    /// Pages that were redone because a transaction read them.
    pub pages_on_demand: u64,
    /// Pages that were redone in the background.
    pub pages_in_background: u64,
    /// Pages that needed nothing: freed, or allocated anew, or found up to date.
    pub pages_obsolete: u64,
    /// Of the pages redone on demand and in the background, those read from the flash cache.
    pub pages_from_cache: u64,
    /// Of those pages, the ones read from the store.
    pub pages_from_store: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause: the rate at which a restart reads the log was taken from the time of the whole
    /// opening. Effect: after an opening that restored a large flash cache, checkpoints came as
    /// often as for a slow log device, without any use.
    #[test]
    fn the_time_of_reading_the_log_has_no_part_that_no_checkpoint_shortens() {
        let taking = |ms| RecoveryCost { time: Duration::from_millis(ms), ..RecoveryCost::default() };
        let report = RecoveryReport {
            scan: taking(1),
            cache: taking(10_000),
            analysis: taking(20),
            map: taking(300),
            opening: taking(5000),
            ..RecoveryReport::default()
        };
        assert_eq!(report.reading_the_log(), Duration::from_millis(321));
    }
}
