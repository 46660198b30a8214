//! What requests carry: ranges that flush calls have planned, the log of one lane, and a partly
//! filled unit once more in its place.

use crate::lanes::Lanes;
use crate::stripes::Stripes;
use firndb_base::Lsn;
use firndb_log::log_layout::{Composing, Free, Lane, Part};
use firndb_log::{BLOCK, PAYLOAD};
use std::collections::VecDeque;

/// Composes requests from lanes: those of a striped log, or one that all devices share.
pub(crate) struct Composer {
    is_striped: bool,
    in_place: bool,
    /// Bytes of the log's unit.
    unit: u64,
    lanes: Lanes,
    /// Ends of the ranges reserved as requests and not composed yet; ascending group boundaries.
    plans: VecDeque<Lsn>,
    /// Written in place: first LSN of the unit written last, if log still fits in it.
    partial_unit: Option<Lsn>,
}

impl Composer {
    pub fn new(stripes: Option<Stripes>, in_place: bool, unit: u64, start: Lsn) -> Composer {
        let lanes = Lanes::new(stripes.unwrap_or(Stripes::one_lane()), unit, start);
        let (plans, is_striped) = (VecDeque::new(), stripes.is_some());
        Composer { is_striped, in_place, unit, lanes, plans, partial_unit: None }
    }

    fn lane(&self, device: usize) -> usize {
        if self.is_striped { device } else { 0 }
    }

    fn planned(&self) -> Option<Lsn> {
        self.plans.back().copied()
    }
}

impl Composing for Composer {
    fn plan(&mut self, lsn: Lsn, boundary: Lsn, end: Lsn) {
        let planned = self.planned();
        if lsn > planned.unwrap_or(boundary) && end > planned.unwrap_or(self.lanes.requested()) {
            self.lanes.plan(planned, end);
            self.plans.push_back(end);
        }
    }

    fn next(&self, device: usize, end: Lsn) -> Option<Part> {
        let from = self.lanes.cursor(self.lane(device));
        let planned = self.plans.iter().copied().find(|&end| end > from);
        let target = planned.unwrap_or(end);
        if from >= target || (planned.is_none() && !self.plans.is_empty()) {
            return None;
        }
        let first = self.partial_unit.unwrap_or(Lsn(from.0 - from.0 % PAYLOAD as u64));
        Some(Part { from, first, in_place: self.partial_unit.is_some(), target })
    }

    fn following(&self, device: usize, lsn: Lsn) -> Lsn {
        self.lanes.stripes.at_or_after(self.lane(device), lsn)
    }

    fn took(&mut self, device: usize, part: Part, reached: Lsn) -> Option<Lane> {
        let lane = self.lane(device);
        let boundary = self.lanes.take(lane, reached, part.target, !self.plans.is_empty());
        let (cursor, requested) = (self.lanes.cursor(lane), self.lanes.requested());
        while self.plans.front().is_some_and(|&end| end <= requested) {
            self.plans.pop_front();
        }
        if self.in_place {
            let in_last_unit = reached.since(part.first) % (self.unit / BLOCK as u64 * PAYLOAD as u64);
            self.partial_unit = (in_last_unit > 0).then_some(Lsn(reached.0 - in_last_unit));
        }
        self.is_striped.then_some(Lane { cursor, requested, boundary })
    }

    fn sealed(&mut self) {
        self.partial_unit = None;
    }

    fn kept(&self, block: Lsn) -> Lsn {
        self.partial_unit.unwrap_or(block).min(block)
    }

    fn cost(&self, requested: Lsn, end: Lsn) -> u64 {
        if !self.is_striped {
            return self.lanes.pending(0, self.planned(), end);
        }
        let blocks = Stripes::one_lane().count(0, self.planned().unwrap_or(requested), end);
        (blocks * BLOCK as u64).next_multiple_of(self.unit)
    }

    /// With lanes, the lane with the least left limits all of them.
    fn left(&self, requested: Lsn, end: Lsn, free: Free<'_>) -> Option<u64> {
        if !self.is_striped {
            return free.all.checked_sub(self.cost(requested, end) + free.reserve);
        }
        let count = free.each.len() as u64;
        let reserve = (free.reserve / count).max(free.reserve_each);
        let left =
            free.each.iter().enumerate().map(|(lane, bytes)| {
                bytes.checked_sub(self.lanes.pending(lane, self.planned(), end) + reserve)
            });
        let least = left.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        Some(least * count)
    }

    fn check(&self, requested: Lsn, end: Lsn) {
        let plans = || self.plans.iter();
        assert!(plans().is_sorted() && plans().all(|&plan| plan <= end), "plans ascend");
        assert!(self.is_striped || plans().all(|&plan| plan > requested));
        assert!(self.lanes.planned_cost() == 0 || !self.plans.is_empty(), "only plans have a planned cost");
        assert!(self.lanes.requested() == requested, "the log and its layout agree");
    }
}
