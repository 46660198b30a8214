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
    /// Holes that the device refused when it was asked last.
    refused: BTreeSet<u64>,
    /// Holes that it is asked for once, at once.
    queued: BTreeSet<u64>,
    /// All holes are to be queued, once all groups are learned.
    pub wants_all: bool,
    /// The device may be longer than the groups that the header counts: cutting it failed, or has
    /// not been tried since opening.
    pub is_uncut: bool,
    /// The next refused hole that is tried is not before this one.
    next: u64,
    /// After a hole that was refused. Filling that hole does not end it: the next would be refused,
    /// too, and filled in its turn.
    pub holes_rest: Rest,
    /// After a cut that failed.
    pub cut_rest: Rest,
}

impl Discards {
    /// Whether the device keeps the space of holes: more would be filled later for nothing.
    pub(crate) fn keeps_holes(&self) -> bool {
        !self.refused.is_empty() || !self.holes_rest.is_over()
    }

    /// Whether the device does not take back what it is asked for, at present.
    pub(crate) fn refuses(&self) -> bool {
        self.keeps_holes() || !self.cut_rest.is_over()
    }

    /// Holes whose space the device was asked for in vain.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.len() as u64
    }

    /// Has the device asked for these holes once more, without a rest before.
    pub(crate) fn queue(&mut self, groups: impl Iterator<Item = u64>) {
        self.queued.extend(groups);
    }

    /// The hole that the device is asked for next, and whether it is a queued one.
    pub(crate) fn next_hole(&mut self) -> Option<(u64, bool)> {
        if let Some(group) = self.queued.first() {
            return Some((*group, true));
        }
        if !self.holes_rest.is_over() {
            return None;
        }
        // One that is always refused keeps no other.
        let group = *self.refused.range(self.next..).next().or_else(|| self.refused.first())?;
        self.next = group + 1;
        Some((group, false))
    }

    /// Notes what came of asking for a hole.
    pub(crate) fn asked_for(&mut self, group: u64, is_taken: bool) {
        self.forget(group);
        if !is_taken {
            self.refused.insert(group);
        }
        self.holes_rest.note(is_taken);
    }

    /// The group is no hole any more, or gone.
    pub(crate) fn forget(&mut self, group: u64) {
        self.refused.remove(&group);
        self.queued.remove(&group);
    }

    #[cfg(test)]
    pub(crate) fn has_failed(&self) -> bool {
        self.is_uncut || !self.refused.is_empty() || !self.queued.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn end_rest(&mut self) {
        (self.holes_rest, self.cut_rest) = (Rest::default(), Rest::default());
    }

    #[cfg(test)]
    pub(crate) fn remember(&mut self, group: u64) {
        self.refused.insert(group);
    }
}

/// Until when a device that refused is not asked again, and how long that was put off.
#[derive(Debug, Default)]
pub(crate) struct Rest(Option<(Moment, Duration)>);

impl Rest {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_none_or(|(until, _)| until <= clock::now())
    }

    /// Notes what came of an attempt. Failures while it lasts do not make it longer: a caller that
    /// asks for many at once would have it as long as can be.
    pub(crate) fn note(&mut self, is_done: bool) {
        if is_done {
            self.0 = None;
        } else if self.is_over() {
            let rest = self.0.map_or(REST_MIN, |(_, rest)| (rest * 2).min(REST_MAX));
            self.0 = clock::now().after(rest).map(|until| (until, rest));
        }
    }
}
