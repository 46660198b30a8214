//! The log's front: appending to the circular buffer, admission, and composing requests from it.
//!
//! # Why a flush never fails for space
//!
//! Let *free* be the bytes that all devices together can still take without freeing a section,
//! section headers not counted. Let the *cost* of a range of log be the blocks that it touches, the
//! one that holds its first byte included, times 512, rounded up to the unit. `append` accepts a
//! group only if afterwards `cost(unrequested log) <= free`. The inequality holds from then on:
//! * A request that takes all of it uses exactly its cost, whatever device it goes to, since the
//!   unit is the same on all; and that cost leaves the left side.
//! * A request that is cut (at the end of its buffer, of the ring, or of the device's free space)
//!   ends at a full unit of full blocks and uses exactly what it wrote, and the next request starts
//!   at a block's first byte: nothing is padded or written twice. So any idle device with a free
//!   unit makes progress and wastes nothing.
//! * A seal is written only when nothing is unrequested, and takes no more than is left over.
//! * Truncation only adds free space.
//! * What is reserved for undo ([`Front::reserve`]) may grow past what is left. Then `Normal` is
//!   refused, and nothing else changes: the reserve is no part of the sum.
//! * A request that is written again (`reissue`) goes to an area, which is no part of the free
//!   space, or takes space on which neither admitted log nor a reserve has a claim.
//!
//! Composing a request therefore finds a device with free space, at the latest when the requests in
//! flight are done.
//!
//! Invariants ([`Front::check`]): `requested_boundary <= requested <= end`; `next_record >=
//! requested`; the ring holds all bytes from the first of the block of `requested` on;
//! `cost_until(end) <= free_bytes`, unless `overcommitted`.

mod by_layout;
mod capacity;
mod check;
mod compose;

use crate::block::{BLOCK, PAYLOAD, base};
use crate::error::{LogError, LogErrorKind};
use crate::log_layout::Composing;
use crate::options::{Appended, LogClass};
use crate::record::{BODY_MAX, FRAME, Frame, Record};
use crate::write::ring::Ring;
use crate::write::space::DeviceSpace;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::{Epoch, Lsn};

/// Fixed parameters of the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontSetup {
    pub epoch: Epoch,
    pub start: Lsn,
    /// Unit in bytes.
    pub unit: u64,
    pub buffer_bytes: usize,
    pub rollback_reserve_percent: u32,
    pub system_reserve_percent: u32,
    pub oldest: Lsn,
}

/// Largest share of the capacity, in percent, that is reserved for undoing open transactions.
const UNDO_PERCENT_MAX: u32 = 50;
/// Share of the capacity, as a divisor, that may be set aside for decisions.
const DECISIONS_SHARE: u64 = 8;

/// Units that even `System` may not use: for the start records of later epochs and for seals.
pub(crate) const OWN_RESERVE_UNITS: u64 = 8;

/// Everything behind the append lock.
pub(crate) struct Front {
    setup: FrontSetup,
    ring: Ring,
    spaces: Vec<DeviceSpace>,
    /// The areas for reissued outliers; no part of `free_bytes`.
    areas: Vec<Option<DeviceSpace>>,
    /// Whether each device may be written to.
    in_use: Vec<bool>,
    /// Devices that each request goes to; all in use if they are fewer.
    copies: usize,
    /// Bytes that the devices can still take, each request counted on as many devices as it goes
    /// to.
    free_bytes: u64,
    /// A device has failed, and the others have less free space than admitted log needs, until
    /// truncation frees enough.
    overcommitted: bool,
    /// What requests carry, if not all log that waits.
    layout: Option<Box<dyn Composing>>,
    capacity: u64,
    own_reserve: u64,
    /// Bytes of log that undoing the open transactions will take: see [`crate::Log::undo_promise`].
    pub(crate) promised: Arc<AtomicU64>,
    /// Decisions still to be appended: see [`crate::Log::decisions`].
    pub(crate) decisions: Arc<AtomicU64>,
    group_max: u64,
    end: Lsn,
    /// All log before this LSN was taken by requests.
    requested: Lsn,
    /// Last group boundary at or before `requested`.
    requested_boundary: Lsn,
    /// First record that begins at or after `requested`.
    next_record: Lsn,
    /// Whether that record is the first of its group.
    next_is_boundary: bool,
    oldest: Lsn,
    /// Why no record is accepted any more.
    refusal: Option<LogError>,
    pub records: u64,
    pub appended_bytes: u64,
    pub refused: u64,
}

/// A request composed in its buffer, without checksums yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composed {
    /// Offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// Set if the request wraps around the ring's end: the bytes from this index on go to this
    /// offset.
    pub rest: Option<(usize, u64)>,
    /// First LSN that is new in the request.
    pub from: Lsn,
    /// Once this request and all before it are written, all log before this group boundary is
    /// durable.
    pub boundary: Lsn,
}

/// What requests have taken once one was composed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    /// All log before this LSN was taken by requests.
    pub end: Lsn,
    /// Last group boundary at or before `end`.
    pub boundary: Lsn,
    /// Where each device has log of its own, where the device's log continues.
    pub lane: Option<Lsn>,
}

/// Why a group was not appended.
pub(crate) enum Refused {
    Error(LogError),
    /// The buffer is full until requests have taken the log up to this LSN.
    Buffer(Lsn),
}

