//! What a plan records.

use crate::device::Durability;
use firndb_base::sync::Arc;

/// Names one write of a plan. Ids grow in the order in which the writes began, over all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// The bytes of a write.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    len: usize,
    /// `None`: zeros.
    bytes: Option<Arc<[u8]>>,
}

impl Content {
    pub(super) fn of(data: &[u8]) -> Content {
        let zeros = data.iter().all(|&byte| byte == 0);
        Content { len: data.len(), bytes: (!zeros).then(|| Arc::from(data)) }
    }

    pub(super) fn zeros(len: usize) -> Content {
        Content { len, bytes: None }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte; no recorded write is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes; `None` if all are zero.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.bytes.is_some() { "bytes" } else { "zeros" };
        write!(f, "{} {what}", self.len)
    }
}

/// One step of what was done. `device` is the device's index in its plan, in order of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write was called: from here on its sectors may survive. A discard is a write of zeros.
    WriteBegins {
        /// The device, by its index in the plan.
        device: usize,
        /// Its id.
        write: WriteId,
        /// First byte on the device.
        offset: u64,
        /// What is written.
        content: Content,
        /// Whether it is durable when it ends.
        durability: Durability,
    },
    /// The write returned.
    WriteEnds {
        /// The device, by its index in the plan.
        device: usize,
        /// The write that returned.
        write: WriteId,
    },
    /// A sync was called: it covers the writes that ended before.
    SyncBegins {
        /// The device, by its index in the plan.
        device: usize,
        /// Its number, over all devices.
        sync: u64,
    },
    /// The sync returned.
    SyncEnds {
        /// The device, by its index in the plan.
        device: usize,
        /// The sync that returned.
        sync: u64,
    },
    /// A growth or cut was called: from here on the device may have either length.
    ResizeBegins {
        /// The device, by its index in the plan.
        device: usize,
        /// New length, bytes.
        len: u64,
    },
    /// It returned.
    ResizeEnds {
        /// The device, by its index in the plan.
        device: usize,
        /// New length, bytes.
        len: u64,
    },
    /// The test's own note, such as "commit 17 was acknowledged".
    Mark(u64),
}
