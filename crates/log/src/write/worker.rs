//! The log's own threads (workers). They serve `request_flush`, seal the log when it becomes idle,
//! and, where outliers may be hidden, issue the devices' writes, so that no committing thread is
//! blocked by a device that stalls.
//!
//! Otherwise they sleep: without limit while the log is sealed, else for the time after which a
//! seal is due.

use crate::write::flight::Watch;
use crate::write::pipeline::Pipeline;
use firn_base::sync::Arc;
use firn_base::sync::thread::{self, JoinHandle};

/// Starts one worker for each device: a device has one write in flight at a time, so there is a
/// thread for every write.
pub(crate) fn start(pipeline: &Arc<Pipeline>, devices: usize) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..devices).map(|i| start_one(pipeline, i)).collect()
}

/// Starts the worker that comes with the device at index `i`.
pub(crate) fn start_one(pipeline: &Arc<Pipeline>, i: usize) -> std::io::Result<JoinHandle<()>> {
    let pipeline = Arc::clone(pipeline);
    pipeline.flight.lock().workers += 1;
    let counted = Counted(Arc::clone(&pipeline));
    thread::spawn(&format!("firn-log-{i}"), move || {
        let _counted = counted;
        work(&pipeline);
    })
}

/// Asks the workers to end.
pub(crate) fn stop(pipeline: &Pipeline) {
    pipeline.flight.lock().stopping = true;
    pipeline.work.notify_all();
}

/// Counts a worker that runs, or that could not be started, until it is dropped.
struct Counted(Arc<Pipeline>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.flight.lock().workers -= 1;
        self.0.ended.notify_all();
    }
}

fn work(pipeline: &Pipeline) {
    // Set while this worker watches for the log to become idle: requests written when its last
    // sleep began.
    let mut watched: Option<u64> = None;
    loop {
        let mut flight = pipeline.flight.lock();
        flight.worker_woken = false;
        // Queued writes are issued even then: threads wait for them.
        if flight.stopping && flight.jobs.is_empty() {
            return;
        }
        if let Some(job) = pipeline.next_job(&mut flight) {
            drop(flight);
            pipeline.run_guarded(job);
            continue;
        }
        if pipeline.is_stuck(&flight) {
            let error = pipeline.no_progress_error(&flight, flight.requested_boundary);
            drop(flight);
            pipeline.fail(error);
            continue;
        }
        // The worker may have been woken for an overdue request that cannot be issued again: free
        // devices then take new log.
        let mut list = std::mem::take(&mut flight.scratch);
        if pipeline.is_contended(&mut flight) && !pipeline.workers_lead(&flight) {
            flight.wake_leader(&mut list);
        }
        if !list.is_empty() {
            pipeline.unlock_and_wake(flight, list);
            continue;
        }
        flight.scratch = list;
        if flight.watch == Watch::Requested {
            flight.watch = Watch::Active;
            watched = Some(flight.requests_done);
        }
        let Some(before) = watched else {
            pipeline.work.wait(&mut flight);
            continue;
        };
        if !pipeline.is_unsealed(&flight) {
            flight.watch = Watch::None;
            watched = None;
            continue;
        }
        let in_time = pipeline.work.wait_for(&mut flight, pipeline.options.seal_after);
        let now = flight.requests_done;
        if now != before {
            watched = Some(now);
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
