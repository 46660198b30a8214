//! Composing requests and seals from the log buffer.

use crate::block::{BLOCK, BlockHeader, FLAG_SEAL, HEADER, Owner, PAYLOAD, base};
use crate::layout_policy::LogPolicy;
use crate::record::{FRAME, Frame};
use crate::write::front::{Composed, Front, Requested};
use firndb_base::Lsn;

impl Front {
    /// Reserves all log appended so far as a request of its own, unless that is done already.
    pub fn plan(&mut self) {
        let planned = self.plans.back().copied();
        let from = planned.unwrap_or(self.requested);
        if from < self.end {
            match &mut self.lanes {
                Some(lanes) => lanes.plan(planned, self.end),
                None => self.plan_cost += self.cost(from, self.end),
            }
            self.plans.push_back(self.end);
        }
    }

    /// Whether a plan or a request covers a flush to `lsn`.
    pub fn is_planned(&self, lsn: Lsn) -> bool {
        lsn <= self.plans.back().copied().unwrap_or(self.requested_boundary)
    }

    /// Composes the next request into `buf` for device `device`. Returns `None` if no log waits or
    /// the device has no free space. `durable` is the LSN that all blocks will record as durable.
    pub fn compose(
        &mut self,
        device: usize,
        owner: Owner,
        durable: Lsn,
        buf: &mut [u8],
    ) -> Option<(Composed, Requested)> {
        let composed = if self.lanes.is_some() {
            self.compose_lane(device, owner, durable, buf)?
        } else {
            self.compose_up_to(Lsn::MAX, device, owner, durable, buf)?
        };
        Some((composed, self.requested_state(device)))
    }

    /// What requests have taken, the last of them on `device`.
    pub fn requested_state(&self, device: usize) -> Requested {
        let (end, boundary) = (self.requested, self.requested_boundary);
        Requested { end, boundary, lane: self.lane_cursor(device) }
    }

    /// As `compose`, for a request that ends at `limit` at the latest.
    pub fn compose_up_to(
        &mut self,
        limit: Lsn,
        device: usize,
        owner: Owner,
        durable: Lsn,
        buf: &mut [u8],
    ) -> Option<Composed> {
        let target = self.plans.front().copied().unwrap_or(self.end);
        if self.requested >= target {
            return None;
        }
        let from = self.requested;
        let (reached, offset, len) = self.fill(device, owner, durable, target.min(limit), buf)?;
        let planned = self.plans.front().is_some();
        if planned {
            self.plan_cost -= self.cost(self.requested, target);
        }
        self.requested = reached;
        if reached == target {
            self.plans.pop_front();
            (self.next_record, self.next_is_boundary, self.requested_boundary) = (target, true, target);
        } else {
            assert!(reached == base(reached), "a request is cut between blocks only");
            if planned {
                self.plan_cost += self.cost(reached, target);
            }
            self.walk_to(reached);
        }
        if self.copies == 1 {
            // With several copies, the caller updates it once all are placed.
            self.update_free();
            self.check_in_debug();
        }
        Some(Composed { offset, len, rest: None, from, boundary: self.requested_boundary })
    }

    /// Writes units of blocks up to `target` into `buf`, with section headers where sections begin.
    /// Returns the LSN reached, the offset on the device, and the length.
    pub(super) fn fill(
        &mut self,
        device: usize,
        owner: Owner,
        durable: Lsn,
        target: Lsn,
        buf: &mut [u8],
    ) -> Option<(Lsn, u64, usize)> {
        self.fill_from(self.requested, device, owner, durable, target, buf)
    }

