//! The seam for other layouts than the log's own, the unconventional array (3.3), in which a
//! request takes all log that waits when a device is free, goes whole to that device, and is
//! written again to another device's area if it is overdue.
//!
//! The layouts that the array is compared with are in `firndb-log-comparators`. The format on the
//! devices is the same under every layout, and a log may be opened with another one than it was
//! written with.

use crate::error::LogError;
use firndb_base::Lsn;

/// Another layout than the array: [`crate::LogOptions::layout`].
pub trait LogLayout: std::fmt::Debug + Send + Sync {
    /// Checks that devices with blocks of `unit` bytes and these capacities, in bytes, support it.
    fn check(&self, unit: u64, capacities: &[u64]) -> Result<(), LogError>;
    /// Whether any device may write any log. Otherwise no device may join, leave or fail, and no
    /// write is hedged.
    fn takes_any_device(&self) -> bool;
    /// Whether a flush call reserves the log before it as a request of its own
    /// ([`Composing::plan`]).
    fn composes_at_flush(&self) -> bool;
    /// Whether an overdue request is written again to another device's main stream.
    fn hedges_in_main_stream(&self) -> bool;
    /// What requests carry; `None` if that is as in the array.
    fn composing(&self, unit: u64, devices: usize, start: Lsn) -> Option<Box<dyn Composing>>;
    /// What is durable; `None` if requests complete log in their order.
    fn completing(&self, devices: usize, start: Lsn) -> Option<Box<dyn Completing>>;
}

/// Which log requests carry. The log calls it under a lock; no call may block.
pub trait Composing: Send {
    /// Reserves the log up to `end` as a request of its own for a flush to `lsn`, unless a reserved
    /// range, or a request (these hold all groups before `boundary`), covers that.
    fn plan(&mut self, lsn: Lsn, boundary: Lsn, end: Lsn);
    /// The next request for a device, out of the log before `end`; `None` if none of it is for this
    /// device now.
    fn next(&self, device: usize, end: Lsn) -> Option<Part>;
    /// First byte of the device's log at or after `lsn`, a block's end.
    fn following(&self, device: usize, lsn: Lsn) -> Lsn;
    /// The device's request `part` was composed and ends at `reached`. Returns what is requested,
    /// if that is more than all log before `reached`.
    fn took(&mut self, device: usize, part: Part, reached: Lsn) -> Option<Lane>;
    /// A seal was written behind the last request.
    fn sealed(&mut self);
    /// First LSN that the log buffer must keep, where requests as in the array need the log from
    /// `block` on.
    fn kept(&self, block: Lsn) -> Lsn;
    /// Bytes that the log from `requested` to `end` will take.
    fn cost(&self, requested: Lsn, end: Lsn) -> u64;
    /// Bytes left once the log from `requested` to `end` and a reserve are placed; `None` if they
    /// do not fit.
    fn left(&self, requested: Lsn, end: Lsn, free: Free<'_>) -> Option<u64>;
    /// Asserts the invariants.
    fn check(&self, requested: Lsn, end: Lsn);
}

/// The log that a request may carry.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// First LSN that is new in the request.
    pub from: Lsn,
    /// Where its first block begins.
    pub first: Lsn,
    /// The device's last unit begins with the block at `first`, and is written again in place.
    pub in_place: bool,
    /// Group boundary at which it ends, unless it is cut.
    pub target: Lsn,
}

/// What requests have taken where each device has log of its own.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Where the device's log continues.
    pub cursor: Lsn,
    /// All log before this LSN is requested.
    pub requested: Lsn,
    /// The last group boundary at or before `requested`, if it moved.
    pub boundary: Option<Lsn>,
}

/// Free space, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Free<'a> {
    /// Of the log.
    pub all: u64,
    /// Of each device.
    pub each: &'a [u64],
    /// Reserved in all.
    pub reserve: u64,
    /// Least reserve on a device of which log takes a part.
    pub reserve_each: u64,
}

/// What is durable where each device has log of its own. The log calls it under a lock; no call may
/// block.
pub trait Completing: Send {
    /// The device begins to write its log up to `cursor`, out of the log before the group boundary
    /// `boundary`.
    fn begin(&mut self, device: usize, cursor: Lsn, boundary: Lsn);
    /// The device's write has completed. Returns the new end of the log on the devices, if it
    /// moved.
    fn complete(&mut self, device: usize) -> Option<Lsn>;
    /// Whether any device writes.
    fn is_busy(&self) -> bool;
}
