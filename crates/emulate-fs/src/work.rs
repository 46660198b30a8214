//! What an operation asks of the device, and what is durable when the device has done it.

use crate::content::{Content, SyncTicket};
use crate::journal::Mark;
use crate::timing::{DeviceOperation, DeviceRequest};
use crate::tree::SharedContent;
use std::ops::Range;

/// The largest request a device is given, as by the kernel's block layer; longer ones are cut.
pub const REQUEST_LIMIT: u64 = 512 << 10;

/// A sync under way.
#[derive(Debug)]
pub struct SyncWork {
    /// What the device has to write first.
    pub writes: Vec<DeviceRequest>,
    /// Then it syncs, if so; durable writes need none.
    pub flush: bool,
    /// Whose bytes; none if only names are synced.
    pub content: Option<SharedContent>,
    /// Which of its bytes.
    pub ticket: Option<SyncTicket>,
    /// Which changes of names.
    pub mark: Mark,
}

/// Takes what waits in the emulated page cache, as requests in the order of their addresses.
pub fn dirty_requests(content: &mut Content) -> Vec<DeviceRequest> {
    let ranges = content.dirty.take();
    let mut requests = requests(DeviceOperation::Write, content, &ranges);
    requests.sort_by_key(|request| request.range.start);
    requests
}

/// What a device is asked for these ranges of a file.
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
