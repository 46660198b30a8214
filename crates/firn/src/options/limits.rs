//! Ranges and shares that options are checked against and that the engine is assembled with.

use crate::error::{Error, ErrorKind};

/// The error of a setting outside its range.
pub(crate) fn refuse(message: String) -> Result<(), Error> {
    Err(Error::new(ErrorKind::BadArgument, message))
}

/// Page sizes, of which the powers of two: a smaller page would hold no row of a useful length.
pub(crate) const PAGE_SIZES: std::ops::RangeInclusive<usize> = 1024..=65536;

/// Share of the buffer's budget that goes to the page map's cache, as a divisor: a fully cached map
/// needs 24 bytes a page, 0.6 % of pages of 4 KiB.
pub(crate) const MAP_SHARE: usize = 16;
/// The same, of what the map may grow to, where it does not fit: frames are given up for it.
pub(crate) const MAP_SHARE_MOST: usize = 4;

/// Share of the log between the begins of two checkpoints, at most, as a divisor.
pub(crate) const INTERVAL_SHARE: u64 = 4;
/// Bytes of log that may be chosen instead, at least.
pub(crate) const INTERVAL_LEAST: u64 = 64 << 10;

/// Share of the buffer's budget that goes to deltas that wait, where they are on, as a divisor.
pub(crate) const DELTA_SHARE: usize = 16;

/// Least space for rows of queries.
pub(crate) const SPILL_BYTES_MIN: u64 = 1 << 20;
/// DRAM for private images of page files, as a divisor of the buffer's budget.
pub(crate) const PAGE_FILE_SHARE: usize = 8;

/// Bytes of the smallest log device for pages of `page_size` bytes.
///
/// Records that belong together are appended as one group, and the longest must fit a log with a
/// single device left: a quarter of its capacity for blocks, of which section headers and the area
/// for outliers take up to three eighths.
pub(crate) fn log_device_least(page_size: usize) -> u64 {
    let blocks = 4 * firndb_btree::group_bytes_max(page_size);
    (blocks * 8 / 5).next_multiple_of(4096).max(256 << 10)
}
