//! A fault script at work: what happens to a request at a moment. Pure.

use crate::script::{Fault, Operation};
use firndb_base::rng::Rng;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The faults of a mount.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// A plan of these faults.
    #[must_use]
    pub fn new(faults: Vec<Fault>) -> FaultPlan {
        FaultPlan { faults }
    }

    /// When a request that arrives at `now` reaches the device: later if the device is stalled.
    #[must_use]
    pub fn starts(&self, now: Duration) -> Duration {
        let mut start = now;
        // Stalls may overlap or follow each other: continue until none holds.
        while let Some(end) = self.stalls().find(|stall| stall.contains(&start)).map(|stall| stall.end) {
            start = end;
        }
        start
    }

    /// When a request completes that began at `start` and would have completed at `end`: a stall
    /// that begins in between delays it by its length.
    #[must_use]
    pub fn ends(&self, start: Duration, end: Duration) -> Duration {
        let mut stalls: Vec<_> = self.stalls().filter(|stall| stall.start > start).collect();
        stalls.sort_by_key(|stall| stall.start);
        stalls
            .iter()
            .fold(end, |end, stall| if stall.start < end { end + (stall.end - stall.start) } else { end })
    }

    fn stalls(&self) -> impl Iterator<Item = Range<Duration>> {
        self.faults.iter().filter_map(|fault| match fault {
            Fault::Stall { length, at } if !length.is_zero() => Some(*at..*at + *length),
            _ => None,
        })
    }

    /// The delay of this request.
    pub fn spike(&self, now: Duration, rng: &mut Rng) -> Duration {
        let mut late = Duration::ZERO;
        for fault in &self.faults {
            if let Fault::Spikes { per_million, length, window } = fault
                && window.holds(now)
                && rng.below(1_000_000) < u64::from(*per_million)
            {
                late += *length;
            }
        }
        late
    }

    /// Whether a request fails with EIO. `path` is called only if a fault names a file.
    pub fn fails(
        &self,
        now: Duration,
        operation: Operation,
        range: &Range<u64>,
        path: impl Fn(&Path) -> bool,
    ) -> bool {
        self.faults.iter().any(|fault| {
            let Fault::Eio { operation: which, range: bad, file, window } = fault else { return false };
            let touches = match (operation, bad) {
                (Operation::Syncs, bad) => bad.is_none(),
                (_, Some(bad)) => range.start < bad.end && bad.start < range.end,
                (_, None) => true,
            };
            window.holds(now)
                && (*which == Operation::Any || *which == operation)
                && touches
                && file.as_deref().is_none_or(&path)
        })
    }

    /// Whether nothing can be allocated.
    #[must_use]
    pub fn full(&self, now: Duration) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Enospc { window } if window.holds(now)))
    }

    /// When the power is cut, if the script states a time.
    #[must_use]
    pub fn power_cut_at(&self) -> Option<Duration> {
        let times = self.faults.iter().filter_map(|fault| match fault {
            Fault::PowerCut { at } => *at,
            _ => None,
        });
        times.min()
    }

    /// Whether the power is cut when the file system is unmounted.
    #[must_use]
    pub fn power_cut_at_unmount(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::PowerCut { at: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::parse;

    fn plan(script: &str) -> FaultPlan {
        FaultPlan::new(parse(script).expect("a good script"))
    }
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn stalls_hold_what_arrives_and_what_is_under_way() {
        let plan = plan("stall 1s at 1s, stall 500ms at 1500ms, stall 1s at 2s");
        for (now, start) in [(0, 0), (999, 999), (1000, 3000), (1700, 3000), (2999, 3000), (3000, 3000)] {
            assert_eq!(plan.starts(MS(now)), MS(start), "{now}");
        }
        assert_eq!(plan.ends(MS(0), MS(900)), MS(900));
        let plan = FaultPlan::new(parse("stall 1s at 1s").expect("good"));
        assert_eq!(plan.ends(MS(900), MS(1100)), MS(2100));
        assert_eq!(plan.ends(MS(2000), MS(2100)), MS(2100));
    }

    #[test]
    fn eio_falls_on_what_it_names() {
        let plan = plan("eio reads 100..200 of a from 1s, eio syncs of b until 1s");
        let fails = |at, operation, range: Range<u64>, file: &str| {
            plan.fails(MS(at), operation, &range, |path| path == Path::new(file))
        };
        let table = [
            (1000, Operation::Reads, 0..101, "a", true),
            (1000, Operation::Reads, 0..100, "a", false),
            (1000, Operation::Reads, 199..300, "a", true),
            (1000, Operation::Reads, 200..300, "a", false),
            (999, Operation::Reads, 100..200, "a", false),
            (1000, Operation::Reads, 100..200, "b", false),
            (1000, Operation::Writes, 100..200, "a", false),
            (1000, Operation::Syncs, 0..0, "a", false),
            (999, Operation::Syncs, 0..0, "b", true),
            (1000, Operation::Syncs, 0..0, "b", false),
        ];
        for (at, operation, range, file, expected) in table {
            assert_eq!(
                fails(at, operation, range.clone(), file),
                expected,
                "{at} {operation:?} {range:?} {file}"
            );
        }
    }

    #[test]
    fn a_range_without_an_operation_spares_syncs() {
        let plan = plan("eio 0..1");
        assert!(plan.fails(MS(0), Operation::Writes, &(0..1), |_| true));
        assert!(!plan.fails(MS(0), Operation::Syncs, &(0..0), |_| true));
    }

    #[test]
    fn spikes_come_as_often_as_asked() {
        let (plan, mut rng) = (plan("spikes 1% of 100ms"), Rng::new(1));
        let late = (0..100_000).filter(|_| plan.spike(MS(0), &mut rng) == MS(100)).count();
        assert!((900..1100).contains(&late), "{late} of 100000");
    }

    #[test]
    fn the_first_power_cut_counts() {
        let plan = plan("power-cut at 9s, power-cut at 3s, enospc from 1s");
        assert_eq!(plan.power_cut_at(), Some(MS(3000)));
        assert!(!plan.power_cut_at_unmount() && plan.full(MS(1000)) && !plan.full(MS(999)));
    }
}
