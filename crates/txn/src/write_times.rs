//! What durable writes of shadows take, as first expected and as measured since.
//!
//! The expectation is a line over the bytes of a write, and what was measured scales it: most
//! writes of a device are faster or slower than expected by about the same factor, and writes of
//! one usual length tell nothing of a line. A write counts as at most [`TIMES_MOST`] times what was
//! expected of it: a spike is forgotten soon, and a slower device is known after some writes.
//! Each transaction that asks also takes weight from what was measured: where shadows seemed too
//! dear, they are tried again some time later.

use firndb_base::sync::Mutex;
use std::time::Duration;

/// The part of its weight that each measurement keeps when another one comes.
const KEPT_WITH_WRITE: f64 = 1.0 - 1.0 / 32.0;
/// The same, when a transaction asks.
const KEPT_WITH_QUESTION: f64 = 1.0 - 1.0 / 512.0;
/// A write counts as at most this many times what was expected of it.
const TIMES_MOST: f64 = 4.0;

/// What a write takes, in nanoseconds, and each of its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub write: f64,
    pub byte: f64,
}

impl Line {
    fn at(self, bytes: f64) -> f64 {
        self.write + self.byte * bytes
    }
}

/// The times of one device.
#[derive(Debug)]
pub(crate) struct WriteTimes {
    expected: Line,
    /// Locked alone.
    measured: Mutex<Measured>,
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
    pub fn new(expected: Line) -> WriteTimes {
        WriteTimes { expected, measured: Mutex::default() }
    }

    /// A write of `bytes` has taken `time`.
    pub fn measured(&self, bytes: usize, time: Duration) {
        let expected = self.expected.at(bytes as f64);
        if expected <= 0.0 {
            return;
        }
        let mut measured = self.measured.lock();
        let most = TIMES_MOST * measured.factor();
        measured.forget(KEPT_WITH_WRITE);
        measured.ratios += (time.as_nanos() as f64 / expected).min(most);
        measured.weight += 1.0;
    }

    /// What is known now.
    pub fn line(&self) -> Line {
        let factor = self.measured.lock().factor();
        Line { write: factor * self.expected.write, byte: factor * self.expected.byte }
    }

    /// A transaction chooses by what is known.
    pub fn asked(&self) {
        self.measured.lock().forget(KEPT_WITH_QUESTION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Line = Line { write: 100_000.0, byte: 2.0 };

    fn close(line: Line, factor: f64) -> bool {
        let close = |is: f64, wanted: f64| (is / (factor * wanted) - 1.0).abs() < 0.1;
        close(line.write, EXPECTED.write) && close(line.byte, EXPECTED.byte)
    }

    #[test]
    fn the_expectation_holds_until_writes_say_otherwise() {
        for factor in [9.0, 0.2] {
            let times = WriteTimes::new(EXPECTED);
            assert!(close(times.line(), 1.0));
            for _ in 0..200 {
                times.measured(40_960, Duration::from_nanos((factor * EXPECTED.at(40_960.0)) as u64));
            }
            let learned = times.line().at(40_960.0) / EXPECTED.at(40_960.0);
            assert!((learned / factor - 1.0).abs() < 0.15, "{learned} for {factor}");
            (0..10_000).for_each(|_| times.asked());
            assert!(close(times.line(), 1.0), "nothing was measured for long: it may be wrong now");
        }
    }

    #[test]
    fn one_spike_counts_as_a_slow_write() {
        let times = WriteTimes::new(EXPECTED);
        for _ in 0..50 {
            times.measured(40_960, Duration::from_micros(180));
        }
        times.measured(40_960, Duration::from_secs(2));
        assert!(times.line().at(40_960.0) < 220_000.0, "{:?}", times.line());
    }

    #[test]
    fn no_measurement_makes_times_vanish_or_endless() {
        for expected in [EXPECTED, Line { write: 0.0, byte: 0.0 }] {
            for time in [0, 1, u64::MAX] {
                let times = WriteTimes::new(expected);
                for _ in 0..1000 {
                    times.measured(4096, Duration::from_nanos(time));
                    let at = times.line().at(1e6);
                    assert!(at.is_finite() && (at > 0.0 || expected.write == 0.0), "{at}");
                }
            }
        }
    }
}
