//! The usual latency of a write on a device, by its size, and the limit beyond which it counts as
//! an outlier (3.4).
//!
//! Learned online: each size class (powers of two of blocks) keeps a histogram of the latencies
//! seen, which decays by halving, and its median is the expected latency of a write of that size.
//! The median does not move when a few writes take a thousand times as long; an average would. On a
//! device with even latencies a write is overdue sooner: the 98th percentile is a better measure
//! there than a multiple of the median. A class with too few samples borrows from its neighbours; a
//! table from a device profile, if one was given, is used until the device has been measured.
//!
//! Pure: no clock, no I/O.

use crate::block::BLOCK;
use std::time::Duration;

/// Size classes: class i holds requests of 2^i blocks and up to twice as many less one; the last
/// holds all larger ones.
pub(crate) const CLASSES: usize = 16;
/// Writes of a class before its median counts.
const KNOWN: u32 = 8;
/// Writes of a class before its 98th percentile counts.
const KNOWN_WELL: u32 = 64;
/// Writes of a class after which all its counts are halved: a write four times as far back weighs a
/// sixteenth.
const HALVED_AT: u32 = 512;
/// Steps of the histogram in an octave: 9 % to 12 % wide each.
const STEPS: u64 = 8;
/// From 2 µs to 9 minutes; latencies outside count at the ends.
const OCTAVES: u64 = 28;
/// Presumed nanoseconds per byte of a device of which nothing is known (5 MB/s), so that its first
/// long requests are not taken for stalls.
const NANOSECONDS_A_BYTE: u64 = 200;
/// Nanoseconds of a histogram's unit, as a shift; the steps begin at eight units.
const UNIT_SHIFT: u32 = 8;

/// The size class of a request of `blocks` blocks.
pub(crate) fn class_of(blocks: usize) -> usize {
    (blocks.max(1).ilog2() as usize).min(CLASSES - 1)
}

/// Latencies of one size class.
#[derive(Clone, Debug)]
struct Histogram {
    counts: Vec<u16>,
    total: u32,
    median: Duration,
    /// The 98th percentile; zero until enough writes were seen.
    high: Duration,
}

impl Histogram {
    fn new() -> Histogram {
        Histogram {
            counts: vec![0; (STEPS * OCTAVES) as usize],
            total: 0,
            median: Duration::ZERO,
            high: Duration::ZERO,
        }
    }

    fn step_of(latency: Duration) -> usize {
        let units = (u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX) >> UNIT_SHIFT).max(STEPS);
        let octave = units.ilog2() - STEPS.ilog2();
        let step = u64::from(octave) * STEPS + (units >> octave) - STEPS;
        step.min(STEPS * OCTAVES - 1) as usize
    }

    /// The latency in the middle of a step.
    fn value_of(step: usize) -> Duration {
        let (octave, within) = (step as u64 / STEPS, step as u64 % STEPS);
        let doubled = 2 * (STEPS + within) + 1;
        Duration::from_nanos((doubled << octave << UNIT_SHIFT) / 2)
    }

    fn record(&mut self, latency: Duration) {
        self.counts[Histogram::step_of(latency)] += 1;
        self.total += 1;
        if self.total >= HALVED_AT {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|&count| u32::from(count)).sum();
        }
        // With few samples the median changes with each; with many hardly at all.
        if self.total < 4 * KNOWN || self.total.is_multiple_of(KNOWN) {
            self.median = self.quantile(50);
            if self.total >= KNOWN_WELL {
                self.high = self.quantile(98);
            }
        }
    }

    fn quantile(&self, percent: u32) -> Duration {
        let wanted = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (step, &count) in self.counts.iter().enumerate() {
            seen += u32::from(count);
            if seen >= wanted {
                return Histogram::value_of(step);
            }
        }
        Duration::ZERO
    }
}

/// Latencies of writes to one device.
#[derive(Clone, Debug)]
pub(crate) struct LatencyModel {
    /// By size class; allocated at the first write of the class.
    classes: [Option<Box<Histogram>>; CLASSES],
    /// Request bytes and the latency of a write of them, from a profile; ascending.
    table: Vec<(usize, Duration)>,
    learns: bool,
}

impl LatencyModel {
    /// A model that begins with `table` and learns if `learns`.
    pub fn new(mut table: Vec<(usize, Duration)>, learns: bool) -> LatencyModel {
        table.sort_unstable();
        LatencyModel { classes: Default::default(), table, learns }
    }

    /// Records that a write of `blocks` blocks took `latency`.
    pub fn record(&mut self, blocks: usize, latency: Duration) {
        if self.learns {
            let class = &mut self.classes[class_of(blocks)];
            class.get_or_insert_with(|| Box::new(Histogram::new())).record(latency);
        }
    }

