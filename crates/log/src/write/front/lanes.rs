//! Space accounting and composing for a striped log, where each device has a lane of its own. See
//! `stripes`.

use super::Front;
use crate::block::Owner;
use crate::options::LogClass;
use crate::write::front::Composed;
use firndb_base::Lsn;

impl Front {
    /// The LSN at which the lane of `device` continues, if the log is striped.
    pub fn lane_cursor(&self, device: usize) -> Option<Lsn> {
        self.lanes.as_ref().map(|lanes| lanes.cursor(device))
    }

    /// Bytes left once log up to `end`, and what is reserved against `class`, are placed; `None` if
    /// they do not fit. With lanes, the lane with the least left limits all of them.
    pub(crate) fn left(&self, class: Option<LogClass>, end: Lsn) -> Option<u64> {
        let reserve = self.reserve(class);
        let Some(lanes) = &self.lanes else {
            return self.free_bytes.checked_sub(self.cost_until(end) + reserve);
        };
        let count = self.spaces.len() as u64;
        // What later epochs begin with may fall into any lane.
        let each = if class.is_some() { (reserve / count).max(self.own_reserve) } else { 0 };
        let left = self.spaces.iter().enumerate().map(|(lane, space)| {
            let pending = lanes.pending(lane, self.plans.back().copied(), end);
            space.free_bytes().checked_sub(pending + each)
        });
        let least = left.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        Some(least * count)
    }

    pub(crate) fn assert_admitted_fits(&self) {
        assert!(self.overcommitted || self.left(None, self.end).is_some(), "what was admitted can be placed");
    }

    /// As `compose`, for the log that belongs to the device: from the first planned range that has
    /// some of it, or from all log.
    pub(super) fn compose_lane(
        &mut self,
        device: usize,
        owner: Owner,
        durable: Lsn,
        buf: &mut [u8],
    ) -> Option<Composed> {
        let from = self.lane_cursor(device)?;
        let planned = self.plans.iter().copied().find(|&end| end > from);
        let target = planned.unwrap_or(self.end);
        if from >= target || (planned.is_none() && !self.plans.is_empty()) {
            return None;
        }
        let (reached, offset, len) = self.fill(device, owner, durable, target, buf)?;
        let lanes = self.lanes.as_mut()?;
        if let Some(boundary) = lanes.take(device, reached, target, planned.is_some()) {
            self.requested_boundary = boundary;
        }
        self.requested = lanes.requested();
        while self.plans.front().is_some_and(|&end| end <= self.requested) {
            self.plans.pop_front();
        }
        self.update_free();
        Some(Composed { offset, len, rest: None, from, boundary: target })
    }
}
