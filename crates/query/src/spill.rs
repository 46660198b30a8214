//! Rows that do not fit in a query's memory, on a device of their own.
//!
//! Nothing here outlives the process: the device is not synced, and what it holds at opening is
//! not read. What is read back is checked, since a device may return other bytes than were written.

mod block;
mod reader;
mod space;
mod writer;

pub(crate) use reader::{RunReader, Step, refill};
pub use space::SpillSpace;
pub(crate) use writer::{Run, RunWriter};

/// Bytes of a request to the spill device, for an operator that keeps `share` bytes in memory and
/// should be able to have 16 requests' buffers.
pub(crate) fn block_bytes(share: usize, space: &SpillSpace) -> usize {
    let wanted = (share / 16).clamp(block::BYTES_MIN, space::EXTENT_BYTES);
    // A power of two, so that extents hold whole blocks.
    (1 << wanted.ilog2()).max(space.device().info().logical_block)
}