    /// The expected latency of a write of `blocks` blocks; `None` if nothing is known.
    pub fn expected(&self, blocks: usize) -> Option<Duration> {
        let class = class_of(blocks);
        let known =
            |class: usize| self.classes[class].as_deref().filter(|h| h.total >= KNOWN).map(|h| h.median);
        if let Some(median) = known(class) {
            return Some(median);
        }
        if !self.table.is_empty() {
            return Some(self.interpolate(blocks * BLOCK));
        }
        // A larger write takes at least as long; a smaller one at least its share.
        let larger = (class + 1..CLASSES).find_map(known);
        larger.or_else(|| {
            (0..class).rev().find_map(|c| known(c).map(|median| median.saturating_mul(1 << (class - c))))
        })
    }

    /// The latency below which nearly all writes of `blocks` blocks stay, if enough were seen.
    pub fn nearly_all(&self, blocks: usize) -> Option<Duration> {
        let class = self.classes[class_of(blocks)].as_deref()?;
        Some(class.high).filter(|high| !high.is_zero())
    }

    /// From the profile's table: linear between its points and beyond the last two, constant before
    /// the first; with one point only, larger requests take longer by their bytes.
    fn interpolate(&self, bytes: usize) -> Duration {
        let next = self.table.partition_point(|&(at, _)| at < bytes);
        if next == 0 {
            return self.table[0].1;
        }
        let (high_at, high) = self.table[next.min(self.table.len() - 1)];
        let low =
            next.min(self.table.len() - 1).checked_sub(1).map_or((0, Duration::ZERO), |i| self.table[i]);
        let share = (bytes - low.0) as f64 / (high_at - low.0).max(1) as f64;
        let seconds = low.1.as_secs_f64() * (1.0 - share) + high.as_secs_f64() * share;
        Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))
    }
}

/// Latencies beyond which a write is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// An outlier (3.4), worth hiding if the device's outliers are; `None` if nothing is known of
    /// the device yet.
    pub outlier: Option<Duration>,
    /// A stall, always worth hiding.
    pub stall: Duration,
}

/// What counts as an outlier. The defaults need no knowledge of the devices.
#[derive(Clone, Debug)]
pub struct OutlierOptions {
    /// For each device (or one for all): request bytes, and the usual latency of a durable
    /// sequential write of them, from a device profile. Used until enough writes were seen; if
    /// empty, only observed latencies count.
    pub expected: Vec<Vec<(usize, Duration)>>,
    /// Whether the usual latencies are learned from the writes themselves.
    pub learn: bool,
    /// An outlier takes longer than this percentage of the usual latency (the median of recent
    /// writes; the paper takes twice the average).
    pub factor_percent: u32,
    /// Or longer than this percentage of the latency below which 98 % of the writes of its size
    /// stay, if that is less: on a device with even latencies, an outlier is detected sooner.
    pub margin_percent: u32,
    /// No shorter write is an outlier.
    pub floor: Duration,
    /// A write that exceeds the usual latency by this much, and takes at least twice as long, is a
    /// stall: it is issued again even where hiding outliers is not worth it.
    pub stall_after: Duration,
    /// On a device that is usually faster than this, and whose outliers are not worth hiding, the
    /// committing thread writes itself: queuing the write for a worker costs a thread switch each
    /// way. If such a device stalls, only the one thread inside the call is blocked. Zero always
    /// queues.
    pub direct_below: Duration,
    /// Bytes that `Hiding::Adaptive` may write again, in percent of all log bytes written; stalls
    /// are exempt.
    pub extra_bytes_percent: u32,
}

impl Default for OutlierOptions {
    fn default() -> OutlierOptions {
        OutlierOptions {
            expected: Vec::new(),
            learn: true,
            factor_percent: 200,
            margin_percent: 115,
            floor: Duration::from_micros(100),
            stall_after: Duration::from_millis(5),
            direct_below: Duration::from_micros(400),
            extra_bytes_percent: 5,
        }
    }
}

