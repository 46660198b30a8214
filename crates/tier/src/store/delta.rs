//! Deltas: a page that leaves the buffer is written as what it differs from its base image by, many
//! pages' changes on one *delta page* (Roh, Lee, Park, "Yet Another Write-Optimized DBMS Layer for
//! Flash-based Solid State Storage", incremental logging).
//!
//! A page is its *base image*, and at most one *slot* of a delta page; or, while its changes wait
//! in the write buffer, its base image and those. Each delta is complete: the buffer hands down all
//! that a page differs from its base image by, so no earlier slot is read to write the next (the
//! paper copies it), and none but the newest to read the page.
//!
//! Invariants:
//! * A delta counts from the image that the page's map entry names, by version and checksum. A
//!   write with another base is written whole. A whole image, and a free, remove what waits in the
//!   write buffer, in the hold of `state` that applies their record; a flush looks again under
//!   `order` before it names a slot.
//! * Map entry, base image and slot agree, or the page is `Damaged`: never older data. The slot has
//!   page, version and the base's checksum; the entry has version and the base's checksum.
//! * The log is kept from the recovery LSN of what waits in the write buffer
//!   ([`crate::PageTier::oldest_needed_lsn`]), and of what a flush took, or a whole image or a free
//!   removed, until its record is durable.
//! * Places with space >= allocated pages + reserved pages + slack + delta pages, in use or about
//!   to be. A flush that would break that writes its pages whole, which takes no more places than
//!   they have, and `reserve` gives up delta pages before it says `Full`. So deltas never
//!   cause it.
//! * A delta page becomes free by a record, once no entry names a slot of it, and its place is used
//!   again once that record is durable.
//!
//! Why a crash loses nothing, step by step of a flush: until the delta pages are durable no entry
//! names them, and the log is kept; then, until the record is durable, the same; then the map names
//! the slots. The old slots stay where they are until their pages are freed by a later record.
//!
//! The buffer of deltas and the counts of live slots are parts of `state`. One thread flushes at a
//! time (`flushing`, held during I/O).

pub(crate) mod clean;
pub(crate) mod flush;
pub(crate) mod live;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod policy;
pub(crate) mod slot;
pub(crate) mod take;
pub(crate) mod testing;
pub(crate) mod walk;
pub(crate) mod write_buffer;

use firndb_device::AlignedBuf;
use live::Live;
use write_buffer::WriteBuffer;

/// The flushing thread's state: the reused buffer in which delta pages are composed.
#[derive(Default)]
pub(crate) struct Flushing {
    staging: Option<AlignedBuf>,
}

/// All that the store has in memory of deltas.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    pub buffer: WriteBuffer,
    pub live: Live,
    /// Places taken for delta pages that no record names yet.
    pub in_flight: u64,
}

#[cfg(test)]
impl Deltas {
    /// At rest nothing is on its way.
    pub(crate) fn check(&self) {
        assert!(self.in_flight == 0 && self.buffer.is_empty() && self.buffer.bytes() == 0);
    }
}
