//! What a device should have taken back and has not, and when it is asked again
//! (`discard_again.rs`).

use firndb_base::clock::{self, Moment};
use std::collections::BTreeSet;
use std::time::Duration;

const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(3600);

/// What the device should have taken back and has not.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// Groups that are holes in the map, or were.
    pub groups: BTreeSet<u64>,
    /// The device is longer than the groups that the header counts, since cutting it failed.
    pub is_uncut: bool,
    /// All holes are to be discarded again, once all groups are learned.
    pub wants_all: bool,
    /// Nothing is tried before, and how long that was put off.
    pub again: Option<(Moment, Duration)>,
}

impl Discards {
    /// Whether the last attempt failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_uncut || !self.groups.is_empty()
    }

    /// Whether the device keeps the space of a hole.
    pub(crate) fn has_kept(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Groups that are holes in the map, and whose space the device was asked for in vain.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    fn failed(&mut self) {
        let rest = self.again.map_or(REST_MIN, |(_, rest)| (rest * 2).min(REST_MAX));
        self.again = clock::now().after(rest).map(|until| (until, rest));
    }

    pub(crate) fn is_due(&self) -> bool {
        self.has_failed() && self.again.is_none_or(|(until, _)| until <= clock::now())
    }

    #[cfg(test)]
    pub(crate) fn end_rest(&mut self) {
        self.again = None;
    }

    #[cfg(test)]
    pub(crate) fn remember(&mut self, group: u64) {
        self.groups.insert(group);
    }

    /// Notes what came of an attempt.
    pub(crate) fn note(&mut self, has_failed: bool) {
        match has_failed {
            true => self.failed(),
            false => self.again = None,
        }
    }
}
