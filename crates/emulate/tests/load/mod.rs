//! A load on a model, by its own clock: so many requests are kept outstanding.

#![allow(dead_code, reason = "each test binary uses a part")]

use firn_base::rng::Rng;
use firn_emulate::{Model, Request};
use firn_profile::{Op, Pattern};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What is asked, again and again.
#[derive(Clone, Copy)]
pub struct Load {
    pub op: Op,
    pub pattern: Pattern,
    pub bytes: u64,
    pub durable: bool,
}

/// What came of it, a third of the requests left out as warming up.
pub struct Outcome {
    pub iops: f64,
    pub mean_us: f64,
    pub latencies_us: Vec<f64>,
}

impl Load {
    pub fn request(&self, offset: u64) -> Request {
        match (self.op, self.durable) {
            (Op::Read, _) => Request::read(offset, self.bytes),
            (Op::Write, true) => Request::durable_write(offset, self.bytes),
            (Op::Write, false) => Request::write(offset, self.bytes),
        }
    }
}

/// Submits `requests` requests over the whole device, `depth` outstanding at any time.
pub fn closed_loop(model: &mut Model, capacity: u64, load: Load, depth: u32, requests: usize) -> Outcome {
    let mut rng = Rng::new(7);
    let slots = capacity / load.bytes;
    let mut sequential = 0;
    let mut outstanding: BinaryHeap<Reverse<Duration>> =
        (0..depth).map(|i| Reverse(Duration::from_nanos(u64::from(i)))).collect();
    let (warm, mut began, mut latencies_us) = (requests / 3, Duration::ZERO, Vec::new());
    let mut last = Duration::ZERO;
    for i in 0..requests {
        let Reverse(now) = outstanding.pop().unwrap();
        let offset = match load.pattern {
            Pattern::Random => rng.below(slots) * load.bytes,
            Pattern::Overlapping => 0,
            _ => {
                sequential += 1;
                (sequential - 1) % slots * load.bytes
            }
        };
        let done = model.submit(now, &load.request(offset));
        assert!(done >= now);
        if i == warm {
            began = now;
        }
        if i >= warm {
            latencies_us.push((done - now).as_secs_f64() * 1e6);
        }
        last = now;
        outstanding.push(Reverse(done));
    }
    let counted = latencies_us.len() as f64;
    Outcome {
        iops: (counted - 1.0) / (last - began).as_secs_f64(),
        mean_us: latencies_us.iter().sum::<f64>() / counted,
        latencies_us,
    }
}
