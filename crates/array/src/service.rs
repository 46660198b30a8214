//! What a member takes for transfers, by their bytes, as the array measures it beside its work.
//!
//! A transfer's service is the time from its begin, or from the end of the transfer of this member
//! that ended last if that was later, to its end. For a drive that serves one transfer after
//! another this is the time that it served it, however many waited; of one that serves several at
//! once it is the time by which it kept the drive busy. Counting takes no lock.

use crate::choose::Cost;
use firndb_base::clock::Moment;
use firndb_base::sync::atomic::{AtomicU64, Ordering};

/// Transfers are counted by the power of two that their bytes reach: of 512 B, up to 1 MiB.
const SMALLEST: u32 = 9;
const SIZES: usize = 12;
/// Fewer transfers of a size say nothing.
const SAMPLES_MIN: u64 = 32;
/// Beyond this number of transfers the counts of a size are halved where they are counted, so that
/// older ones count less. Reading the counts changes nothing.
const SAMPLES_MAX: u64 = 1 << 14;

/// Transfers of about the same size.
#[derive(Debug, Default)]
struct Size {
    count: AtomicU64,
    bytes: AtomicU64,
    ns: AtomicU64,
}

impl Size {
    fn add(&self, count: u64, bytes: u64, ns: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        let now = self.count.fetch_add(count, Ordering::Relaxed) + count;
        // The thread that halves the number halves the others, too.
        let is_to_age = now > SAMPLES_MAX
            && self.count.compare_exchange(now, now / 2, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_to_age {
            for sum in [&self.bytes, &self.ns] {
                let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum / 2));
            }
        }
    }
}

/// Of one member.
#[derive(Debug, Default)]
pub(crate) struct ServiceTimes {
    /// When the last transfer ended: nanoseconds since this process's clock began.
    ended: AtomicU64,
    reads: [Size; SIZES],
    writes: [Size; SIZES],
}

/// Which transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Read,
    Write,
}

/// What was measured of transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCost {
    /// The cost of a transfer. If all had about the same size, of reads none of it depends on the
    /// bytes, and of writes all of it does.
    pub cost: Cost,
    /// Whether there were several sizes, so that both parts are measured.
    pub is_by_size: bool,
    /// Bytes of a transfer, on average.
    pub mean_bytes: f64,
    /// Microseconds of one, on average.
    pub mean_us: f64,
}

impl ServiceTimes {
    /// Counts transfers, and their bytes, that began together and have ended.
    pub(crate) fn ended(
        &self,
        transfer: Transfer,
        (began, now): (Moment, Moment),
        (count, bytes): (usize, usize),
    ) {
        let ns = self.busy_ns(began, now);
        if let Some(each) = bytes.checked_div(count) {
            let size = &self.of(transfer)[class(each)];
            size.add(count as u64, bytes as u64, ns);
        }
    }

