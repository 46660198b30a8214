//! Space and composing where each device has a lane of its own. See `stripes`.

use super::Front;
use crate::block::Owner;
use crate::front::Composed;
use crate::options::LogClass;
use firn_base::Lsn;

impl Front {
    /// Where the lane of `device` goes on, if the log is striped.
    pub fn lane_cursor(&self, device: usize) -> Option<Lsn> {
        self.lanes.as_ref().map(|lanes| lanes.cursor(device))
    }

    /// Bytes left once log up to `end`, and what is reserved from `class`, are placed; `None` if they find no room. Of
    /// lanes, the one with the least left counts, for all of them.
    pub(crate) fn left(&self, class: Option<LogClass>, end: Lsn) -> Option<u64> {
        let reserve = self.reserve(class);
        let Some(lanes) = &self.lanes else {
            return self.room.checked_sub(self.cost_until(end) + reserve);
        };
        let count = self.spaces.len() as u64;
        // What later epochs begin with may fall into any lane.
        let each = if class.is_some() { (reserve / count).max(self.own_reserve) } else { 0 };
        let left = self.spaces.iter().enumerate().map(|(lane, space)| {
            let pending = lanes.pending(lane, self.plans.back().copied(), end);
            space.room_bytes().checked_sub(pending + each)
        });
        let least = left.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        Some(least * count)
    }

    pub(crate) fn check_room(&self) {
        assert!(self.short || self.left(None, self.end).is_some(), "what was admitted can be placed");
    }

    /// As `compose`, of what belongs to the device: the first promised range that has some of it, or all log.
    pub(super) fn compose_lane(
        &mut self,
        device: usize,
        owner: Owner,
        durable: Lsn,
        buf: &mut [u8],
    ) -> Option<Composed> {
        let from = self.lane_cursor(device)?;
        let promised = self.plans.iter().copied().find(|&end| end > from);
        let target = promised.unwrap_or(self.end);
        if from >= target || (promised.is_none() && !self.plans.is_empty()) {
            return None;
        }
        let (reached, offset, len) = self.fill(device, owner, durable, target, buf)?;
        let lanes = self.lanes.as_mut()?;
        if let Some(boundary) = lanes.take(device, reached, target, promised.is_some()) {
            self.covered = boundary;
        }
        self.requested = lanes.requested();
        while self.plans.front().is_some_and(|&end| end <= self.requested) {
            self.plans.pop_front();
        }
        self.note_room();
        Some(Composed { offset, len, rest: None, from, boundary: target })
    }
}