impl Front {
    pub fn new(
        setup: FrontSetup,
        spaces: Vec<DeviceSpace>,
        areas: Vec<Option<DeviceSpace>>,
        copies: usize,
        layout: Option<Box<dyn Composing>>,
    ) -> Front {
        let mut front = Front {
            ring: Ring::new(setup.buffer_bytes),
            in_use: vec![true; spaces.len()],
            copies,
            spaces,
            areas,
            layout,
            free_bytes: 0,
            overcommitted: false,
            capacity: 0,
            own_reserve: 0,
            promised: Arc::default(),
            decisions: Arc::default(),
            group_max: 0,
            end: setup.start,
            requested: setup.start,
            requested_boundary: setup.start,
            next_record: setup.start,
            next_is_boundary: true,
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
    /// Unit in bytes.
    pub fn unit(&self) -> u64 {
        self.setup.unit
    }
    /// All log before this LSN was taken by requests.
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

    /// From now on every append returns the error `why`; the first reason stays.
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

    /// The cost of the unrequested log if it ends at `end`.
    pub(crate) fn cost_until(&self, end: Lsn) -> u64 {
        match &self.layout {
            None => self.cost(self.requested, end),
            Some(layout) => layout.cost(self.requested, end),
        }
    }

    /// Bytes that `class` may not use. The reserve for undo is a fixed share, or more if the open
    /// transactions may need more: then they can be undone without a checkpoint even while others
    /// use the rest of the log. Transactions may be larger than the log, so the reserve is bounded;
    /// beyond the bound undo needs checkpoints. All classes but `Decision` leave what decisions
    /// will take.
    pub(crate) fn reserve(&self, class: Option<LogClass>) -> u64 {
        let setup = &self.setup;
        let share = |percent: u32| self.capacity / 100 * u64::from(percent);
        let promised = self.promised.load(Ordering::SeqCst);
        // A quarter more, for blocks that are written again as they fill.
        let to_undo = (promised + promised / 4).min(share(UNDO_PERCENT_MAX));
        let base = self.own_reserve + self.kept_for_decisions();
        match class {
            None => 0,
            Some(LogClass::Decision) => self.own_reserve,
            Some(LogClass::System) => base,
            Some(LogClass::Rollback) => base + share(setup.system_reserve_percent),
            Some(LogClass::Normal | LogClass::Removal) => {
                let for_undo = to_undo.max(share(setup.rollback_reserve_percent));
                base + share(setup.system_reserve_percent) + for_undo
            }
        }
    }

    /// Space that one decision takes at most, flushed alone: the units of the two blocks that it
    /// may touch, and a quarter more for section headers.
    fn decision_cost(&self) -> u64 {
        let units = (2 * BLOCK as u64).next_multiple_of(self.setup.unit);
        units + units / 4
    }

    /// Space set aside for decisions. Bounded, since the log may be smaller than it was when the
    /// decisions were announced.
    pub(crate) fn kept_for_decisions(&self) -> u64 {
        match self.decisions.load(Ordering::SeqCst) {
            0 => 0,
            count => (count * self.decision_cost()).min(self.capacity / DECISIONS_SHARE),
        }
    }

    /// Number of decisions for which space can be set aside.
    pub fn decisions_max(&self) -> u64 {
        self.capacity / DECISIONS_SHARE / self.decision_cost()
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
        let bad = |message: String| Err(Refused::Error(LogErrorKind::BadArgument.error(message)));
        if records.is_empty() {
            return bad("a group of no records cannot be appended".to_owned());
        }
        if len > self.group_max || records.iter().any(|r| r.body.len() > BODY_MAX) {
            return bad(format!("a group of {len} bytes is over the log's limit of {}", self.group_max));
        }
        if self.left(class, end).is_none() {
            self.refused += 1;
            return Err(Refused::Error(LogErrorKind::Full.error(format!(
                "the log has no space for {len} bytes: {} of {} bytes are in use since LSN {}; \
                     a checkpoint frees space, a larger log makes checkpoints rarer",
                self.capacity.saturating_sub(self.free_bytes) + self.cost_until(self.end),
                self.capacity,
                self.oldest,
            ))));
        }
        match self.buffer_needs(end) {
            Some(until) => Err(Refused::Buffer(until)),
            None => Ok(()),
        }
    }

    /// The LSN up to which log has to be requested before the ring can hold everything up to `end`;
    /// `None` if it can now.
    pub fn buffer_needs(&self, end: Lsn) -> Option<Lsn> {
        let capacity = self.ring.capacity() as u64;
        let kept = self.kept();
        // The ring keeps the whole block that holds `requested`, hence the block's length on top.
        let needed = || Lsn(end.0 - capacity + PAYLOAD as u64 - 1).min(self.end);
        (end.since(kept) > capacity).then(needed)
    }

    /// First LSN that the ring must hold.
    fn kept(&self) -> Lsn {
        let block = base(self.requested);
        self.layout.as_ref().map_or(block, |layout| layout.kept(block))
    }

    /// Copies bytes of the stream out of the ring, which keeps them until newer log overwrites
    /// them. Returns false if the ring does not hold all of them.
    pub fn copy(&self, from: Lsn, out: &mut [u8]) -> bool {
        let oldest = self.end.0.saturating_sub(self.ring.capacity() as u64).max(self.setup.start.0);
        let held = from.0 >= oldest && from.0 + out.len() as u64 <= self.end.0;
        if held {
            self.ring.get(from, out);
        }
        held
    }

    /// Frees the space of log before `lsn`, which is durable.
    pub fn truncate(&mut self, lsn: Lsn) {
        if lsn <= self.oldest {
            return;
        }
        self.oldest = lsn;
        for space in self.spaces.iter_mut().chain(self.areas.iter_mut().flatten()) {
            space.truncate(lsn);
        }
        self.update_free();
        self.check_in_debug();
    }
}
