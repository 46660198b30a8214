//! Sets of granules, by number and in bytes.

use firndb_tier::Changes;
use std::ops::Range;

/// The granules with these numbers, of whatever size.
///
/// Panics if there are none with such numbers.
#[must_use]
pub fn granules(numbers: Range<usize>) -> Changes {
    // A page of as many bytes has granules of one byte.
    Changes::of(numbers, Changes::GRANULES)
}

/// Bytes of the granules, of a page of `page_size` bytes.
pub(crate) fn bytes_of(changes: Changes, page_size: u64) -> u64 {
    changes.bytes(page_size as usize) as u64
}
