//! The log's own threads: they serve `request_flush` and seal the log when it falls idle.
//!
//! They sleep otherwise: for ever while the log is sealed, else for the time after which a seal is due.

use crate::pipeline::Pipeline;
use firn_base::sync::Arc;
use firn_base::sync::thread::{self, JoinHandle};

/// Starts one worker for each device; the first one also seals.
pub(crate) fn start(pipeline: &Arc<Pipeline>) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..pipeline.devices.len())
        .map(|i| {
            let pipeline = Arc::clone(pipeline);
            thread::spawn(&format!("firn-log-{i}"), move || work(&pipeline, i == 0))
        })
        .collect()
}

/// Asks the workers to end.
pub(crate) fn stop(pipeline: &Pipeline) {
    pipeline.flight.lock().stopping = true;
    pipeline.work.notify_all();
}

fn work(pipeline: &Pipeline, seals: bool) {
    // Requests written when the last sleep began: a seal is due if there were none since.
    let mut written_before = None;
    loop {
        if pipeline.write_wanted() {
            continue;
        }
        let mut flight = pipeline.flight.lock();
        if flight.stopping {
            return;
        }
        if flight.wanted > flight.covered && flight.has_idle_device() && flight.failed.is_none() {
            continue;
        }
        let written = flight.requests_done;
        if !seals || !pipeline.is_unsealed(&flight) {
            written_before = None;
            pipeline.work.wait(&mut flight);
        } else if written_before == Some(written) {
            drop(flight);
            written_before = None;
            if !pipeline.write_seal() {
                // Not possible now: log is waiting or there is no room. Look again later.
                let mut flight = pipeline.flight.lock();
                if !flight.stopping {
                    pipeline.work.wait_for(&mut flight, pipeline.options.seal_after);
                }
            }
        } else {
            written_before = Some(written);
            pipeline.work.wait_for(&mut flight, pipeline.options.seal_after);
        }
    }
}
