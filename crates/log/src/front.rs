//! The frontend: appending to the circular buffer, admission, and composing requests from it.
//!
//! # Why a flush never fails for space
//!
//! Let *room* be the bytes that all devices together can still take without freeing a section, section
//! headers not counted, and let *cost* of a range of log be the blocks it touches, the one that holds its
//! first byte included, times 512, rounded up to the unit. `append` accepts a group only if afterwards
//! `cost(planned) + cost(rest) <= room`, where `planned` are ranges promised as requests of their own
//! (policy `AtFlush`) and `rest` is the remaining unrequested log. This holds ever after:
//! * A request that takes all of a range uses exactly its cost, whatever device it goes to, since the
//!   unit is the same on all; and that cost leaves the left side.
//! * A request that is cut (its buffer, the ring's end or the device's room ends) ends at a full unit
//!   of full blocks, uses exactly what it wrote, and the next one starts at a block's first byte: nothing is
//!   padded or written twice. So any idle device with a unit left makes progress and wastes nothing.
//! * Planning a range does not change the sum; the block that the next range shares with it is charged to
//!   the next range when that range's first byte is admitted.
//! * A seal is written only when nothing is unrequested and takes no more than is left over.
//! * Truncation only adds room.
//! * What is promised to undoing ([`Front::reserve`]) may grow past what is left; then `Normal` is refused, and nothing
//!   else changes: it is no part of the sum.
//! * A request that is written again (`reissue`) goes to an area, which is no part of the room, or takes room that
//!   neither admitted log nor a reserve has a claim on.
//!
//! `take` of a request therefore finds a device with room, at the latest when those in flight are done.
//!
//! Invariants: `covered <= requested <= end`; `next_record >= requested`; the ring holds all bytes from
//! the first of the block of `requested` on; `pending_cost() <= room`.

mod lanes;

use crate::block::{BLOCK, BlockHeader, FLAG_SEAL, HEADER, Owner, PAYLOAD, base};
use crate::options::{Appended, LogClass};
use crate::policy::LogPolicy;
use crate::record::{BODY_MAX, FRAME, Frame, Record};
use crate::ring::Ring;
use crate::space::DeviceSpace;
use crate::stripes::{Lanes, Stripes};
use crate::{LogError, LogErrorKind};
use firn_base::sync::Arc;
use firn_base::sync::atomic::{AtomicU64, Ordering};
use firn_base::{Epoch, Lsn};
use std::collections::VecDeque;

/// What the frontend needs to know once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontSetup {
    pub epoch: Epoch,
    pub start: Lsn,
    /// Bytes.
    pub unit: u64,
    pub buffer_bytes: usize,
    pub rollback_reserve_percent: u32,
    pub system_reserve_percent: u32,
    pub oldest: Lsn,
    pub policy: LogPolicy,
}

/// The largest share of the capacity, in percent, that is kept for undoing what is open.
const UNDO_PERCENT_MAX: u32 = 50;

/// Units that even `System` leaves: for the start records of later epochs and for seals.
pub(crate) const OWN_RESERVE_UNITS: u64 = 8;

/// Everything behind the append lock.
pub(crate) struct Front {
    pub(crate) setup: FrontSetup,
    ring: Ring,
    pub(crate) spaces: Vec<DeviceSpace>,
    /// The areas for re-issued outliers; no part of the room.
    pub(crate) areas: Vec<Option<DeviceSpace>>,
    /// Whether each device may be written to.
    pub(crate) in_use: Vec<bool>,
    /// Devices that a request goes to at least, if so many are in use.
    pub(crate) copies: usize,
    /// What the devices can take, each request on as many as it goes to.
    pub(crate) room: u64,
    /// A device has failed, and the others have less room than what was admitted needs: until truncation makes some.
    pub(crate) short: bool,
    /// Under [`LogPolicy::Striped`].
    lanes: Option<Lanes>,
    /// Under [`LogPolicy::InPlace`]: first LSN of the unit written last, if log still fits in it.
    partial_unit: Option<Lsn>,
    pub(crate) capacity: u64,
    pub(crate) own_reserve: u64,
    /// Bytes of log that undoing what is open will take: see [`crate::Log::undo_promise`].
    pub(crate) promised: Arc<AtomicU64>,
    pub(crate) group_max: u64,
    pub(crate) end: Lsn,
    /// All log before it was handed to requests.
    requested: Lsn,
    /// Last group boundary at or before `requested`.
    covered: Lsn,
    /// First record that begins at or after `requested`.
    next_record: Lsn,
    /// Whether that record is the first of its group.
    next_is_boundary: bool,
    /// Ends of requests promised and not composed yet; ascending group boundaries.
    plans: VecDeque<Lsn>,
    plan_cost: u64,
    pub(crate) oldest: Lsn,
    /// Why no record is taken any more.
    refusal: Option<LogError>,
    pub records: u64,
    pub appended_bytes: u64,
    pub refused: u64,
}

