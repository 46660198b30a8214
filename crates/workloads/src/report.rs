//! The measurements of a run of the driver.

use crate::engine::Retry;
use crate::latency::Latency;
use serde::Serialize;

/// Attempts that were repeated, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetryCounts {
    /// [`Retry::Conflict`].
    pub conflict: u64,
    /// [`Retry::Deadlock`].
    pub deadlock: u64,
    /// [`Retry::Busy`].
    pub busy: u64,
}

impl RetryCounts {
    pub(crate) fn count(&mut self, cause: Retry) {
        match cause {
            Retry::Conflict => self.conflict += 1,
            Retry::Deadlock => self.deadlock += 1,
            Retry::Busy => self.busy += 1,
        }
    }
    pub(crate) fn add(&mut self, other: RetryCounts) {
        self.conflict += other.conflict;
        self.deadlock += other.deadlock;
        self.busy += other.busy;
    }
    /// Attempts repeated for all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.conflict + self.deadlock + self.busy
    }
}

/// One kind of transaction over the measured interval.
#[derive(Clone, Debug)]
pub struct KindReport {
    /// Its name.
    pub name: &'static str,
    /// Durable commits.
    pub commits: u64,
    /// Transactions rolled back because their inputs requested it.
    pub user_aborts: u64,
    /// Attempts repeated.
    pub retries: RetryCounts,
    /// Latency from the first attempt's start until the commit was known durable.
    pub latency: Latency,
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Length of the measured interval.
    pub seconds: f64,
    /// Whether the stop flag ended it early.
    pub stopped: bool,
    /// Reports by kind, in the order given to [`drive`](crate::drive).
    pub kinds: Vec<KindReport>,
}

impl RunReport {
    /// Durable commits of all kinds.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commits).sum()
    }
    /// Aborts that inputs requested, of all kinds.
    #[must_use]
    pub fn user_aborts(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.user_aborts).sum()
    }
    /// Repeated attempts of all kinds.
    #[must_use]
    pub fn retries(&self) -> RetryCounts {
        let mut total = RetryCounts::default();
        self.kinds.iter().for_each(|kind| total.add(kind.retries));
        total
    }
    /// `count` a second of the measured interval; 0 if nothing was measured.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}
