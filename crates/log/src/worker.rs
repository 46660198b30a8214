//! The log's own threads: they serve `request_flush`, seal the log when it falls idle, and, where outliers may be
//! hidden, perform the devices' writes, so that no committing thread is stuck with a device that stalls.
//!
//! They sleep otherwise: for ever while the log is sealed, else for the time after which a seal is due.

use crate::flight::Watch;
use crate::pipeline::Pipeline;
use firn_base::sync::Arc;
use firn_base::sync::thread::{self, JoinHandle};

/// Starts one worker for each device: as a device has one write at a time, there is a thread for every write.
pub(crate) fn start(pipeline: &Arc<Pipeline>, devices: usize) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..devices).map(|i| start_one(pipeline, i)).collect()
}

/// Starts the worker that the device at place `i` adds.
pub(crate) fn start_one(pipeline: &Arc<Pipeline>, i: usize) -> std::io::Result<JoinHandle<()>> {
    let pipeline = Arc::clone(pipeline);
    thread::spawn(&format!("firn-log-{i}"), move || work(&pipeline))
}

/// Asks the workers to end.
pub(crate) fn stop(pipeline: &Pipeline) {
    pipeline.flight.lock().stopping = true;
    pipeline.work.notify_all();
}

fn work(pipeline: &Pipeline) {
    // While this worker watches for the log to fall idle: requests written when its last sleep began.
    let mut watched: Option<u64> = None;
    loop {
        let mut flight = pipeline.flight.lock();
        flight.summoned = false;
        // What was handed over is performed even so: somebody waits for it.
        if flight.stopping && flight.jobs.is_empty() {
            return;
        }
        if let Some(job) = pipeline.next_job(&mut flight) {
            drop(flight);
            pipeline.run_guarded(job);
            continue;
        }
        if pipeline.is_stuck(&flight) {
            let error = pipeline.dead_end(&flight, flight.covered);
            drop(flight);
            pipeline.fail(error);
            continue;
        }
        // It may have been woken for a late request that cannot be written again: free devices take new log then.
        let mut list = std::mem::take(&mut flight.scratch);
        if pipeline.is_contended(&mut flight) && !pipeline.workers_lead(&flight) {
            flight.call_leader(&mut list);
        }
        if !list.is_empty() {
            pipeline.release(flight, list);
            continue;
        }
        flight.scratch = list;
        if flight.watch == Watch::Called {
            flight.watch = Watch::Held;
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
            // Nothing was written for the whole time. If no seal can be written now, look again later.
            drop(flight);
            if !pipeline.write_seal() {
                // A seal says that *all* log is durable. What was appended since and nobody waits for, as
                // background work does, would keep it away, and with it the proof of the last commit.
                pipeline.request_flush(pipeline.end());
            }
        }
    }
}
