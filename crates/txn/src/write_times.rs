//! What durable writes of shadows take, as first expected and as measured since.
//!
//! The expectation is a line over the bytes of a write, and what was measured scales it: most
//! writes of a device are faster or slower than expected by about the same factor, and writes of
//! one usual length tell nothing of a line. A write counts as at most [`TIMES_MOST`] times what was
//! expected of it: a spike is forgotten soon, and a slower device is known after some writes.
//! Of a write beside others the time that it would take alone is only known within limits: all of
//! what it took, if the device does them at once, and its share, if one after the other. It counts
//! as what is nearest to what is known already.
//! Each transaction that asks also takes weight from what was measured: where shadows seemed too
//! dear, they are tried again some time later.

use crate::image_choice::WriteCosts;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The part of its weight that each measurement keeps when another one comes.
const KEPT_WITH_WRITE: f64 = 1.0 - 1.0 / 32.0;
/// The same, when a transaction asks.
const KEPT_WITH_QUESTION: f64 = 1.0 - 1.0 / 512.0;
/// A write counts as at most this many times what was expected of it.
const TIMES_MOST: f64 = 4.0;

/// The times of the store's device.
#[derive(Debug)]
pub(crate) struct WriteTimes {
    expected: WriteCosts,
    /// Locked alone.
    measured: Mutex<Measured>,
    under_way: AtomicUsize,
}

/// A write under way; counted until it is dropped.
pub(crate) struct Timed<'t> {
    times: &'t WriteTimes,
    begun: Moment,
    /// Writes under way when it began, with it.
    beside: usize,
}

/// Measured over expected times: their weighted sum, and the weights'.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    ratios: f64,
    weight: f64,
}

impl Measured {
    /// What the expectation is to be multiplied by. It counts as one measurement itself.
    fn factor(self) -> f64 {
        (1.0 + self.ratios) / (1.0 + self.weight)
    }

    fn forget(&mut self, kept: f64) {
        self.ratios *= kept;
        self.weight *= kept;
    }
}

impl WriteTimes {
    pub fn new(expected: WriteCosts) -> WriteTimes {
        WriteTimes { expected, measured: Mutex::default(), under_way: AtomicUsize::new(0) }
    }

    /// A write begins.
    pub fn begin(&self) -> Timed<'_> {
        let beside = 1 + self.under_way.fetch_add(1, Ordering::Relaxed);
        Timed { times: self, begun: clock::now(), beside }
    }

    /// A write of `bytes` has taken `time`, with `under_way` writes at once, this one included.
    fn measured(&self, bytes: usize, time: Duration, under_way: usize) {
        let expected = self.expected.of_store(bytes as f64);
        if expected <= 0.0 {
            return;
        }
        let mut measured = self.measured.lock();
        let known = measured.factor();
        let most = time.as_nanos() as f64 / expected;
        let ratio = known.clamp(most / under_way as f64, most);
        measured.forget(KEPT_WITH_WRITE);
        measured.ratios += ratio.min(TIMES_MOST * known);
        measured.weight += 1.0;
    }

    /// What is known now.
    pub fn costs(&self) -> WriteCosts {
        let (factor, expected) = (self.measured.lock().factor(), self.expected);
        WriteCosts {
            store_write: factor * expected.store_write,
            store_byte: factor * expected.store_byte,
            ..expected
        }
    }

    /// A transaction chooses by what is known.
    pub fn asked(&self) {
        self.measured.lock().forget(KEPT_WITH_QUESTION);
    }
}

impl Timed<'_> {
    /// The write has ended, and all of it was done.
    pub fn measured(self, bytes: usize) {
        let at_end = self.times.under_way.load(Ordering::Relaxed);
        self.times.measured(bytes, self.begun.elapsed(), self.beside.max(at_end));
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.times.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: WriteCosts = WriteCosts { log_byte: 2.0, store_write: 100_000.0, store_byte: 2.0 };

    fn close(costs: WriteCosts, factor: f64) -> bool {
        let close = |is: f64, wanted: f64| (is / (factor * wanted) - 1.0).abs() < 0.1;
        close(costs.store_write, EXPECTED.store_write) && close(costs.store_byte, EXPECTED.store_byte)
    }

    #[test]
    fn the_expectation_holds_until_writes_say_otherwise() {
        for factor in [9.0, 0.2] {
            let times = WriteTimes::new(EXPECTED);
            assert!(close(times.costs(), 1.0));
            for _ in 0..200 {
                times.measured(
                    40_960,
                    Duration::from_nanos((factor * EXPECTED.of_store(40_960.0)) as u64),
                    1,
                );
            }
            let learned = times.costs().of_store(40_960.0) / EXPECTED.of_store(40_960.0);
            assert!((learned / factor - 1.0).abs() < 0.15, "{learned} for {factor}");
            (0..10_000).for_each(|_| times.asked());
            assert!(close(times.costs(), 1.0), "nothing was measured for long: it may be wrong now");
        }
    }

    #[test]
    fn one_spike_counts_as_a_slow_write() {
        let times = WriteTimes::new(EXPECTED);
        for _ in 0..50 {
            times.measured(40_960, Duration::from_micros(180), 1);
        }
        times.measured(40_960, Duration::from_secs(2), 1);
        assert!(times.costs().of_store(40_960.0) < 220_000.0, "{:?}", times.costs());
    }

    #[test]
    fn writes_beside_others_count_within_what_they_may_take_alone() {
        for (factor, times_of, learned) in
            [(1.0, 4.0, 1.0), (1.0, 8.0, 2.0), (1.0, 0.5, 0.5), (3.0, 2.0, 2.0)]
        {
            let times = WriteTimes::new(EXPECTED);
            let taking = |factor: f64| Duration::from_nanos((factor * EXPECTED.of_store(40_960.0)) as u64);
            (0..100).for_each(|_| times.measured(40_960, taking(factor), 1));
            (0..200).for_each(|_| times.measured(40_960, taking(times_of), 4));
            assert!(close(times.costs(), learned), "{factor}, then four of {times_of}: {:?}", times.costs());
        }
    }

    #[test]
    fn no_measurement_makes_times_vanish_or_endless() {
        for expected in [EXPECTED, WriteCosts { store_write: 0.0, store_byte: 0.0, ..EXPECTED }] {
            for time in [0, 1, u64::MAX] {
                let times = WriteTimes::new(expected);
                for _ in 0..1000 {
                    times.measured(4096, Duration::from_nanos(time), 1);
                    let at = times.costs().of_store(1e6);
                    assert!(at.is_finite() && (at > 0.0 || expected.store_write == 0.0), "{at}");
                }
            }
        }
    }
}
