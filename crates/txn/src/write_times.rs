//! What durable writes of shadows take, as first expected and as measured since.
//!
//! A straight line over the bytes of a write, fitted to the last measurements and to the
//! expectation, which counts as some of them. A measurement counts as at most [`TIMES_MOST`] times
//! what was expected of it: a device's spike is forgotten soon, and one that has become slower is
//! known after some writes. Each transaction that asks also takes weight from what was measured:
//! where shadows seemed too dear, they are tried again some hundred transactions later.

use firndb_base::sync::Mutex;
use std::time::Duration;

/// Measurements that each end of the expectation counts as.
const EXPECTATION: f64 = 1.0;
/// The part of its weight that each measurement keeps when another one comes.
const KEPT_WITH_WRITE: f64 = 1.0 - 1.0 / 32.0;
/// The same, when a transaction asks.
const KEPT_WITH_QUESTION: f64 = 1.0 - 1.0 / 512.0;
/// A write counts as at most this many times what was expected of it.
const TIMES_MOST: f64 = 4.0;
/// Bytes at the two ends of the expectation.
const ENDS: [f64; 2] = [4096.0, 262_144.0];

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
    measured: Mutex<Sums>,
}

/// Weighted sums over points (bytes, nanoseconds).
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn scale(&mut self, factor: f64) {
        for sum in [&mut self.weight, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= factor;
        }
    }

    fn add(&mut self, (x, y): (f64, f64), weight: f64) {
        self.weight += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    /// The line of least squares that rises, and begins at zero or above. There are two points with
    /// different `x`.
    fn line(self) -> Line {
        let byte = (self.weight * self.xy - self.x * self.y) / (self.weight * self.xx - self.x * self.x);
        let write = (self.y - byte * self.x) / self.weight;
        if byte < 0.0 {
            return Line { write: self.y / self.weight, byte: 0.0 };
        }
        if write < 0.0 {
            return Line { write: 0.0, byte: self.xy / self.xx };
        }
        Line { write, byte }
    }
}

impl WriteTimes {
    pub fn new(expected: Line) -> WriteTimes {
        WriteTimes { expected, measured: Mutex::default() }
    }

    /// A write of `bytes` has taken `time`.
    pub fn measured(&self, bytes: usize, time: Duration) {
        let mut sums = self.measured.lock();
        let expected = self.line_of(*sums).at(bytes as f64);
        let time = (time.as_nanos() as f64).min(TIMES_MOST * expected);
        sums.scale(KEPT_WITH_WRITE);
        sums.add((bytes as f64, time), 1.0);
    }

    /// What is known now.
    pub fn line(&self) -> Line {
        self.line_of(*self.measured.lock())
    }

    /// A transaction chooses by what is known.
    pub fn asked(&self) {
        self.measured.lock().scale(KEPT_WITH_QUESTION);
    }

    fn line_of(&self, mut sums: Sums) -> Line {
        ENDS.into_iter().for_each(|end| sums.add((end, self.expected.at(end)), EXPECTATION));
        sums.line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Line = Line { write: 100_000.0, byte: 2.0 };

    fn close(line: Line, write: f64, byte: f64) -> bool {
        (line.write / write - 1.0).abs() < 0.1 && (line.byte / byte - 1.0).abs() < 0.1
    }

    #[test]
    fn the_expectation_holds_until_writes_say_otherwise() {
        let times = WriteTimes::new(EXPECTED);
        assert!(close(times.line(), 100_000.0, 2.0));
        let real = Line { write: 900_000.0, byte: 9.0 };
        for write in 0..200 {
            let bytes = 4096 << (write % 7);
            times.measured(bytes, Duration::from_nanos(real.at(bytes as f64) as u64));
        }
        let learned = times.line();
        assert!(learned.write > 700_000.0 && learned.write < 1_000_000.0, "{learned:?}");
        assert!(learned.byte > 6.0 && learned.byte < 10.0, "{learned:?}");
        (0..5000).for_each(|_| times.asked());
        assert!(close(times.line(), 100_000.0, 2.0), "nothing was measured for long: it may be wrong now");
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
    fn whatever_is_measured_gives_a_line_that_rises_from_zero_or_above() {
        for (small, large) in [(1, 1_000_000), (1_000_000, 1), (0, 0), (u64::MAX, u64::MAX)] {
            let times = WriteTimes::new(EXPECTED);
            for _ in 0..100 {
                times.measured(4096, Duration::from_nanos(small));
                times.measured(1 << 20, Duration::from_nanos(large));
                let line = times.line();
                assert!(line.write >= 0.0 && line.byte >= 0.0 && line.at(1e6).is_finite(), "{line:?}");
            }
        }
    }
}
