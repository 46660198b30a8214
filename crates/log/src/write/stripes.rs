//! Round-robin striping (3.3): the device to which a block belongs, and the progress of each
//! device.
//!
//! Blocks are numbered from the stream's begin. `blocks` of them make a stripe unit, and unit `u`
//! belongs to device `u mod n`: its *lane*. A request takes blocks of one lane only. So a flush
//! becomes a request for each lane that it touches (*splitting*), and a free device idles while all
//! log that waits belongs to others (*skipping*).
//!
//! A lane's *cursor* is the first byte of the lane that no request has taken; it always lies in one
//! of the lane's blocks. All log before the least cursor is requested. Durability follows the same
//! rule.
//!
//! Space. No device can write for another, so the argument of `front` holds for each lane by
//! itself: the blocks of the lane that admitted log touches, with planned ranges counted range by
//! range, fit on its device.

use crate::block::{BLOCK, PAYLOAD, base};
use firndb_base::Lsn;
use std::collections::VecDeque;

/// Which device owns which blocks. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Blocks of a stripe unit.
    blocks: u64,
    lanes: u64,
}

impl Stripes {
    pub fn new(unit_bytes: u32, lanes: usize) -> Stripes {
        Stripes { blocks: u64::from(unit_bytes) / BLOCK as u64, lanes: lanes as u64 }
    }

    fn lane(&self, block: u64) -> u64 {
        block / self.blocks % self.lanes
    }

    /// The lane's first byte at or after `lsn`.
    pub fn at_or_after(&self, lane: usize, lsn: Lsn) -> Lsn {
        let block = lsn.0 / PAYLOAD as u64;
        let ahead = (lane as u64 + self.lanes - self.lane(block)) % self.lanes;
        if ahead == 0 {
            return lsn;
        }
        Lsn((block / self.blocks + ahead) * self.blocks * PAYLOAD as u64)
    }

    /// Blocks of the lane among those that the bytes from `from` up to `to` touch.
    pub fn count(&self, lane: usize, from: Lsn, to: Lsn) -> u64 {
        if from >= to {
            return 0;
        }
        let before = |block: u64| {
            let round = self.blocks * self.lanes;
            let within = (block % round).saturating_sub(lane as u64 * self.blocks).min(self.blocks);
            block / round * self.blocks + within
        };
        before(to.0.div_ceil(PAYLOAD as u64)) - before(base(from).0 / PAYLOAD as u64)
    }
}

/// Group boundaries ahead, ascending, and the last one passed.
#[derive(Debug)]
struct Boundaries {
    passed: Lsn,
    ahead: VecDeque<Lsn>,
}

impl Boundaries {
    fn new(start: Lsn) -> Boundaries {
        Boundaries { passed: start, ahead: VecDeque::new() }
    }

    fn add(&mut self, boundary: Lsn) {
        if let Err(place) = self.ahead.binary_search(&boundary)
            && boundary > self.passed
        {
            self.ahead.insert(place, boundary);
        }
    }

    /// Passes all boundaries at or before `lsn`. Returns the last, if there was one.
    fn pass(&mut self, lsn: Lsn) -> Option<Lsn> {
        let before = self.passed;
        while self.ahead.front().is_some_and(|&boundary| boundary <= lsn) {
            self.passed = self.ahead.pop_front().expect("checked above");
        }
        (self.passed > before).then_some(self.passed)
    }
}

