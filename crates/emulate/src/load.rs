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
        let mut rng = Rng::new(seed);
        let places = (capacity_bytes / self.bytes).max(1);
        // A nanosecond apart, so that their order is defined.
        let start = |i: u32| Reverse(Duration::from_nanos(u64::from(i)));
        let mut free: BinaryHeap<Reverse<Duration>> = (0..self.depth.max(1)).map(start).collect();
        let warm_up = requests / 3;
        let (mut began, mut last, mut latencies_us) = (Duration::ZERO, Duration::ZERO, Vec::new());
        for i in 0..requests {
            let Reverse(now) = free.pop().expect("every request that ends frees its slot for the next");
            let place = match self.pattern {
                Pattern::Random => rng.below(places),
                Pattern::Overlapping => 0,
                Pattern::Sequential | Pattern::Unwritten | Pattern::Append => i as u64 % places,
            };
            let done = model.submit(now, &self.request(place * self.bytes));
            if i == warm_up {
                began = now;
            }
            if i >= warm_up {
                latencies_us.push((done - now).as_secs_f64() * 1e6);
            }
            last = now;
            free.push(Reverse(done));
        }
        let counted = latencies_us.len().max(2) as f64;
        let iops = (counted - 1.0) / (last - began).as_secs_f64().max(1e-9);
        LoadOutcome {
            iops,
            mb_s: iops * self.bytes as f64 / 1e6,
            mean_us: latencies_us.iter().sum::<f64>() / counted,
            latencies_us,
        }
    }
}

impl LoadOutcome {
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