/// A request that lies ready in its buffer, but for the checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composed {
    /// Place on the device.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    /// Where the ring ends inside: how many bytes go to `offset`, and where the others go.
    pub rest: Option<(usize, u64)>,
    /// First LSN that is new in it.
    pub from: Lsn,
    /// Once it and all before it are written, all log before this group boundary is durable.
    pub boundary: Lsn,
}

/// Why an append did not happen.
pub(crate) enum Refused {
    Error(LogError),
    /// The buffer is full until this LSN is requested.
    Buffer(Lsn),
}

impl Front {
    pub fn new(
        setup: FrontSetup,
        spaces: Vec<DeviceSpace>,
        areas: Vec<Option<DeviceSpace>>,
        copies: usize,
    ) -> Front {
        let lanes = spaces.len();
        let mut front = Front {
            ring: Ring::new(setup.buffer_bytes),
            in_use: vec![true; spaces.len()],
            copies,
            spaces,
            areas,
            lanes: match setup.policy {
                LogPolicy::Striped { unit_bytes } => {
                    let stripes = Stripes::new(unit_bytes, lanes);
                    Some(Lanes::new(stripes, setup.unit, setup.start))
                }
                LogPolicy::Array | LogPolicy::InPlace => None,
            },
            partial_unit: None,
            room: 0,
            short: false,
            capacity: 0,
            own_reserve: 0,
            promised: Arc::default(),
            group_max: 0,
            end: setup.start,
            requested: setup.start,
            covered: setup.start,
            next_record: setup.start,
            next_is_boundary: true,
            plans: VecDeque::new(),
            plan_cost: 0,
            oldest: setup.oldest,
            refusal: None,
            records: 0,
            appended_bytes: 0,
            refused: 0,
            setup,
        };
        front.measure();
        front
    }

    pub fn end(&self) -> Lsn {
        self.end
    }
    /// Bytes.
    pub fn unit(&self) -> u64 {
        self.setup.unit
    }
    pub fn covered(&self) -> Lsn {
        self.covered
    }
    /// All log before it was handed to requests.
    pub fn requested(&self) -> Lsn {
        self.requested
    }
    pub fn epoch(&self) -> Epoch {
        self.setup.epoch
    }
    pub fn space_mut(&mut self, device: usize) -> &mut DeviceSpace {
        &mut self.spaces[device]
    }
    pub fn area_mut(&mut self, device: usize) -> Option<&mut DeviceSpace> {
        self.areas[device].as_mut()
    }
    pub fn group_max(&self) -> u64 {
        self.group_max
    }

    /// From now on every append answers `why`; the first reason stays.
    pub fn refuse(&mut self, why: LogError) {
        self.refusal.get_or_insert(why);
    }

    fn cost(&self, from: Lsn, to: Lsn) -> u64 {
        if from >= to {
            return 0;
        }
        let blocks = to.since(base(from)).div_ceil(PAYLOAD as u64);
        (blocks * BLOCK as u64).next_multiple_of(self.setup.unit)
    }

    /// What unrequested log will take if it ends at `end`.
    pub(crate) fn cost_until(&self, end: Lsn) -> u64 {
        let rest = self.plans.back().copied().unwrap_or(self.requested);
        self.plan_cost + self.cost(rest, end)
    }

    /// What `class` leaves for others. Undoing has its share, or more if what is open may take more: what is open when
    /// somebody else holds the log can be undone without a checkpoint. Transactions may be larger than the log, so
    /// that there is an end to it, beyond which undoing needs checkpoints.
    pub(crate) fn reserve(&self, class: Option<LogClass>) -> u64 {
        let setup = &self.setup;
        let share = |percent: u32| self.capacity / 100 * u64::from(percent);
        let promised = self.promised.load(Ordering::SeqCst);
        // A quarter more, for blocks that are written again as they fill.
        let to_undo = (promised + promised / 4).min(share(UNDO_PERCENT_MAX));
        match class {
            None => 0,
            Some(LogClass::System) => self.own_reserve,
            Some(LogClass::Rollback) => self.own_reserve + share(setup.system_reserve_percent),
            Some(LogClass::Normal) => {
                let for_undo = to_undo.max(share(setup.rollback_reserve_percent));
                self.own_reserve + share(setup.system_reserve_percent) + for_undo
            }
        }
    }

