//! Closing the log in bounded time, although a device may hang.
//!
//! From [`Log::begin_close`] on the workers issue all writes, so that no other thread is blocked
//! inside a device call that began later. The closing thread waits for them. If a device does not
//! complete one and the same write within `LogOptions::close_patience`, the log gives up: it fails,
//! naming the device, and drops its references to all devices. The thread inside the call keeps its
//! device, with the lock of its file, until the call ends: so an overdue write never reaches a file
//! that the log has opened again in a later epoch.
//!
//! A log without workers writes on the threads of its callers, and they block with the device.

use crate::error::{LogError, LogErrorKind};
use crate::log::Log;
use crate::write::in_flight::Flight;
use crate::write::pipeline::Pipeline;
use crate::write::worker;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::MutexGuard;
use std::time::Duration;

/// Longest interval at which a waiting thread checks the devices.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Which writes are in flight, and since when.
#[derive(Debug, Default)]
pub struct WriteWatch {
    /// Device, number of writes it had ended, and when that was first seen.
    seen: Vec<(usize, u64, Moment)>,
}

impl WriteWatch {
    /// The device, if any, that has been busy with the same write for `patience`.
    fn check(&mut self, flight: &Flight, patience: Duration) -> Option<usize> {
        let now = clock::now();
        let slots = flight.slots();
        self.seen
            .retain(|&(place, ended, _)| slots[place].is_writing() && slots[place].writes_ended() == ended);
        for (place, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.is_writing()) {
            if self.seen.iter().all(|&(seen, ..)| seen != place) {
                self.seen.push((place, slot.writes_ended(), now));
            }
        }
        self.seen.iter().find(|(_, _, since)| now.since(*since) >= patience).map(|&(place, ..)| place)
    }
}

impl Log {
    /// Leaves all writes to the workers from now on, if there are any: the log is about to be
    /// closed.
    pub fn begin_close(&self) {
        self.pipeline.flight.lock().begin_close();
    }

    /// Flushes, writes a seal block, stops the workers. Later appends are refused. May be called
    /// again.
    ///
    /// When it returns, with or without an error, no thread is inside a device any more, unless the
    /// error names a device that did not complete a write within
    /// [`crate::LogOptions::close_patience`].
    pub fn close(&self) -> Result<(), LogError> {
        let pipeline = &self.pipeline;
        self.refuse_appends();
        let end = self.end();
        let mut watch = WriteWatch::default();
        if pipeline.options.workers && !pipeline.flight.lock().is_stopping() {
            pipeline.request_flush(end);
            let reached = |flight: &Flight| pipeline.on_devices() >= end || flight.failure().is_some();
            pipeline.wait_until(&mut watch, reached);
            {
                let mut flight = pipeline.flight.lock();
                flight.request_final_seal();
                pipeline.wake_worker(&mut flight);
            }
            pipeline.wait_until(&mut watch, Flight::is_closed_out);
            self.stop_workers(&mut watch);
        } else {
            let flushed = self.flush_to_devices(end);
            self.stop_workers(&mut watch);
            flushed?;
            pipeline.write_seal();
        }
        self.outcome()
    }

    /// Closes a log that holds nothing but its epoch's start records, without writing them: the
    /// devices stay unchanged, and the epoch has no log. May be called again, and after
    /// [`Log::close`].
    pub fn close_unused(&self) -> Result<(), LogError> {
        self.refuse_appends();
        self.stop_workers(&mut WriteWatch::default());
        self.outcome()
    }

    fn refuse_appends(&self) {
        self.pipeline.front.lock().refuse(LogErrorKind::Closed.error("the log was closed"));
        self.begin_close();
    }

    /// Why closing stopped waiting for a device, or the log failed.
    fn outcome(&self) -> Result<(), LogError> {
        let flight = self.pipeline.flight.lock();
        flight.given_up().or(flight.failure()).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Gives the log up if a device has been busy with the same write for
    /// [`crate::LogOptions::close_patience`]. Returns the error if that has happened, now or
    /// before.
    pub fn give_up_if_stuck(&self, watch: &mut WriteWatch) -> Option<LogError> {
        let flight = self.pipeline.flight.lock();
        drop(self.pipeline.check(flight, watch));
        self.pipeline.flight.lock().given_up().cloned()
    }

    /// Stops the workers and waits for every write.
    fn stop_workers(&self, watch: &mut WriteWatch) {
        worker::stop(&self.pipeline);
        self.pipeline.wait_until(watch, |flight| flight.workers() == 0);
        // No thread issues the writes that were queued for workers that panicked.
        drop(self.pipeline.flight.lock().drop_queued());
        self.pipeline.wait_until(watch, |flight| flight.outstanding_writes() == 0);
        let given_up = self.pipeline.flight.lock().given_up().is_some();
        for thread in self.workers.lock().drain(..) {
            if given_up && !thread.is_finished() {
                // It is inside the device, and ends after that.
                continue;
            }
            // A worker that panicked in a device has failed the log already, which `close` reports.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop_workers(&mut WriteWatch::default());
    }
}

impl Pipeline {
    /// Waits until `done`, or until the log gives up waiting.
    fn wait_until(&self, watch: &mut WriteWatch, done: impl Fn(&Flight) -> bool) {
        let interval =
            CHECK_INTERVAL_MAX.min(self.options.close_patience / 4).max(Duration::from_micros(100));
        let mut flight = self.flight.lock();
        while !done(&flight) && flight.given_up().is_none() {
            self.ended.wait_for(&mut flight, interval);
            flight = self.check(flight, watch);
        }
    }

    /// Gives the log up if a device has been busy for too long.
    fn check<'a>(&'a self, flight: MutexGuard<'a, Flight>, watch: &mut WriteWatch) -> MutexGuard<'a, Flight> {
        let stuck = watch.check(&flight, self.options.close_patience);
        match stuck.filter(|_| flight.given_up().is_none()) {
            Some(place) => {
                self.give_up(flight, place);
                self.flight.lock()
            }
            None => flight,
        }
    }

    /// Stops waiting for devices, and drops the references to all of them.
    fn give_up(&self, mut flight: MutexGuard<'_, Flight>, place: usize) {
        let error = LogErrorKind::Failed.error(format!(
                "closing waited {:?} for a write of log device {}, which does not complete, and gave up. Whether commits that \
                 were not acknowledged yet are durable is unknown until the database is opened again; the device stays \
                 in use until that write has ended",
                self.options.close_patience,
                flight.slots()[place].device().info().name
            ));
        let dropped = flight.give_up(&error);
        drop(flight);
        drop(dropped);
        self.fail(error);
    }
}