/// The requested part of each lane. The front lock protects it.
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
        let cursors = (0..stripes.lanes as usize).map(|lane| stripes.at_or_after(lane, start)).collect();
        Lanes {
            stripes,
            unit,
            cursors,
            plan_costs: vec![0; stripes.lanes as usize],
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

/// The written part of each lane. The flight lock protects it.
#[derive(Debug)]
pub(crate) struct LanesWritten {
    /// By lane: all of the lane before this LSN is durable.
    durable: Vec<Lsn>,
    /// By lane: the cursor once the request in flight has completed.
    in_flight: Vec<Option<Lsn>>,
    boundaries: Boundaries,
}

impl LanesWritten {
    pub fn new(stripes: Stripes, start: Lsn) -> LanesWritten {
        let lanes = stripes.lanes as usize;
        LanesWritten {
            durable: (0..lanes).map(|lane| stripes.at_or_after(lane, start)).collect(),
            in_flight: vec![None; lanes],
            boundaries: Boundaries::new(start),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.in_flight.iter().any(Option::is_some)
    }

    /// Records that the lane's device writes log up to `cursor`, out of the log before the group
    /// boundary `target`.
    pub fn begin(&mut self, lane: usize, cursor: Lsn, target: Lsn) {
        assert!(self.in_flight[lane].is_none(), "a device has one write at a time");
        assert!(cursor >= self.durable[lane], "a lane goes forward");
        self.in_flight[lane] = Some(cursor);
        self.boundaries.add(target);
    }

    /// Records that the lane's write has completed. Returns the new end of the durable log, if it
    /// moved.
    pub fn complete(&mut self, lane: usize) -> Option<Lsn> {
        self.durable[lane] = self.in_flight[lane].take()?;
        self.boundaries.pass(self.durable.iter().copied().min()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAYLOAD as u64;

    #[test]
    fn blocks_go_round_by_stripe_units() {
        // Stripe unit in bytes, lanes, lane, LSN in payloads, the lane's first byte at or after it
        // in payloads.
        let table: [(u32, usize, usize, f64, f64); 12] = [
            (512, 2, 0, 0.0, 0.0),
            (512, 2, 1, 0.0, 1.0),
            (512, 2, 0, 0.5, 0.5),
            (512, 2, 1, 0.5, 1.0),
            (512, 2, 0, 1.0, 2.0),
            (512, 1, 0, 7.25, 7.25),
            (2048, 2, 0, 3.75, 3.75),
            (2048, 2, 0, 4.0, 8.0),
            (2048, 2, 1, 3.75, 4.0),
            (2048, 2, 1, 9.0, 12.0),
            (1024, 3, 2, 0.0, 4.0),
            (1024, 3, 0, 5.5, 6.0),
        ];
        for (unit_bytes, lanes, lane, lsn, expected) in table {
            let stripes = Stripes::new(unit_bytes, lanes);
            let at = |blocks: f64| Lsn((blocks * P as f64) as u64);
            assert_eq!(stripes.at_or_after(lane, at(lsn)), at(expected), "{unit_bytes} {lanes} {lane} {lsn}");
        }
    }

    #[test]
    fn every_block_is_counted_in_one_lane() {
        for (unit_bytes, lanes) in [(512, 1), (512, 2), (1536, 3), (4096, 4)] {
            let stripes = Stripes::new(unit_bytes, lanes);
            for from in (0..30 * P).step_by(211) {
                for to in (from + 1..40 * P).step_by(353) {
                    let counted = |lane: usize| {
                        let blocks = (from / P..to.div_ceil(P)).filter(|&b| stripes.lane(b) == lane as u64);
                        blocks.count() as u64
                    };
                    for lane in 0..lanes {
                        assert_eq!(stripes.count(lane, Lsn(from), Lsn(to)), counted(lane));
                    }
                }
            }
        }
    }

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

    #[test]
    fn a_lane_that_is_behind_holds_up_only_what_lies_in_it() {
        let stripes = Stripes::new(512, 2);
        let mut written = LanesWritten::new(stripes, Lsn(0));
        written.begin(0, Lsn(2 * P), Lsn(P)); // block 0
        written.begin(1, Lsn(3 * P), Lsn(2 * P)); // block 1
        assert_eq!(
            written.complete(0),
            Some(Lsn(P)),
            "the group in block 0 is durable, whatever block 1 does"
        );
        written.begin(0, Lsn(4 * P), Lsn(3 * P)); // block 2
        assert_eq!(written.complete(0), None);
        assert_eq!(written.complete(1), Some(Lsn(3 * P)));
    }
}
