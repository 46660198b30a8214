//! Workers, flushes that no thread waits for, seals, and closing.

use crate::error::LogError;
use crate::write::gathering::GATHER_BYTES;
use crate::write::in_flight::{Flight, Watch};
use crate::write::job::Job;
use firndb_base::Lsn;

impl Flight {
    /// Queues a write: for a worker, or for the next thread that flushes.
    pub fn queue(&mut self, job: Job) {
        assert!(self.jobs.len() < self.slots.len(), "a device has one write at a time");
        self.jobs.push_back(job);
    }

    pub fn take_queued(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// Takes a queued write if there is no worker to issue it.
    pub fn take_queued_without_worker(&mut self) -> Option<Job> {
        if self.has_workers() { None } else { self.jobs.pop_front() }
    }

    /// Records that a worker is wanted for new work. Returns whether one is to be woken: not if one
    /// is already on its way, which will see all work queued by then.
    #[must_use]
    pub fn worker_to_wake(&mut self) -> bool {
        !std::mem::replace(&mut self.worker_woken, true)
    }

    /// Records that a worker holds the lock. Returns false if it is to end. Queued writes are
    /// issued even then: threads wait for them.
    pub fn worker_arrived(&mut self) -> bool {
        self.worker_woken = false;
        !self.stopping || !self.jobs.is_empty()
    }

    pub fn worker_started(&mut self) {
        self.workers += 1;
    }

    pub fn worker_ended(&mut self) {
        self.workers -= 1;
    }

    /// Running workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Makes the calling worker the one that watches for the log to become idle, if one was asked
    /// for. Returns whether it is.
    pub fn begin_watch(&mut self) -> bool {
        let requested = self.watch == Watch::Requested;
        if requested {
            self.watch = Watch::Active;
        }
        requested
    }

    pub fn end_watch(&mut self) {
        self.watch = Watch::None;
    }

    /// Requests written.
    pub fn requests_done(&self) -> u64 {
        self.statistics.requests
    }

    /// Lets log gather behind what requests hold: for the worker that will look for it, or else
    /// until somebody asks for a flush.
    pub(super) fn let_gather(&mut self) {
        let enough = if self.gatherer { GATHER_BYTES } else { 0 };
        let until = self.requested_boundary.advance(enough);
        self.flush_due = self.gathering.keep_quiet_until(until) > until;
        if self.flush_due {
            self.expect_flush();
        }
    }

    /// Has log flushed that no thread waits for. Returns whether a worker is to be woken: not while
    /// a request is being written, whose end triggers the next one, unless there is enough log for
    /// a second device.
    #[must_use]
    pub fn make_flush_due(&mut self, end: Lsn) -> bool {
        self.flush_due = true;
        let is_enough = end.since(self.requested_boundary) >= GATHER_BYTES;
        if is_enough || !self.is_busy() {
            self.expect_flush();
            return self.has_idle_set();
        }
        let _ = self.gathering.keep_quiet_until(self.requested_boundary.advance(GATHER_BYTES));
        false
    }

    /// Nobody need ask any more: what gathers will be taken by the next request.
    fn expect_flush(&self) {
        let _ = self.gathering.keep_quiet_until(Lsn(u64::MAX));
    }

    /// Whether log that no request holds is to be flushed, although no thread waits for it.
    pub fn is_flush_due(&self) -> bool {
        self.flush_due
    }

    /// Makes the calling worker look again after a while for log that has gathered, unless another
    /// does. Returns whether it is to.
    #[must_use]
    pub fn begin_gathering(&mut self) -> bool {
        let begins = !std::mem::replace(&mut self.gatherer, true);
        if begins {
            self.let_gather();
        }
        begins
    }

    /// Ends the wait of the worker that looks for log that has gathered. Such log is due.
    pub fn end_gathering(&mut self) {
        self.gatherer = false;
        self.let_gather();
    }

    /// Whether a worker takes the next request: workers write, and a waiting thread needs it.
    pub fn is_worker_needed(&self) -> bool {
        self.workers_lead() && self.has_unrequested_waiter() && self.failed.is_none()
    }

    /// Whether another worker could write as well, after one has taken a write.
    pub fn wants_another_worker(&mut self, end: Lsn) -> bool {
        let needy = self.workers_lead() && self.is_contended(end);
        self.has_idle_set() && (self.flush_due || needy)
    }

    /// Whether log became durable that no seal has recorded.
    pub fn is_unsealed(&self) -> bool {
        self.failed.is_none() && self.sealed < self.on_devices
    }

    /// The LSN that a seal is to record, if all log is on the devices, no seal records that yet,
    /// and nothing is in flight.
    pub fn seal_due(&self, end: Lsn) -> Option<Lsn> {
        let quiet = !self.is_busy() && self.unsettled_losses == 0 && self.failed.is_none();
        (quiet && self.sealed < self.on_devices && self.on_devices == end).then_some(end)
    }

    /// Leaves all writes to workers from now on, if there are any.
    pub fn begin_close(&mut self) {
        self.closing = true;
    }

    /// Asks the workers for the final seal, unless the log has failed.
    pub fn request_final_seal(&mut self) {
        self.final_seal_pending = self.failed.is_none();
    }

    /// Whether the final seal is still to be written; from now on it is not.
    pub fn take_final_seal(&mut self) -> bool {
        std::mem::take(&mut self.final_seal_pending)
    }

    /// Whether everything is written that closing waits for, or will never be.
    pub fn is_closed_out(&self) -> bool {
        !self.final_seal_pending && self.outstanding_writes == 0 || self.failed.is_some()
    }

    /// Asks the workers to end.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Writes whose threads have not returned from their devices.
    pub fn outstanding_writes(&self) -> usize {
        self.outstanding_writes
    }

    /// Why closing stopped waiting for a device, if it did.
    pub fn given_up(&self) -> Option<&LogError> {
        self.given_up.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Owner;
    use crate::hedge::hiding::{Hider, Hiding};
    use crate::hedge::outliers::OutlierOptions;
    use crate::options::LogOptions;
    use crate::testing::memory_device;
    use crate::write::front::Composed;
    use crate::write::gathering::Gathering;
    use crate::write::in_flight::rules::Rules;
    use crate::write::in_flight::slot::Slot;
    use crate::write::job::Task;
    use firndb_base::clock;
    use firndb_base::sync::Arc;
    use firndb_device::AlignedBuf;

    /// Cause: the end of a seal set what is sealed, also where a later seal had ended before it on
    /// a quicker device. Effect: the log took itself for unsealed and wrote a seal in vain.
    #[test]
    fn a_seal_that_ends_late_takes_no_later_one_back() {
        let slot =
            |member| Slot::new(memory_device("log", 4096), Owner::main(7, member), AlignedBuf::zeroed(512));
        let hider = Hider::new(Hiding::Off, &OutlierOptions::default(), 2);
        let rules = Rules::of(&LogOptions::default());
        let gathering = Arc::new(Gathering::new(Lsn(1)));
        let mut flight = Flight::new((0..2).map(slot).collect(), rules, hider, Lsn(1), None, gathering);
        let seals = [(0, Lsn(10)), (1, Lsn(20))].map(|(device, lsn)| {
            let free = flight.take_device(device).expect("it is free");
            let composed = Composed { offset: 0, len: 512, rest: None, from: lsn, boundary: lsn };
            let job = flight.begin_write(free, composed, Task::Seal(lsn));
            job.bytes.begin(job.buf, job.len);
            (job.task, job.bytes)
        });
        for (device, (task, bytes)) in seals.into_iter().enumerate().rev() {
            let _ = flight.write_ended(device, task, bytes, clock::now(), Lsn(30));
        }
        assert_eq!(flight.sealed, Lsn(20));
    }
}