    /// Appends a group, for the log's own purposes if `class` is `None`.
    pub fn append(&mut self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, Refused> {
        if let Some(why) = &self.refusal {
            return Err(Refused::Error(why.clone()));
        }
        let first = self.end;
        let mut body_bytes = 0;
        for record in records {
            body_bytes += record.body.len() as u64;
        }
        let end = first.advance(body_bytes + (FRAME * records.len()) as u64);
        self.admit(class, end, records)?;
        let mut lsn = first;
        for (i, record) in records.iter().enumerate() {
            let more = i + 1 < records.len();
            let frame = Frame { body_len: record.body.len(), more, kind: record.kind };
            self.ring.put(lsn, &frame.encode(lsn));
            self.ring.put(Lsn(lsn.0 + FRAME as u64), record.body);
            lsn = frame.end(lsn);
        }
        assert_eq!(lsn, end);
        self.end = end;
        self.records += records.len() as u64;
        self.appended_bytes += body_bytes;
        Ok(Appended { first, end })
    }

    fn admit(&mut self, class: Option<LogClass>, end: Lsn, records: &[Record<'_>]) -> Result<(), Refused> {
        let len = end.since(self.end);
        let bad = |message: String| Err(Refused::Error(LogError::new(LogErrorKind::BadArgument, message)));
        if records.is_empty() {
            return bad("a group of no records cannot be appended".to_owned());
        }
        if len > self.group_max || records.iter().any(|r| r.body.len() > BODY_MAX) {
            return bad(format!("a group of {len} bytes is over the log's limit of {}", self.group_max));
        }
        if self.left(class, end).is_none() {
            self.refused += 1;
            return Err(Refused::Error(LogError::new(
                LogErrorKind::Full,
                format!(
                    "the log has no room for {len} bytes: {} of {} bytes are in use since LSN {}; \
                     a checkpoint makes room, a larger log makes checkpoints rarer",
                    self.capacity.saturating_sub(self.room) + self.cost_until(self.end),
                    self.capacity,
                    self.oldest,
                ),
            )));
        }
        let capacity = self.ring.capacity() as u64;
        let kept = self.partial_unit.unwrap_or(Lsn::MAX).min(base(self.requested));
        if end.since(kept) > capacity {
            // The ring keeps the whole block that holds `requested`, hence the block's length on top.
            let needed = Lsn(end.0 - capacity + PAYLOAD as u64 - 1);
            return Err(Refused::Buffer(needed.min(self.end)));
        }
        Ok(())
    }

    /// Copies bytes of the stream out of the ring, which keeps them until others come to their place; false if it
    /// does not hold all of them.
    pub fn copy(&self, from: Lsn, out: &mut [u8]) -> bool {
        let oldest = self.end.0.saturating_sub(self.ring.capacity() as u64).max(self.setup.start.0);
        let held = from.0 >= oldest && from.0 + out.len() as u64 <= self.end.0;
        if held {
            self.ring.get(from, out);
        }
        held
    }

    /// Promises all log appended so far as a request of its own, unless that is so already.
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

    /// Whether a flush to `lsn` is promised by a plan or a request.
    pub fn is_planned(&self, lsn: Lsn) -> bool {
        lsn <= self.plans.back().copied().unwrap_or(self.covered)
    }

    /// Composes the next request into `buf` for device `device`; `None` if nothing waits or the device
    /// has no room. `durable` is what all blocks will say is durable.
    pub fn compose(&mut self, device: usize, owner: Owner, durable: Lsn, buf: &mut [u8]) -> Option<Composed> {
        if self.lanes.is_some() {
            return self.compose_lane(device, owner, durable, buf);
        }
        self.compose_up_to(Lsn::MAX, device, owner, durable, buf)
    }

    /// As `compose`, with a request that ends at `limit` at the latest.
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
            (self.next_record, self.next_is_boundary, self.covered) = (target, true, target);
        } else {
            assert!(reached == base(reached), "a request is cut between blocks only");
            if planned {
                self.plan_cost += self.cost(reached, target);
            }
            self.walk_to(reached);
        }
        if self.copies == 1 {
            // Else once all copies are placed.
            self.note_room();
        }
        Some(Composed { offset, len, rest: None, from, boundary: self.covered })
    }

    /// Writes units of blocks up to `target` into `buf`, section headers where sections begin. Answers how
    /// far it came, the place on the device, and the length.
    fn fill(
        &mut self,
        device: usize,
        owner: Owner,
        durable: Lsn,
        target: Lsn,
        buf: &mut [u8],
    ) -> Option<(Lsn, u64, usize)> {
        self.fill_from(self.requested, device, owner, durable, target, buf)
    }

    /// As `fill`, from any LSN on that the buffer still holds.
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
        // The last unit is left: written again elsewhere, the request may need one more section header.
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

    /// Moves `next_record` and `covered` to what a request cut at `reached` holds.
    fn walk_to(&mut self, reached: Lsn) {
        loop {
            if self.next_record > reached {
                return;
            }
            if self.next_is_boundary {
                self.covered = self.next_record;
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

    /// Composes a seal block: the last block once more, saying that all log is durable. `None` unless all
    /// log is requested and the device has room to spare. The caller knows that all log is durable.
    pub fn compose_seal(&mut self, device: usize, owner: Owner, buf: &mut [u8]) -> Option<Composed> {
        if self.requested < self.end || self.spaces[device].room_bytes() < 4 * self.setup.unit {
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
        self.note_room();
        Some(Composed { offset, len: len + unit, rest: None, from: self.end, boundary: self.end })
    }

    /// Frees what lies before `lsn`, which is durable.
    pub fn truncate(&mut self, lsn: Lsn) {
        if lsn <= self.oldest {
            return;
        }
        self.oldest = lsn;
        for space in self.spaces.iter_mut().chain(self.areas.iter_mut().flatten()) {
            space.truncate(lsn);
        }
        self.note_room();
    }
}
