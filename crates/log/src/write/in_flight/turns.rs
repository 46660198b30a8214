//! Whose turn it is: what a thread does that needs log durable, and which thread writes next.

use crate::error::LogError;
use crate::write::in_flight::Flight;
use crate::write::in_flight::slot::Slot;
use crate::write::in_flight::waiter::{Wake, WakeList};
use firndb_base::Lsn;

/// What a thread does that needs log durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be a write that precedes all new log: a queued copy, a request that lost its
    /// devices, a request that is overdue.
    Urgent,
    /// It composes the next request, as leader.
    Lead,
    /// It waits: for the request that holds its log, or for more log to accumulate.
    Wait,
}

/// The threads that go on when the lock is released.
#[must_use]
pub(crate) struct NextWriter {
    /// Threads to wake: those whose log is durable, and perhaps one as leader.
    pub wakes: WakeList,
    /// A worker is to be woken.
    pub worker: bool,
}

impl Flight {
    /// What a thread does that needs the log up to `lsn`, which ends at `end`. Fails if the log
    /// has.
    pub fn turn(&mut self, lsn: Lsn, end: Lsn) -> Result<Turn, LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let queued = !self.jobs.is_empty() && !self.has_workers();
        if queued || !self.orphans.is_empty() || self.hedges {
            return Ok(Turn::Urgent);
        }
        Ok(self.ordinary_turn(lsn, end))
    }

    /// As [`Flight::turn`], once nothing is urgent.
    pub fn ordinary_turn(&mut self, lsn: Lsn, end: Lsn) -> Turn {
        if lsn <= self.requested_boundary || self.should_delay(1, end) { Turn::Wait } else { Turn::Lead }
    }

    /// Chooses the thread that uses an idle device: a worker where workers write, otherwise a
    /// waiting thread as the next leader. For the thread that releases the lock.
    pub fn next_writer(&mut self, end: Lsn) -> NextWriter {
        let worker = self.choose_writer(end) && self.worker_to_wake();
        NextWriter { worker, wakes: self.take_wakes() }
    }

    /// As [`Flight::next_writer`], for a worker, which looks for its next write itself: chooses a
    /// leader where workers do not write.
    pub fn next_writer_beside_worker(&mut self, end: Lsn) -> WakeList {
        if !self.workers_lead() && !self.should_delay(0, end) {
            self.wake_leader();
        }
        self.take_wakes()
    }

    /// As [`Flight::next_writer_beside_worker`], for a worker that found nothing to write. It may
    /// have been woken for an overdue request that cannot be issued again: free devices then take
    /// new log.
    pub fn next_writer_beside_idle_worker(&mut self, end: Lsn) -> WakeList {
        if self.is_contended(end) && !self.workers_lead() {
            self.wake_leader();
        }
        self.take_wakes()
    }

    /// Chooses a leader to be woken, if a waiting thread is to write next. Returns whether a worker
    /// is to write.
    fn choose_writer(&mut self, end: Lsn) -> bool {
        if self.hedges
            && let Some(from) = self.first_overdue()
        {
            if self.has_workers() {
                return true;
            }
            if self.wake_first_waiter_past(from) {
                return false;
            }
        }
        if let Some(orphan) = self.orphans.front()
            && self.has_idle_device()
        {
            let from = self.unfinished(orphan.number).map_or(Lsn::ZERO, |request| request.from);
            return self.has_workers() || {
                self.wake_first_waiter_past(from);
                false
            };
        }
        let flush_due = self.flush_due && self.has_idle_set();
        let delayed = self.should_delay(0, end);
        let led = !delayed && !self.workers_lead() && self.wake_leader();
        !led && (flush_due || !delayed && self.workers_lead() && self.has_unrequested_waiter())
    }

    /// Chooses a waiter as leader if a device is free and the waiter needs log that no request
    /// holds: the waiter with the least LSN. One is enough, since the leader takes all log that
    /// waits; if it cannot, it wakes the next. Returns whether a leader is on its way.
    fn wake_leader(&mut self) -> bool {
        self.leader_woken || (self.has_idle_set() && self.wake_first_waiter_past(self.requested_boundary))
    }

    /// Chooses the waiter with the least LSN past `lsn` to use a free device. Returns as
    /// [`Flight::wake_leader`] does.
    fn wake_first_waiter_past(&mut self, lsn: Lsn) -> bool {
        if self.leader_woken {
            return true;
        }
        if self.failed.is_some() {
            return false;
        }
        let waiting = self.waiters.iter().enumerate().filter(|(_, w)| w.lsn > lsn);
        let Some((place, _)) = waiting.min_by_key(|(_, w)| w.lsn) else { return false };
        let waiter = self.waiters.swap_remove(place);
        self.leader_woken = true;
        self.statistics.hand_overs += 1;
        self.wakes.push((waiter.parker, Wake::Lead));
        true
    }

    /// Whether the log that waits should accumulate until a request in flight is done, or until
    /// there is more of it (`batching.rs`). `asking` is the number of asking threads (one or none)
    /// that wait and are not in the list of waiters.
    pub fn should_delay(&mut self, asking: usize, end: Lsn) -> bool {
        // A request that lost its devices completes only if another thread acts.
        if !self.rules.batches || !self.is_busy() || !self.may_request() {
            return false;
        }
        let waiting = end.since(self.requested_boundary);
        // Threads inside device calls wait as well.
        let writing = if self.hedges { 0 } else { self.busy_devices() };
        let threads = self.waiters.len() + writing + asking;
        let at_once = self.usable() / self.width();
        self.batching.should_delay(waiting, threads, at_once)
    }

    /// Whether log waits for a device: not for more log to accumulate, and not for work that
    /// precedes all new log (the settlement of a device failure, a request that lost its devices).
    /// A thread woken meanwhile could compose nothing.
    pub fn is_contended(&mut self, end: Lsn) -> bool {
        self.may_request() && self.has_unrequested_waiter() && !self.should_delay(0, end)
    }

    /// Whether there are workers to take queued writes.
    pub fn has_workers(&self) -> bool {
        self.rules.workers && !self.stopping
    }

    /// Whether workers take the next request, because committing threads should not write to the
    /// free device.
    pub fn workers_lead(&self) -> bool {
        let free = self.slots.iter().position(Slot::is_ready);
        self.has_workers() && free.is_some_and(|device| self.worker_should_write(device, 1))
    }

    /// Whether a worker should issue a write of `blocks` blocks: because the device may stall,
    /// because the archive may acknowledge the log first, or because the log is being closed.
    pub(super) fn worker_should_write(&self, device: usize, blocks: usize) -> bool {
        let overtaken = self.archive_completes && self.slots[device].is_slow;
        overtaken || self.closing || self.hedges && self.hider.worker_should_write(device, blocks)
    }
}