    /// As `fill`, from any LSN that the buffer still holds.
    pub fn fill_from(
        &mut self,
        from: Lsn,
        device: usize,
        owner: Owner,
        durable: Lsn,
        target: Lsn,
        buf: &mut [u8],
    ) -> Option<(Lsn, u64, usize)> {
        let unit = self.setup.unit as usize;
        let epoch = self.setup.epoch;
        let mut lsn = base(self.lane_cursor(device).unwrap_or(from));
        let space = &mut self.spaces[device];
        if let Some(first) = self.partial_unit.take() {
            space.step_back(first);
            lsn = first;
        }
        // The buffer's last unit stays empty: if the request is issued again elsewhere, it may need
        // one more section header.
        let buf_len = buf.len() - unit;
        let (mut offset, mut len) = (None, 0);
        while lsn < target {
            let section_full = space.is_section_full();
            let needed = if section_full { 2 * unit } else { unit };
            let apart = section_full && len > 0 && space.wraps_next();
            if len + needed > buf_len || apart || (section_full && !space.has_free_section()) {
                break;
            }
            if section_full {
                let header = space.begin_section(epoch, lsn);
                let out = &mut buf[len..len + unit];
                out.fill(0);
                header.encode(owner, &mut out[..BLOCK]);
                offset.get_or_insert(space.offset() - unit as u64);
                len += unit;
            }
            offset.get_or_insert(space.offset());
            let (first, mut end) = (lsn, lsn);
            for block in buf[len..len + unit].chunks_exact_mut(BLOCK) {
                let fill = target.since(lsn).min(PAYLOAD as u64);
                if fill == 0 {
                    block.fill(0);
                    continue;
                }
                BlockHeader { epoch, flags: 0, fill: fill as u16, lsn, durable }.encode(owner, block);
                let (data, rest) = block[HEADER..].split_at_mut(fill as usize);
                self.ring.get(lsn, data);
                rest.fill(0);
                end = lsn.advance(fill);
                lsn = self.lanes.as_ref().map_or(end, |lanes| lanes.stripes.at_or_after(device, end));
            }
            space.take_unit(first, end);
            len += unit;
            if self.setup.policy == LogPolicy::InPlace {
                let full = end.since(first) == (unit / BLOCK * PAYLOAD) as u64;
                self.partial_unit = (!full).then_some(first);
            }
        }
        offset.map(|offset| (lsn, offset, len))
    }

    /// Moves `next_record` and `requested_boundary` to what a request cut at `reached` holds.
    fn walk_to(&mut self, reached: Lsn) {
        loop {
            if self.next_record > reached {
                return;
            }
            if self.next_is_boundary {
                self.requested_boundary = self.next_record;
            }
            if self.next_record == reached {
                return;
            }
            let mut bytes = [0; FRAME];
            self.ring.get(self.next_record, &mut bytes);
            let frame = Frame::decode(self.next_record, bytes).expect("the buffer holds what append wrote");
            self.next_record = frame.end(self.next_record);
            self.next_is_boundary = !frame.more;
        }
    }

    /// Composes a seal block: the last block once more, which states that all log is durable.
    /// Returns `None` unless all log is requested and the device has space to spare. The caller has
    /// checked that all log is durable.
    pub fn compose_seal(&mut self, device: usize, owner: Owner, buf: &mut [u8]) -> Option<Composed> {
        if self.requested < self.end || self.spaces[device].free_bytes() < 4 * self.setup.unit {
            return None;
        }
        self.partial_unit = None;
        let unit = self.setup.unit as usize;
        let space = &mut self.spaces[device];
        let lsn = base(self.end);
        let (mut offset, mut len) = (None, 0);
        if space.is_section_full() {
            if !space.has_free_section() {
                return None;
            }
            let header = space.begin_section(self.setup.epoch, lsn);
            buf[..unit].fill(0);
            header.encode(owner, &mut buf[..BLOCK]);
            offset = Some(space.offset() - unit as u64);
            len = unit;
        }
        let offset = offset.unwrap_or_else(|| space.offset());
        let out = &mut buf[len..len + unit];
        out.fill(0);
        let fill = self.end.since(lsn) as usize;
        BlockHeader { epoch: self.setup.epoch, flags: FLAG_SEAL, fill: fill as u16, lsn, durable: self.end }
            .encode(owner, &mut out[..BLOCK]);
        self.ring.get(lsn, &mut out[HEADER..HEADER + fill]);
        space.take_unit(lsn, self.end);
        self.update_free();
        Some(Composed { offset, len: len + unit, rest: None, from: self.end, boundary: self.end })
    }
}
