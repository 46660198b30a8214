//! Flushes that no thread waits for: workers write them, or [`Log::step`] if there are none.

use crate::log::Log;
use crate::write::in_flight::Flight;
use crate::write::job::Job;
use crate::write::pipeline::{PanicGuard, Pipeline};
use firndb_base::{Lsn, Progress};

impl Log {
    /// Requests a flush to `lsn` in the background: by the workers, or by [`Log::step`] if there
    /// are none. Workers gather what is requested within a millisecond, up to 64 KiB.
    pub fn request_flush(&self, lsn: Lsn) {
        self.pipeline.request_flush(lsn);
    }

    /// Does one piece of background work for a log without workers: writes a request that
    /// [`Log::request_flush`] asked for, or else a seal block if all log is durable and not sealed.
    pub fn step(&self) -> Progress {
        if self.pipeline.write_async_request() || self.pipeline.write_seal() {
            Progress::Worked
        } else {
            Progress::Idle
        }
    }
}

impl Pipeline {
    /// Has a worker, or the next `step`, flush the log to `lsn`.
    pub fn request_flush(&self, lsn: Lsn) {
        if self.on_devices() >= lsn {
            return;
        }
        let end = self.end();
        let lsn = lsn.min(end);
        if !self.gathering.ask(lsn) && !self.options.composes_at_flush() {
            return;
        }
        let mut flight = self.flight.lock();
        if lsn > flight.requested_boundary() {
            self.plan_for(lsn);
            if flight.make_flush_due(end) {
                self.wake_worker(&mut flight);
            }
        }
    }

    /// Composes the next request if `request_flush` asked for it and a device has free space.
    pub fn compose_async_request(&self, flight: &mut Flight) -> Option<Job> {
        if !flight.is_flush_due() || flight.failure().is_some() {
            return None;
        }
        self.compose_request(flight)
    }

    /// Writes one request that `request_flush` asked for. Returns whether there was one.
    fn write_async_request(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let mut flight = self.flight.lock();
        let urgent = flight.take_queued_without_worker().or_else(|| self.compose_orphan(&mut flight));
        let job = urgent.or_else(|| self.compose_async_request(&mut flight));
        if job.is_none() && flight.is_stuck() {
            let error = self.no_progress_error(&flight, self.end());
            drop(flight);
            self.fail(error);
            return false;
        }
        drop(flight);
        job.map(|job| self.run(job)).is_some()
    }
}
