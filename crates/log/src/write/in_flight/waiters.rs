//! The list of threads that wait, and those chosen to be woken.

use crate::write::in_flight::Flight;
use crate::write::in_flight::waiter::{Depth, Parker, Waiter, WakeList};
use firndb_base::Lsn;
use firndb_base::clock::Moment;
use firndb_base::sync::{Arc, thread};

impl Flight {
    /// Enters a thread into the list. Returns whether a request holds the log that it waits for.
    pub fn add_waiter(&mut self, waiter: Waiter) -> bool {
        let is_requested = waiter.lsn <= self.requested_boundary;
        self.statistics.waits += 1;
        self.waiters.push(waiter);
        is_requested
    }

    /// Removes a waiter whose timer fired. Returns false if it is not in the list any more because
    /// another thread is about to wake it.
    pub fn remove_waiter(&mut self, parker: &Arc<Parker>) -> bool {
        self.earliest_timer = None;
        let place = self.waiters.iter().position(|w| Arc::ptr_eq(&w.parker, parker));
        place.map(|place| self.waiters.swap_remove(place)).is_some()
    }

    /// Records that the thread woken as leader holds the lock.
    pub fn leader_arrived(&mut self) {
        self.leader_woken = false;
    }

    /// Whether any thread waits for log to become durable.
    pub fn is_awaited(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.depth == Depth::Anywhere && waiter.lsn > self.durable)
    }

    /// The last LSN that any thread waits for, or `lsn` if that is more.
    pub fn last_awaited(&self, lsn: Lsn) -> Lsn {
        self.waiters.iter().map(|w| w.lsn).fold(lsn, Lsn::max)
    }

    /// Whether a thread waits for log that no request holds.
    pub fn has_unrequested_waiter(&self) -> bool {
        self.waiters.iter().any(|w| w.lsn > self.requested_boundary)
    }

    /// Whether a thread that found nothing to write would wait for ever: all devices are free, and
    /// yet none took the log.
    pub fn nothing_will_end(&self) -> bool {
        let work_left = !self.is_busy() || !self.orphans.is_empty();
        self.is_all_free() && work_left && !self.leader_woken && self.unsettled_losses == 0
    }

    /// The time for which another waiter has set its timer, if that is ahead and at or before
    /// `due`. Otherwise the calling thread sets its timer for `due`.
    pub fn set_timer(&mut self, due: Moment, now: Moment) -> Option<Moment> {
        let set = self.earliest_timer.filter(|&set| set > now && set <= due);
        if set.is_none() {
            self.earliest_timer = Some(due);
        }
        set
    }

    /// The threads chosen to be woken: the caller wakes them once it has released the lock.
    #[must_use]
    pub fn take_wakes(&mut self) -> WakeList {
        // A thread that unwinds fails the log: a second panic would abort the process instead.
        if cfg!(debug_assertions) && !thread::panicking() {
            self.check();
        }
        // An empty list stays, for its allocation.
        if self.wakes.is_empty() { Vec::new() } else { std::mem::take(&mut self.wakes) }
    }

    /// Returns the allocation of a list whose threads were woken.
    pub fn reuse(&mut self, list: WakeList) {
        if self.wakes.is_empty() {
            self.wakes = list;
        }
    }
}
