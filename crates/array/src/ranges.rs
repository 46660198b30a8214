//! Ranges of the file above that threads write or mend.
//!
//! A thread takes all ranges of a call at once, and waits while another one has any byte of them.
//! So nothing is written to a place while it is rebuilt or scrubbed, and copies of metadata are not
//! mended with what is being replaced.

use crate::ranks;
use firndb_base::sync::{Condvar, Mutex, RankHold};
use std::ops::Range;

/// The ranges that are taken.
#[derive(Debug)]
pub(crate) struct Ranges {
    taken: Mutex<Vec<Range<u64>>>,
    freed: Condvar,
}

/// Ranges that the calling thread has until this is dropped.
pub(crate) struct Taken<'a> {
    ranges: &'a Ranges,
    own: Vec<Range<u64>>,
    _hold: RankHold,
}

impl Ranges {
    pub(crate) fn new() -> Ranges {
        Ranges { taken: ranks::RANGES.mutex(Vec::new()), freed: Condvar::new() }
    }

    /// As [`Ranges::take`], for one range.
    pub(crate) fn take_one(&self, own: Range<u64>) -> Taken<'_> {
        self.take(Vec::from([own]))
    }

    /// Waits until no other thread has any byte of these, which do not overlap.
    pub(crate) fn take(&self, own: Vec<Range<u64>>) -> Taken<'_> {
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let hold = ranks::RANGE.hold(std::ptr::from_ref(&self.freed).addr());
        let mut taken = self.taken.lock();
        while taken.iter().any(|other| own.iter().any(|own| overlap(own, other))) {
            self.freed.wait(&mut taken);
        }
        taken.extend(own.iter().cloned());
        Taken { ranges: self, own, _hold: hold }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut taken = self.ranges.taken.lock();
        for own in &self.own {
            let at = taken.iter().position(|range| range == own).expect("it was taken");
            taken.swap_remove(at);
        }
        drop(taken);
        self.ranges.freed.notify_all();
    }
}
