//! Group commit: a thread that needs log durable and finds a device free writes the next request
//! itself (the leader).
//!
//! With one client a flush is one device write on the client's own thread, and no thread is woken.
//! With several clients, those that find no free device wait. The thread whose write frees a device
//! wakes exactly the threads whose LSN is durable now, and one leader: a thread that needs log that
//! no request holds yet. The leader writes all log that has accumulated. Another client may take
//! the free device before the leader runs, so the device does not idle for the length of a thread
//! switch. Where many threads wait, a request that is much shorter than usual is delayed to let
//! more log accumulate (`in_flight/batching.rs`).
//!
//! One flush, with one client: [`Log::flush`] → the in-flight table: it is this thread's turn to
//! lead → `dispatch.rs`: a free device, and a request composed for it → `completion.rs`: the write,
//! its end, the acknowledgement. What else may have to be written first attaches at
//! [`Turn::Urgent`]: copies that no worker is there to write, requests that lost their devices
//! (`members/failure.rs`), overdue requests (`hedge/overdue.rs`).

use crate::error::{LogError, LogErrorKind};
use crate::log::Log;
use crate::write::in_flight::Flight;
use crate::write::in_flight::turns::Turn;
use crate::write::in_flight::waiter::{Depth, Parker, Waiter, Wake};
use crate::write::job::Job;
use crate::write::pipeline::{PanicGuard, Pipeline};
use firndb_base::Lsn;
use firndb_base::sync::{Arc, MutexGuard, before_device};

thread_local! {
    /// Where this thread sleeps. It is made once, so that a wait allocates nothing. A thread waits
    /// for one log at a time.
    static PARKER: Arc<Parker> = Arc::default();
}

impl Log {
    /// Blocks until `durable() >= lsn`. The calling thread writes a request itself where a device
    /// is free. An `lsn` past `end()` is a bad argument.
    pub fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.pipeline.flush_to(lsn, Depth::Anywhere)
    }
}

impl Pipeline {
    pub fn flush_to(&self, lsn: Lsn, depth: Depth) -> Result<(), LogError> {
        if self.reached(depth) >= lsn {
            return Ok(());
        }
        before_device();
        if lsn > self.end() {
            return Err(LogErrorKind::BadArgument
                .error(format!("cannot flush to LSN {lsn}: the log ends at {}", self.end())));
        }
        let _guard = PanicGuard::new(self);
        let mut lead = false;
        loop {
            // A woken leader must clear `leader_woken`, even if it has nothing left to do.
            if !lead && self.reached(depth) >= lsn {
                return Ok(());
            }
            let mut flight = self.flight.lock();
            if std::mem::take(&mut lead) {
                flight.leader_arrived();
            }
            if self.reached(depth) >= lsn {
                self.unlock_and_wake_next(flight);
                return Ok(());
            }
            match self.next_write(&mut flight, lsn)? {
                Some(job) => self.issue(flight, job),
                None => lead = self.wait(flight, lsn, depth)? == Wake::Lead,
            }
        }
    }

    fn reached(&self, depth: Depth) -> Lsn {
        match depth {
            Depth::Anywhere => self.durable(),
            Depth::Devices => self.on_devices(),
        }
    }

    /// The next write that the calling thread, which needs the log up to `lsn`, issues itself.
    /// Writes that a worker should issue are queued for it on the way. Fails if the log has.
    fn next_write(&self, flight: &mut Flight, lsn: Lsn) -> Result<Option<Job>, LogError> {
        loop {
            let mut turn = flight.turn(lsn, self.end())?;
            let mut job = None;
            if turn == Turn::Urgent {
                job = self.compose_urgent(flight, lsn);
                if job.is_none() {
                    turn = flight.ordinary_turn(lsn, self.end());
                }
            }
            if turn == Turn::Lead {
                self.plan_for(lsn);
                job = self.compose_request(flight);
            }
            match job {
                Some(job) if job.for_worker && flight.has_workers() => self.queue_for_worker(flight, job),
                job => return Ok(job),
            }
        }
    }

    /// The write that precedes all new log: a queued copy that no worker is there to write, a
    /// request that lost its devices, or an overdue request.
    fn compose_urgent(&self, flight: &mut Flight, lsn: Lsn) -> Option<Job> {
        let queued = flight.take_queued_without_worker();
        queued.or_else(|| self.compose_orphan(flight)).or_else(|| self.compose_reissue(flight, lsn))
    }

    /// Reserves the log up to `lsn` as a request of its own, if the layout composes so.
    pub fn plan_for(&self, lsn: Lsn) {
        if self.options.composes_at_flush() {
            self.front.lock().plan(lsn);
        }
    }

    fn queue_for_worker(&self, flight: &mut Flight, job: Job) {
        flight.queue(job);
        self.work.notify_one();
    }

    /// Waits until another thread wakes the calling one, or the write that it waits for is overdue.
    fn wait(&self, mut flight: MutexGuard<'_, Flight>, lsn: Lsn, depth: Depth) -> Result<Wake, LogError> {
        if flight.nothing_will_end() {
            // The space argument of `front` is violated.
            let error = self.no_progress_error(&flight, lsn);
            drop(flight);
            self.fail(error.clone());
            return Err(error);
        }
        let parker = PARKER.with(Arc::clone);
        let timer = self.hedge_timer(&mut flight, lsn);
        if flight.add_waiter(Waiter { lsn, depth, parker: Arc::clone(&parker) }) {
            // Other threads may need log that no request holds. A thread that needs such log itself
            // and still has to wait found no device with free space: waking a leader would loop
            // until a write ends.
            self.unlock_and_wake_next(flight);
        } else {
            drop(flight);
        }
        if let Some(wake) = parker.wait(timer) {
            return Ok(wake);
        }
        if self.flight.lock().remove_waiter(&parker) {
            return Ok(Wake::Timeout);
        }
        // Another thread has removed this one from the list and is about to wake it.
        Ok(parker.wait(None).unwrap_or(Wake::Settled))
    }
}
