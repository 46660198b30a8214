//! The log's own threads (workers). They serve `request_flush`, seal the log when it becomes idle,
//! and, where outliers may be hidden, issue the devices' writes, so that no committing thread is
//! blocked by a device that stalls.
//!
//! Otherwise they sleep: without limit while the log is sealed, else for the time after which a
//! seal is due, or log that has gathered is looked for ([`gathering`](super::gathering)).

use crate::error::{LogError, LogErrorKind};
use crate::write::gathering::GATHER_FOR;
use crate::write::in_flight::Flight;
use crate::write::job::Job;
use crate::write::pipeline::{PanicGuard, Pipeline};
use firndb_base::Lsn;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::thread::{self, JoinHandle};
use firndb_base::sync::{Arc, MutexGuard};

/// Starts one worker for each device: a device has one write in flight at a time, so there is a
/// thread for every write.
pub(crate) fn start(pipeline: &Arc<Pipeline>, devices: usize) -> Result<Vec<JoinHandle<()>>, LogError> {
    (0..devices).map(|i| start_one(pipeline, i)).collect()
}

/// Starts the worker that comes with the device at index `i`.
pub(crate) fn start_one(pipeline: &Arc<Pipeline>, i: usize) -> Result<JoinHandle<()>, LogError> {
    let pipeline = Arc::clone(pipeline);
    pipeline.flight.lock().worker_started();
    let counted = Counted(Arc::clone(&pipeline));
    thread::spawn(&format!("firn-log-{i}"), move || {
        let _counted = counted;
        work(&pipeline);
    })
    .map_err(|error| LogErrorKind::Failed.error(format!("a log thread could not be started: {error}")))
}

/// Asks the workers to end.
pub(crate) fn stop(pipeline: &Pipeline) {
    pipeline.flight.lock().stop();
    pipeline.work.notify_all();
}

/// Counts a worker that runs, or that could not be started, until it is dropped.
struct Counted(Arc<Pipeline>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.flight.lock().worker_ended();
        self.0.ended.notify_all();
    }
}

/// What a worker remembers from one turn to the next.
#[derive(Default)]
struct Worker {
    /// Set while it watches for the log to become idle: requests written when its last sleep began.
    watched: Option<u64>,
    /// Set while it is to look for log that has gathered: until when it sleeps.
    gathers_until: Option<Moment>,
    /// Whether it has just woken a committer as leader, having nothing to write itself. That one
    /// may find no device with free space either, and wait again: waking it once more would go on
    /// for as long as the write lasts that frees some.
    has_offered: bool,
}

fn work(pipeline: &Pipeline) {
    let mut worker = Worker::default();
    loop {
        let _guard = PanicGuard::new(pipeline);
        let mut flight = pipeline.flight.lock();
        if !flight.worker_arrived() {
            if worker.gathers_until.is_some() {
                flight.end_gathering();
            }
            return;
        }
        let flush_due = flight.is_flush_due();
        if let Some(job) = pipeline.next_job(&mut flight) {
            if flush_due && (worker.gathers_until.is_some() || flight.begin_gathering()) {
                worker.gathers_until = clock::now().after(GATHER_FOR);
            }
            drop(flight);
            pipeline.run_as_worker(job);
            worker.has_offered = false;
            continue;
        }
        if flight.is_stuck() {
            let error = pipeline.no_progress_error(&flight, flight.requested_boundary());
            drop(flight);
            pipeline.fail(error);
            continue;
        }
        let wakes = match worker.has_offered {
            true => flight.take_wakes(),
            false => flight.next_writer_beside_idle_worker(pipeline.end()),
        };
        worker.has_offered = !wakes.is_empty();
        if worker.has_offered {
            pipeline.unlock_and_wake(flight, wakes);
            continue;
        }
        worker.sleep(pipeline, flight);
    }
}

impl Worker {
    /// Sleeps until there may be something to write. Writes a seal if one is due.
    fn sleep(&mut self, pipeline: &Pipeline, mut flight: MutexGuard<'_, Flight>) {
        if let Some(until) = self.gathers_until {
            if !pipeline.work.wait_until(&mut flight, until) {
                self.gathers_until = None;
                flight.end_gathering();
            }
            return;
        }
        if flight.begin_watch() {
            self.watched = Some(flight.requests_done());
        }
        let Some(before) = self.watched else {
            pipeline.work.wait(&mut flight);
            return;
        };
        if !flight.is_unsealed() {
            flight.end_watch();
            self.watched = None;
            return;
        }
        let in_time = pipeline.work.wait_for(&mut flight, pipeline.options.seal_after);
        let now = flight.requests_done();
        if now != before {
            self.watched = Some(now);
        } else if !in_time {
            // Nothing was written for the whole time. If no seal can be written now, try again
            // later.
            drop(flight);
            if !pipeline.write_seal() {
                // A seal states that *all* log is durable. Log that was appended since and for
                // which no thread waits, such as background work appends, would prevent the seal,
                // and with it the proof that the last commit is durable.
                pipeline.request_flush(pipeline.end());
            }
        }
    }
}

impl Pipeline {
    /// A worker's next write: a queued write, an orphan or an overdue request, the final seal, new
    /// log, in this order.
    fn next_job(&self, flight: &mut Flight) -> Option<Job> {
        if let Some(job) = flight.take_queued() {
            return Some(job);
        }
        let urgent = self.compose_orphan(flight).or_else(|| self.compose_reissue(flight, Lsn::ZERO));
        let job = urgent.or_else(|| self.compose_final_seal(flight)).or_else(|| {
            if flight.is_worker_needed() && !flight.should_delay(0, self.end()) {
                self.compose_request(flight)
            } else {
                self.compose_async_request(flight)
            }
        })?;
        if flight.wants_another_worker(self.end()) {
            self.wake_worker(flight);
        }
        Some(job)
    }

    /// Wakes a worker for new work, unless one is already on its way: it will see all work queued
    /// by then.
    pub fn wake_worker(&self, flight: &mut Flight) {
        if flight.worker_to_wake() {
            self.work.notify_one();
        }
    }
}
