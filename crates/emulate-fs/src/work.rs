//! The device requests of an operation, and what is durable when the device has completed them.

use crate::content::{Content, SyncTicket};
use crate::journal::Mark;
use crate::timing::{DeviceOperation, DeviceRequest};
use crate::tree::SharedContent;
use std::ops::Range;

/// The largest request to the device, as in the kernel's block layer; longer ones are split.
pub const REQUEST_LIMIT: u64 = 512 << 10;

/// A sync in flight.
#[derive(Debug)]
pub struct SyncWork {
    /// Writes that the device performs first.
    pub writes: Vec<DeviceRequest>,
    /// Whether the device then syncs; durable writes need no sync.
    pub flush: bool,
    /// The file to sync; `None` if only names are synced.
    pub content: Option<SharedContent>,
    /// The bytes that are synced.
    pub ticket: Option<SyncTicket>,
    /// The changes of names that are synced.
    pub mark: Mark,
}

/// Takes the dirty ranges of the emulated page cache, as requests in the order of their addresses.
pub fn dirty_requests(content: &mut Content) -> Vec<DeviceRequest> {
    let ranges = content.dirty.take();
    let mut requests = requests(DeviceOperation::Write, content, &ranges);
    requests.sort_by_key(|request| request.range.start);
    requests
}

/// The device requests for these ranges of a file.
pub fn requests(operation: DeviceOperation, content: &Content, ranges: &[Range<u64>]) -> Vec<DeviceRequest> {
    let mut requests = Vec::new();
    for address in ranges.iter().flat_map(|range| content.extents.addresses(range.clone())) {
        let mut at = address.start;
        while at < address.end {
            let end = (at + REQUEST_LIMIT).min(address.end);
            requests.push(DeviceRequest { operation, range: at..end });
            at = end;
        }
    }
    requests
}
