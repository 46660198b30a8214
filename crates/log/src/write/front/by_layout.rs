//! Composing and space accounting where the log has another layout than the array.

use crate::log_layout::{Composing, Free, Part};
use crate::write::front::{Composed, Front, Requested};
use crate::write::in_flight::slot::FreeDevice;
use crate::write::space::DeviceSpace;
use firndb_base::Lsn;

impl Front {
    /// Reserves all log appended so far as a request of its own, unless that is done for a flush to
    /// `lsn` already.
    pub fn plan(&mut self, lsn: Lsn) {
        if let Some(layout) = &mut self.layout {
            layout.plan(lsn, self.requested_boundary, self.end);
        }
    }

    /// As `compose`, for the log that the layout chooses.
    pub(super) fn compose_part(
        &mut self,
        durable: Lsn,
        free: &mut FreeDevice,
    ) -> Option<(Composed, Requested)> {
        let mut layout = self.layout.take()?;
        let filled = self.fill_part(&*layout, durable, free);
        let lane = filled.and_then(|(part, (reached, ..))| layout.took(free.device, part, reached));
        self.layout = Some(layout);
        let (part, (reached, offset, len)) = filled?;
        match lane {
            Some(lane) => {
                self.requested = lane.requested;
                self.requested_boundary = lane.boundary.unwrap_or(self.requested_boundary);
                // The layout finds the boundaries.
                (self.next_record, self.next_is_boundary) = (self.requested, false);
            }
            None => self.take(reached, part.target),
        }
        self.update_free();
        self.check_in_debug();
        let boundary = if lane.is_some() { part.target } else { self.requested_boundary };
        let requested = Requested { lane: lane.map(|lane| lane.cursor), ..self.requested_state() };
        Some((Composed { offset, len, rest: None, from: part.from, boundary }, requested))
    }

    fn fill_part(
        &mut self,
        layout: &dyn Composing,
        durable: Lsn,
        free: &mut FreeDevice,
    ) -> Option<(Part, (Lsn, u64, usize))> {
        let device = free.device;
        let part = layout.next(device, self.end)?;
        if part.in_place {
            self.spaces[device].step_back(part.first);
        }
        let following = |end| layout.following(device, end);
        Some((part, self.fill(part.first, part.target, durable, free, following)?))
    }

    /// Bytes left once the log up to `end`, and `reserve`, are placed; `None` if they do not fit.
    #[cold]
    pub(super) fn left_by_layout(&self, layout: &dyn Composing, reserve: u64, end: Lsn) -> Option<u64> {
        let each: Vec<u64> = self.spaces.iter().map(DeviceSpace::free_bytes).collect();
        // What later epochs begin with may fall into any device's part.
        let reserve_each = if reserve > 0 { self.own_reserve } else { 0 };
        let free = Free { all: self.free_bytes, each: &each, reserve, reserve_each };
        layout.left(self.requested, end, free)
    }
}
