//! The times of a device, each computed once.
//!
//! Those of a disk take a walk of its arm, hundreds of microseconds: as long as planning may take
//! altogether. So they are kept with the database, by works that are rounded: depths to the half
//! octave, spans to the quarter. A time depends on the rounded work alone, and not on what was
//! asked before.

use firndb_base::sync::{Arc, Mutex};
use firndb_profile::{Access, DeviceCosts, Order, Submission, Work};
use std::collections::BTreeMap;
use std::f64::consts::SQRT_2;

/// What distinguishes works: access, order, gap of ascending reads, bytes, depth, span.
type Key = (u8, u8, u64, u64, u32, u64);

/// A device as planning asks for its times.
#[derive(Debug)]
pub struct DeviceTimes {
    costs: DeviceCosts,
    /// A leaf; held while a time is computed, so that none is computed twice.
    known: Mutex<BTreeMap<Key, f64>>,
}

impl DeviceTimes {
    #[must_use]
    pub fn new(costs: DeviceCosts) -> Arc<DeviceTimes> {
        Arc::new(DeviceTimes { costs, known: Mutex::default() })
    }
    /// Of a device without a profile.
    #[must_use]
    pub fn assumed() -> Arc<DeviceTimes> {
        DeviceTimes::new(DeviceCosts::assumed())
    }
    /// Whether there was no profile.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.costs.is_assumed()
    }

    /// As [`DeviceCosts::request_us`], of the work as it is rounded.
    pub(super) fn request_us(&self, work: &Work) -> f64 {
        let order = match work.order {
            Order::Ascending { gap_bytes } => {
                Order::Ascending { gap_bytes: rounded(gap_bytes / work.bytes.max(1), 4) * work.bytes }
            }
            order => order,
        };
        let depth = rounded(u64::from(work.depth), 2) as u32;
        let span_bytes = rounded(work.span_bytes.min(SPAN_MAX).div_ceil(SPAN), 4).max(1) * SPAN;
        let work = Work { order, depth, span_bytes, ..*work };
        let mut known = self.known.lock();
        *known.entry(key(&work)).or_insert_with(|| self.costs.request_us(&work))
    }
}

/// Bytes of which a span is a multiple.
const SPAN: u64 = 1 << 20;
/// Longer than any device: estimates of joins know no bound.
const SPAN_MAX: u64 = 1 << 60;

/// Two to the power of quarters below one.
const QUARTERS: [f64; 4] = [1.0, 1.189_207_115_002_721, SQRT_2, 1.681_792_830_507_429];

/// The least number of `parts` to the octave, two or four, that is not below the number; small ones
/// as they are.
fn rounded(number: u64, parts: u32) -> u64 {
    if number <= u64::from(parts) {
        return number;
    }
    let octave = (1u64 << number.ilog2()) as f64;
    let mut steps = QUARTERS.iter().step_by(4 / parts as usize).map(|quarter| octave * quarter);
    // A number that is one of them stays.
    let up = steps.find(|step| step * (1.0 + 1e-10) >= number as f64);
    up.unwrap_or(2.0 * octave).round() as u64
}

fn key(work: &Work) -> Key {
    let access = match work.access {
        Access::Read => 0,
        Access::Write => 1,
        Access::DurableWrite => 2,
    };
    let (order, gap) = match work.order {
        Order::Random => (0, 0),
        Order::Sequential => (1, 0),
        Order::Ascending { gap_bytes } => (2, gap_bytes),
    };
    let batches = u8::from(work.submission == Submission::Batches);
    (access, order + 3 * batches, gap, work.bytes, work.depth, work.span_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_by_little() {
        for number in (0..200).chain((1..1000).map(|n| n * 7919)) {
            for (parts, most) in [(2, 1.4143), (4, 1.19)] {
                let up = rounded(number, parts);
                assert!(up + 1 >= number && up as f64 <= number as f64 * most + 1.0, "{number} {up}");
            }
        }
    }

    #[test]
    fn times_are_those_of_the_device_and_depend_on_the_work_alone() {
        let costs = DeviceCosts::assumed();
        let work = |depth, span_bytes| Work {
            access: Access::Read,
            bytes: 4096,
            order: Order::Random,
            depth,
            submission: Submission::Steady,
            span_bytes,
        };
        let (one, two) = (DeviceTimes::new(costs.clone()), DeviceTimes::new(costs.clone()));
        let asked = [work(1, 1 << 30), work(5, 3 << 30), work(5, 3_150_000_000), work(64, 1 << 40)];
        let of_one: Vec<f64> = asked.iter().map(|work| one.request_us(work)).collect();
        let of_two: Vec<f64> = asked.iter().rev().map(|work| two.request_us(work)).collect();
        assert!(of_one.iter().eq(of_two.iter().rev()));
        for (work, us) in asked.iter().zip(&of_one) {
            let exact = costs.request_us(work);
            assert!((us / exact - 1.0).abs() < 0.3, "{work:?}: {us}, not {exact}");
        }
        assert!(one.known.lock().len() < asked.len(), "two of them are one when rounded");
        assert!(one.request_us(&work(1, u64::MAX)) >= one.request_us(&work(1, 1 << 40)), "no overflow");
    }
}