    /// Adds a sync to the writes that it makes durable: those of the size that has most bytes.
    pub(crate) fn synced(&self, (began, now): (Moment, Moment)) {
        let ns = self.busy_ns(began, now);
        let most = self.writes.iter().max_by_key(|size| size.bytes.load(Ordering::Relaxed));
        if let Some(size) = most.filter(|size| size.count.load(Ordering::Relaxed) > 0) {
            size.ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Of the time between the two, what no transfer that ended before was charged.
    fn busy_ns(&self, began: Moment, now: Moment) -> u64 {
        let before = self.ended.fetch_max(now.as_nanos(), Ordering::Relaxed);
        now.as_nanos().saturating_sub(before.max(began.as_nanos()))
    }

    /// Another device has the member's place.
    pub(crate) fn forget(&self) {
        for size in self.reads.iter().chain(&self.writes) {
            [&size.count, &size.bytes, &size.ns].iter().for_each(|of| of.store(0, Ordering::Relaxed));
        }
    }

    fn of(&self, transfer: Transfer) -> &[Size; SIZES] {
        match transfer {
            Transfer::Read => &self.reads,
            Transfer::Write => &self.writes,
        }
    }
}

/// Adds the counts of members up: what a member of them takes.
pub(crate) fn measured<'a>(
    members: impl Iterator<Item = &'a ServiceTimes>,
    transfer: Transfer,
) -> Option<MeasuredCost> {
    let mut sizes = [(0u64, 0u64, 0u64); SIZES];
    for member in members {
        for (sum, size) in sizes.iter_mut().zip(member.of(transfer)) {
            let count = size.count.load(Ordering::Relaxed);
            let (bytes, ns) = (size.bytes.load(Ordering::Relaxed), size.ns.load(Ordering::Relaxed));
            *sum = (sum.0 + count, sum.1 + bytes, sum.2 + ns);
        }
    }
    // Count, mean bytes, and mean microseconds of each size.
    let points = sizes.iter().filter(|(count, ..)| *count >= SAMPLES_MIN);
    let points: Vec<(f64, f64, f64)> = points
        .map(|(count, bytes, ns)| {
            let count = *count as f64;
            (count, *bytes as f64 / count, *ns as f64 / count / 1000.0)
        })
        .collect();
    fit(&points, transfer)
}

/// The line through the points, by least squares; neither part of a cost is less than nothing.
fn fit(points: &[(f64, f64, f64)], transfer: Transfer) -> Option<MeasuredCost> {
    let all: f64 = points.iter().map(|(count, ..)| count).sum();
    let mean =
        |of: fn(&(f64, f64, f64)) -> f64| points.iter().map(|point| point.0 * of(point)).sum::<f64>() / all;
    let (mean_bytes, mean_us) = (mean(|point| point.1), mean(|point| point.2));
    if !(all > 0.0 && mean_us > 0.0 && mean_bytes > 0.0) {
        return None;
    }
    let (fixed, by_bytes) = (
        Cost { fixed_us: mean_us, us_per_byte: 0.0 },
        Cost { fixed_us: 0.0, us_per_byte: mean_us / mean_bytes },
    );
    let least = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let is_by_size = most >= 1.5 * least;
    let cost = match transfer {
        _ if is_by_size => {
            let spread = |of: &dyn Fn(&(f64, f64, f64)) -> f64| {
                points.iter().map(|point| point.0 * (point.1 - mean_bytes) * of(point)).sum::<f64>()
            };
            let us_per_byte = spread(&|point| point.2 - mean_us) / spread(&|point| point.1 - mean_bytes);
            match (us_per_byte, mean_us - us_per_byte * mean_bytes) {
                (..=0.0, _) => fixed,
                (_, ..=0.0) => by_bytes,
                (us_per_byte, fixed_us) => Cost { fixed_us, us_per_byte },
            }
        }
        Transfer::Read => fixed,
        Transfer::Write => by_bytes,
    };
    Some(MeasuredCost { cost, is_by_size, mean_bytes, mean_us })
}

fn class(bytes: usize) -> usize {
    (bytes.max(1).ilog2().saturating_sub(SMALLEST) as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(fixed_us: f64, us_per_byte: f64) -> Cost {
        Cost { fixed_us, us_per_byte }
    }

    fn is_near(found: Cost, expected: Cost) -> bool {
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        near(found.fixed_us, expected.fixed_us) && near(found.us_per_byte, expected.us_per_byte)
    }

    #[test]
    fn both_parts_of_a_cost_are_found_from_two_sizes() {
        let line = [(10.0, 1024.0, 20.0 + 102.4), (90.0, 4096.0, 20.0 + 409.6)];
        let found = fit(&line, Transfer::Write).unwrap();
        assert!(found.is_by_size && is_near(found.cost, cost(20.0, 0.1)), "{found:?}");
        let falling = [(10.0, 1024.0, 50.0), (10.0, 4096.0, 40.0)];
        assert_eq!(fit(&falling, Transfer::Read).unwrap().cost, cost(45.0, 0.0));
        let steep = [(10.0, 1024.0, 1.0), (10.0, 4096.0, 100.0)];
        assert!(is_near(fit(&steep, Transfer::Read).unwrap().cost, cost(0.0, 50.5 / 2560.0)));
    }

    #[test]
    fn one_size_says_only_one_part() {
        let one = [(100.0, 2048.0, 64.0)];
        let (read, write) = (fit(&one, Transfer::Read).unwrap(), fit(&one, Transfer::Write).unwrap());
        assert_eq!((read.cost, read.is_by_size), (cost(64.0, 0.0), false));
        assert_eq!((write.cost, write.is_by_size), (cost(0.0, 64.0 / 2048.0), false));
        assert_eq!(fit(&[], Transfer::Read), None);
    }

    #[test]
    fn a_transfer_that_waited_for_others_is_not_charged_their_time() {
        let times = ServiceTimes::default();
        let at = |us: u64| Moment::from_nanos(us * 1000);
        // All began at once, and end one after another.
        for number in 1..=SAMPLES_MIN {
            times.ended(Transfer::Read, (at(50), at(50 + 100 * number)), (1, 4096));
        }
        let found = || measured([&times].into_iter(), Transfer::Read).unwrap();
        assert_eq!(found().mean_us, 100.0);
        // The member was idle before the next.
        times.ended(Transfer::Read, (at(9000), at(9133)), (1, 4096));
        assert_eq!(found().mean_us, 101.0);
        // Four pages of a batch took as long as one, and their sync a while.
        let write = |at: (Moment, Moment)| times.ended(Transfer::Write, at, (4, 16384));
        (0..8).for_each(|number| write((at(10_000 + 100 * number), at(10_100 + 100 * number))));
        times.synced((at(10_800), at(11_120)));
        let found = measured([&times].into_iter(), Transfer::Write).unwrap();
        assert_eq!((found.mean_bytes, found.mean_us), (4096.0, 35.0));
        times.forget();
        assert_eq!(measured([&times].into_iter(), Transfer::Write), None);
    }

    /// Cause: the counts were halved where they were read. Effect: each status report made older
    /// transfers count less, and several at once could take more from a count than it had.
    #[test]
    fn older_transfers_count_less_and_reading_the_counts_changes_nothing() {
        let times = ServiceTimes::default();
        let mut at = 0;
        let mut transfers = |count: u64, us: u64, bytes: usize| {
            for _ in 0..count {
                let began = Moment::from_nanos(at);
                at += us * 1000;
                times.ended(Transfer::Read, (began, Moment::from_nanos(at)), (1, bytes));
            }
        };
        let found = || measured([&times].into_iter(), Transfer::Read).unwrap();
        transfers(SAMPLES_MAX, 100, 1024);
        transfers(1000, 100, 4096);
        let first = found();
        (0..20).for_each(|_| assert_eq!(found(), first));
        // The device is four times as slow from now on, and soon nothing else is known.
        transfers(4 * SAMPLES_MAX, 400, 1024);
        let second = found();
        (0..20).for_each(|_| assert_eq!(found(), second));
        assert!(second.cost.of(1024) > 380.0, "{second:?}");
        let counted = times.reads[class(1024)].count.load(Ordering::Relaxed);
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&counted), "{counted}");
    }
}
