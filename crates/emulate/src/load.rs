//! A load on a model, by the model's own clock: what a benchmark of the device would show.

use crate::model::Model;
use crate::request::Request;
use firndb_base::rng::Rng;
use firndb_profile::{Figure, Op, Pattern, Unit};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// One kind of request, again and again, with a number of them outstanding at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether the requests read or write.
    pub op: Op,
    /// Random over the whole device, over the first request's place, or else sequential from its
    /// beginning.
    pub pattern: Pattern,
    /// Size of each request.
    pub bytes: u64,
    /// Whether each write is durable when it returns; without meaning for reads.
    pub durable: bool,
    /// Requests outstanding; at least 1.
    pub depth: u32,
}

/// What a load measured; its first third, in which caches fill, is not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOutcome {
    /// Requests a second.
    pub iops: f64,
    /// Bandwidth in units of 10^6 bytes a second.
    pub mb_s: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Latency of each request counted, in order of submission.
    pub latencies_us: Vec<f64>,
}

impl Load {
    /// The load under which a figure was taken.
    #[must_use]
    pub fn of(figure: &Figure) -> Load {
        Load {
            op: figure.op,
            pattern: figure.pattern,
            bytes: figure.bytes,
            durable: figure.durable,
            depth: figure.depth,
        }
    }

    fn request(&self, offset: u64) -> Request {
        match (self.op, self.durable) {
            (Op::Read, _) => Request::read(offset, self.bytes),
            (Op::Write, true) => Request::durable_write(offset, self.bytes),
            (Op::Write, false) => Request::write(offset, self.bytes),
        }
    }

    /// Runs `requests` requests on a model that has not been used, of a device of `capacity_bytes`.
    /// Equal seeds give equal places.
    #[must_use]
    pub fn run(&self, model: &mut Model, capacity_bytes: u64, requests: usize, seed: u64) -> LoadOutcome {
        let outcome = Load::run_together(&[*self], model, capacity_bytes, requests, seed).pop();
        outcome.expect("one load has one outcome")
    }

    /// Runs the loads side by side, `requests` requests in all; the outcome of each, over the same
    /// span of time. A load that follows its own requests has a part of the device for itself.
    #[must_use]
    pub fn run_together(
        loads: &[Load],
        model: &mut Model,
        capacity_bytes: u64,
        requests: usize,
        seed: u64,
    ) -> Vec<LoadOutcome> {
        let mut rng = Rng::new(seed);
        let parts = loads.len().max(1) as u64;
        let mut clients: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
        for (index, load) in loads.iter().enumerate() {
            for _ in 0..load.depth.max(1) {
                // A nanosecond apart, so that their order is defined.
                clients.push(Reverse((Duration::from_nanos(clients.len() as u64), index)));
            }
        }
        let warm_up = requests / 3;
        let (mut began, mut last) = (Duration::ZERO, Duration::ZERO);
        let mut latencies_us: Vec<Vec<f64>> = loads.iter().map(|_| Vec::new()).collect();
        let mut submitted = vec![0u64; loads.len()];
        for i in 0..requests {
            let Some(Reverse((now, index))) = clients.pop() else { break };
            let load = &loads[index];
            let first = capacity_bytes / load.bytes / parts * index as u64;
            let places = (capacity_bytes / load.bytes / parts).max(1);
            let place = match load.pattern {
                Pattern::Random => rng.below((capacity_bytes / load.bytes).max(1)),
                Pattern::Overlapping => first,
                Pattern::Sequential | Pattern::Unwritten | Pattern::Append => {
                    first + submitted[index] % places
                }
            };
            submitted[index] += 1;
            let done = model.submit(now, &load.request(place * load.bytes));
            if i == warm_up {
                began = now;
            }
            if i >= warm_up {
                latencies_us[index].push((done - now).as_secs_f64() * 1e6);
            }
            last = now;
            clients.push(Reverse((done, index)));
        }
        let seconds = (last - began).as_secs_f64();
        let outcomes = loads.iter().zip(latencies_us);
        outcomes.map(|(load, latencies_us)| LoadOutcome::of(load, latencies_us, seconds)).collect()
    }
}

impl LoadOutcome {
    /// The outcome of requests that were submitted within `seconds`.
    fn of(load: &Load, latencies_us: Vec<f64>, seconds: f64) -> LoadOutcome {
        let counted = latencies_us.len().max(1) as f64;
        let iops = (latencies_us.len().max(1) - 1) as f64 / seconds.max(1e-9);
        LoadOutcome {
            iops,
            mb_s: iops * load.bytes as f64 / 1e6,
            mean_us: latencies_us.iter().sum::<f64>() / counted,
            latencies_us,
        }
    }

    /// The value that a figure of this unit states.
    #[must_use]
    pub fn value(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Iops => self.iops,
            Unit::MbS => self.mb_s,
            Unit::Us => self.mean_us,
        }
    }
}
