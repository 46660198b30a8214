//! Buffers that are kept between calls, so that a change allocates nothing but what its record
//! needs.

use std::cell::Cell;

/// Buffers of one call.
#[derive(Default)]
pub(crate) struct Scratch {
    /// What the layer above attaches to the record.
    pub(crate) attachment: Vec<u8>,
    /// The record's body.
    pub(crate) body: Vec<u8>,
    /// A key put together from prefix and stored part.
    pub(crate) key: Vec<u8>,
}

/// Larger buffers are not kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lends this thread's buffers to `work`. A call within a call gets buffers of its own.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = SPARE.take().unwrap_or_default();
    let result = work(&mut scratch);
    let kept = scratch.attachment.capacity() + scratch.body.capacity() + scratch.key.capacity();
    if kept <= KEPT_BYTES_MAX {
        SPARE.set(Some(scratch));
    }
    result
}

thread_local! {
    static SPARE_BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An empty buffer for a change, with the memory of one that was returned.
pub(crate) fn spare_bytes() -> Vec<u8> {
    SPARE_BYTES.take()
}

/// Gives a change's buffer back.
pub(crate) fn keep_bytes(mut bytes: Vec<u8>) {
    if bytes.capacity() <= KEPT_BYTES_MAX {
        bytes.clear();
        SPARE_BYTES.set(bytes);
    }
}
