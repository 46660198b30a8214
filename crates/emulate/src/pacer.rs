//! A model on the engine's clock: a caller waits until the modelled device would be done.

use crate::model::Model;
use crate::request::Request;
use crate::statistics::Statistics;
use firndb_base::clock::{self, Moment};
use firndb_base::sim;
use firndb_base::sync::{Mutex, thread};
use firndb_device::{Device, InFlight, OwnedRead};
use std::time::Duration;

/// A [`Model`] that threads share, and that makes each wait for its requests.
///
/// In a simulation the clock is virtual and waiting is exact. In real time a thread sleeps until
/// [`Pacer::SPIN`] before the moment and then yields in a loop until it has come, because a sleep
/// may end some tens of microseconds late; on a busy machine it may still be late, never early.
#[derive(Debug)]
pub struct Pacer {
    /// The model's moment zero.
    start: Moment,
    /// Protects the device's state. Held while a completion is computed, never while a caller
    /// waits; no other lock is taken under it.
    model: Mutex<Model>,
}

impl Pacer {
    /// How long before the moment a thread in real time stops sleeping and starts to poll the
    /// clock.
    pub const SPIN: Duration = Duration::from_micros(60);

    /// A pacer with a model that begins now. Must be made inside the simulation that uses it.
    #[must_use]
    pub fn new(model: Model) -> Pacer {
        Pacer { start: clock::now(), model: Mutex::new(model) }
    }

    /// Submits a request now; returns the moment of its completion.
    #[must_use]
    pub fn submit(&self, request: &Request) -> Moment {
        let completion = self.model.lock().submit(clock::now().since(self.start), request);
        self.moment(completion)
    }

    /// Submits all requests now; returns the moment at which the last completes.
    #[must_use]
    pub fn submit_batch(&self, requests: &[Request]) -> Moment {
        let completions = self.model.lock().submit_batch(clock::now().since(self.start), requests);
        self.moment(completions.into_iter().max().unwrap_or_default())
    }

    /// Begins reads together: their requests are submitted now, as one batch, and the bytes are
    /// read from `inner` now; each read is complete at the model's moment. `request` gives a read's
    /// request.
    pub fn begin_reads(
        &self,
        in_flight: &mut InFlight,
        reads: &mut dyn Iterator<Item = OwnedRead>,
        request: impl Fn(&OwnedRead) -> Request,
        inner: &dyn Device,
    ) {
        let reads: Vec<OwnedRead> = reads.collect();
        let requests: Vec<Request> = reads.iter().map(request).collect();
        let ends = self.model.lock().submit_batch(clock::now().since(self.start), &requests);
        for (mut read, end) in reads.into_iter().zip(ends) {
            let outcome = inner.read(read.offset, &mut read.buf[..read.len]);
            in_flight.complete_at(self.moment(end), read, outcome);
        }
    }

    /// Blocks until `moment`.
    pub fn wait_until(&self, moment: Moment) {
        wait_until(moment);
    }

    /// See [`Model::freeze`]; `from` and `to` are counted from now.
    pub fn freeze(&self, from: Duration, to: Duration) {
        let now = clock::now().since(self.start);
        self.model.lock().freeze(now.saturating_add(from), now.saturating_add(to));
    }

    /// See [`Model::spikes`].
    pub fn spikes(&self, share: f64, time: Duration) {
        self.model.lock().spikes(share, time);
    }

    /// See [`Model::statistics`].
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.model.lock().statistics()
    }

    fn moment(&self, completion: Duration) -> Moment {
        // Model time is bounded to a quarter of the clock's range.
        self.start.after(completion).unwrap_or(self.start)
    }
}

/// Blocks until `moment`, polling the clock at the end (see [`Pacer`]).
pub(crate) fn wait_until(moment: Moment) {
    if sim::is_active() {
        return clock::sleep_until(moment);
    }
    loop {
        let left = moment.since(clock::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(Pacer::SPIN) {
            Some(sleep) if !sleep.is_zero() => clock::sleep(sleep),
            _ => thread::yield_now(),
        }
    }
}
