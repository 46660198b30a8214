//! What requests have taken of each lane.
//!
//! A lane's *cursor* is the first byte of the lane that no request has taken; it always lies in one
//! of the lane's blocks. All log before the least cursor is requested. Durability follows the same
//! rule (`written.rs`).
//!
//! Space. No device can write for another, so the argument of the log's `front` holds for each lane
//! by itself: the blocks of the lane that admitted log touches, with planned ranges counted range
//! by range, fit on its device. Planning a range does not change the sum; the block that the next
//! range shares with it is charged to the next range when that range's first byte is admitted.

use crate::boundaries::Boundaries;
use crate::stripes::Stripes;
use firndb_base::Lsn;
use firndb_log::BLOCK;

/// The requested part of each lane.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub stripes: Stripes,
    unit: u64,
    cursors: Vec<Lsn>,
    /// By lane: bytes that planned ranges will take on its device.
    plan_costs: Vec<u64>,
    boundaries: Boundaries,
}

impl Lanes {
    /// Lanes from `start` on, on devices with blocks of `unit` bytes.
    pub fn new(stripes: Stripes, unit: u64, start: Lsn) -> Lanes {
        Lanes {
            stripes,
            unit,
            cursors: stripes.begin(start),
            plan_costs: vec![0; stripes.lanes()],
            boundaries: Boundaries::new(start),
        }
    }

    pub fn cursor(&self, lane: usize) -> Lsn {
        self.cursors[lane]
    }

    /// All log before this LSN is requested.
    pub fn requested(&self) -> Lsn {
        self.cursors.iter().copied().min().unwrap_or(Lsn::MAX)
    }

    fn cost(&self, lane: usize, from: Lsn, to: Lsn) -> u64 {
        (self.stripes.count(lane, from, to) * BLOCK as u64).next_multiple_of(self.unit)
    }

    /// Bytes that all unrequested log of the lane will take if the log ends at `end`; `planned` is
    /// the last planned range's end, if there is one.
    pub fn pending(&self, lane: usize, planned: Option<Lsn>, end: Lsn) -> u64 {
        let from = planned.unwrap_or(Lsn::ZERO).max(self.cursors[lane]);
        self.plan_costs[lane] + self.cost(lane, from, end)
    }

    /// Bytes that planned ranges will take.
    pub fn planned_cost(&self) -> u64 {
        self.plan_costs.iter().sum()
    }

    /// Reserves the range from `planned`, where the range before ended, to `end`.
    pub fn plan(&mut self, planned: Option<Lsn>, end: Lsn) {
        for lane in 0..self.cursors.len() {
            let from = planned.unwrap_or(Lsn::ZERO).max(self.cursors[lane]);
            self.plan_costs[lane] += self.cost(lane, from, end);
        }
        self.boundaries.add(end);
    }

    /// Records that a request took the lane's log up to `reached`, out of the log before the group
    /// boundary `target`; `planned` if that is a planned range's end. Returns the last boundary
    /// before which all log is requested, if it moved.
    pub fn take(&mut self, lane: usize, reached: Lsn, target: Lsn, planned: bool) -> Option<Lsn> {
        if planned {
            self.plan_costs[lane] -= self.cost(lane, self.cursors[lane], target);
        }
        self.cursors[lane] = self.stripes.at_or_after(lane, reached);
        if planned {
            self.plan_costs[lane] += self.cost(lane, self.cursors[lane], target);
        }
        self.boundaries.add(target);
        self.boundaries.pass(self.requested())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::written::LanesWritten;
    use firndb_log::PAYLOAD;
    use firndb_log::log_layout::Completing;

    const P: u64 = PAYLOAD as u64;

    #[test]
    fn a_request_of_three_units_is_split_between_two_devices_and_durable_with_the_later() {
        let stripes = Stripes::new(512, 2);
        let start = Lsn(0);
        let (mut lanes, mut written) = (Lanes::new(stripes, 512, start), LanesWritten::new(stripes, start));
        let end = Lsn(3 * P);
        assert_eq!((lanes.pending(0, None, end), lanes.pending(1, None, end)), (1024, 512));
        assert_eq!(lanes.take(1, Lsn(2 * P), end, false), None, "the other half is not requested");
        written.begin(1, lanes.cursor(1), end);
        assert_eq!(lanes.take(0, Lsn(3 * P), end, false), Some(end));
        written.begin(0, lanes.cursor(0), end);
        assert_eq!(written.complete(0), None);
        assert!(written.is_busy());
        assert_eq!(written.complete(1), Some(end));
        assert!(!written.is_busy());
    }

    #[test]
    fn small_requests_in_one_unit_all_wait_for_its_device() {
        let stripes = Stripes::new(64 << 10, 2);
        let mut lanes = Lanes::new(stripes, 512, Lsn(0));
        lanes.plan(None, Lsn(100));
        lanes.plan(Some(Lsn(100)), Lsn(300));
        assert_eq!(
            (lanes.pending(0, Some(Lsn(300)), Lsn(300)), lanes.pending(1, Some(Lsn(300)), Lsn(300))),
            (1024, 0)
        );
        assert!(lanes.cursor(1) >= Lsn(300), "the second device skips both");
        assert_eq!(lanes.take(0, Lsn(100), Lsn(100), true), Some(Lsn(100)));
        assert_eq!(lanes.pending(0, Some(Lsn(300)), Lsn(300)), 512);
        assert_eq!(lanes.take(0, Lsn(300), Lsn(300), true), Some(Lsn(300)));
        assert_eq!(lanes.pending(0, Some(Lsn(300)), Lsn(300)), 0);
    }
}
