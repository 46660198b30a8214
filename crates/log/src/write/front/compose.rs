//! Composing requests and seals from the log buffer.

use crate::block::{BLOCK, BlockHeader, FLAG_SEAL, HEADER, PAYLOAD, base};
use crate::record::{FRAME, Frame};
use crate::write::front::{Composed, Front, Requested};
use crate::write::in_flight::slot::FreeDevice;
use firndb_base::Lsn;

impl Front {
    /// Composes the next request for the device `free`. Returns `None` if no log waits or the
    /// device has no free space. `durable` is the LSN that all blocks will record as durable.
    pub fn compose(&mut self, durable: Lsn, free: &mut FreeDevice) -> Option<(Composed, Requested)> {
        if self.layout.is_some() {
            return self.compose_part(durable, free);
        }
        let composed = self.compose_up_to(Lsn::MAX, durable, free)?;
        Some((composed, self.requested_state()))
    }

    /// What requests have taken.
    pub fn requested_state(&self) -> Requested {
        Requested { end: self.requested, boundary: self.requested_boundary, lane: None }
    }

    /// As `compose`, for a request that ends at `limit` at the latest.
    pub fn compose_up_to(&mut self, limit: Lsn, durable: Lsn, free: &mut FreeDevice) -> Option<Composed> {
        let (from, target) = (self.requested, self.end);
        if from >= target {
            return None;
        }
        let (reached, offset, len) = self.fill(base(from), target.min(limit), durable, free, |end| end)?;
        self.take(reached, target);
        if self.copies == 1 {
            // With several copies, the caller updates it once all are placed.
            self.update_free();
            self.check_in_debug();
        }
        Some(Composed { offset, len, rest: None, from, boundary: self.requested_boundary })
    }

    /// Records that a request took the log before `reached`, out of that before the group boundary
    /// `target`.
    pub(super) fn take(&mut self, reached: Lsn, target: Lsn) {
        self.requested = reached;
        if reached == target {
            (self.next_record, self.next_is_boundary, self.requested_boundary) = (target, true, target);
        } else {
            assert!(reached == base(reached), "a request is cut between blocks only");
            self.walk_to(reached);
        }
    }

    /// Writes units of blocks from the one at `lsn` up to `target` into the device's buffer, with
    /// section headers where sections begin. The block behind one that ends at `end` is that of
    /// `following(end)`. Returns the LSN reached, the offset on the device, and the length.
    pub fn fill(
        &mut self,
        mut lsn: Lsn,
        target: Lsn,
        durable: Lsn,
        free: &mut FreeDevice,
        following: impl Fn(Lsn) -> Lsn,
    ) -> Option<(Lsn, u64, usize)> {
        let (unit, epoch, owner) = (self.setup.unit as usize, self.setup.epoch, free.owner);
        let space = &mut self.spaces[free.device];
        let buf = &mut free.buf[..];
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
                offset.get_or_insert(space.write_header(epoch, owner, lsn, &mut buf[len..len + unit]));
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
                lsn = following(end);
            }
            space.take_unit(first, end);
            len += unit;
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
    pub fn compose_seal(&mut self, free: &mut FreeDevice) -> Option<Composed> {
        let (unit, epoch, lsn) = (self.setup.unit as usize, self.setup.epoch, base(self.end));
        let space = &mut self.spaces[free.device];
        if self.requested < self.end || space.free_bytes() < 4 * self.setup.unit {
            return None;
        }
        self.layout.iter_mut().for_each(|layout| layout.sealed());
        let (mut offset, mut len) = (None, 0);
        if space.is_section_full() {
            if !space.has_free_section() {
                return None;
            }
            offset = Some(space.write_header(epoch, free.owner, lsn, &mut free.buf[..unit]));
            len = unit;
        }
        let offset = offset.unwrap_or_else(|| space.offset());
        let out = &mut free.buf[len..len + unit];
        out.fill(0);
        let fill = self.end.since(lsn) as usize;
        BlockHeader { epoch, flags: FLAG_SEAL, fill: fill as u16, lsn, durable: self.end }
            .encode(free.owner, &mut out[..BLOCK]);
        self.ring.get(lsn, &mut out[HEADER..HEADER + fill]);
        space.take_unit(lsn, self.end);
        self.update_free();
        Some(Composed { offset, len: len + unit, rest: None, from: self.end, boundary: self.end })
    }
}