impl OutlierOptions {
    /// The limits of a write of `blocks` blocks that is expected to take `expected`, where nearly
    /// all take less than `nearly_all`.
    pub(crate) fn limits(
        &self,
        blocks: usize,
        expected: Option<Duration>,
        nearly_all: Option<Duration>,
    ) -> Limits {
        let percent = |time: Duration, percent: u32| time.saturating_mul(percent) / 100;
        let outlier = expected.map(|expected| {
            let by_median = percent(expected, self.factor_percent);
            let by_spread = nearly_all.map_or(by_median, |high| percent(high, self.margin_percent));
            by_median.min(by_spread).max(self.floor)
        });
        // At least twice the expected latency, so that slow devices are not taken for stalled ones.
        let presumed = || Duration::from_nanos((blocks * BLOCK) as u64 * NANOSECONDS_A_BYTE);
        let expected = expected.unwrap_or_else(presumed);
        let stall = expected.saturating_add(expected.max(self.stall_after));
        Limits { outlier, stall: stall.max(outlier.unwrap_or_default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    fn is_about(found: Option<Duration>, expected: Duration) -> bool {
        found.is_some_and(|f| f >= expected.mul_f64(0.92) && f <= expected.mul_f64(1.08))
    }

    #[test]
    fn the_median_is_learned_and_outliers_do_not_move_it() {
        for (usual, rare, every) in
            [(us(100), us(100_000), 5), (us(900), us(2_000), 3), (us(3), us(4000), 100)]
        {
            let mut model = LatencyModel::new(Vec::new(), true);
            assert_eq!(model.expected(8), None);
            for i in 1..2000u32 {
                model.record(8, if i % every == 0 { rare } else { usual });
                if i > 20 {
                    assert!(is_about(model.expected(8), usual), "{usual:?} {i}: {:?}", model.expected(8));
                }
            }
        }
    }

    #[test]
    fn a_device_that_became_slower_is_followed() {
        let mut model = LatencyModel::new(Vec::new(), true);
        (0..5000).for_each(|_| model.record(1, us(100)));
        let writes = (1..2000).find(|_| {
            model.record(1, us(400));
            is_about(model.expected(1), us(400))
        });
        assert!(writes.is_some_and(|count| count < 600), "{writes:?}");
    }

    #[test]
    fn sizes_not_seen_yet_borrow_from_their_neighbours() {
        let mut model = LatencyModel::new(Vec::new(), true);
        (0..20).for_each(|_| model.record(8, us(200)));
        for (blocks, expected) in [(8, 200), (15, 200), (1, 200), (16, 400), (64, 1600)] {
            assert!(is_about(model.expected(blocks), us(expected)), "{blocks}: {:?}", model.expected(blocks));
        }
        (0..20).for_each(|_| model.record(64, us(300)));
        assert!(is_about(model.expected(16), us(300)));
    }

    #[test]
    fn a_table_answers_until_the_device_has() {
        let table = vec![(4096, us(400)), (512, us(100)), (65536, us(2000))];
        let mut model = LatencyModel::new(table.clone(), true);
        for (blocks, expected) in [(1, 100), (8, 400), (128, 2000), (256, 3707), (4, 228)] {
            assert!(is_about(model.expected(blocks), us(expected)), "{blocks}: {:?}", model.expected(blocks));
        }
        (0..20).for_each(|_| model.record(8, us(50)));
        assert!(is_about(model.expected(8), us(50)) && is_about(model.expected(1), us(100)));
        let mut fixed = LatencyModel::new(table, false);
        (0..20).for_each(|_| fixed.record(8, us(50)));
        assert!(is_about(fixed.expected(8), us(400)));
    }

    #[test]
    fn limits_by_what_is_expected() {
        let lateness = OutlierOptions { margin_percent: 125, ..OutlierOptions::default() };
        let table = [
            (None, None, None, 5102),
            (Some(10), None, Some(100), 5010),
            (Some(400), None, Some(800), 5400),
            // Nearly all writes take as long as the median; or a twentieth of them take ten times
            // as long.
            (Some(400), Some(440), Some(550), 5400),
            (Some(400), Some(4000), Some(800), 5400),
            (Some(8000), None, Some(16_000), 16_000),
        ];
        for (expected, nearly_all, outlier, stall) in table {
            let limits = lateness.limits(1, expected.map(us), nearly_all.map(us));
            let stall_us = limits.stall.as_micros() as u64;
            assert_eq!((limits.outlier, stall_us), (outlier.map(us), stall), "{expected:?}");
        }
        let long = lateness.limits(256, None, None).stall;
        assert!(long > us(50_000), "128 KiB take a slow device {long:?}");
    }

    #[test]
    fn every_latency_has_a_step_near_it() {
        for exponent in 0..63 {
            let latency = Duration::from_nanos((1u64 << exponent) + (1 << exponent >> 2));
            let value = Histogram::value_of(Histogram::step_of(latency));
            if (us(3)..Duration::from_secs(500)).contains(&latency) {
                assert!(is_about(Some(value), latency), "{latency:?} {value:?}");
            }
        }
    }
}
