//! The requests that a model serves.

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write; durable only after a sync.
    Write,
    /// A write that is durable when it returns.
    DurableWrite,
    /// Makes all earlier writes durable.
    Sync,
}

/// A request: kind, offset and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Read, write or sync.
    pub kind: RequestKind,
    /// Byte offset; without meaning for a sync.
    pub offset: u64,
    /// Length; without meaning for a sync.
    pub bytes: u64,
}

impl Request {
    /// A read.
    #[must_use]
    pub fn read(offset: u64, bytes: u64) -> Request {
        Request { kind: RequestKind::Read, offset, bytes }
    }
    /// A write that a sync makes durable.
    #[must_use]
    pub fn write(offset: u64, bytes: u64) -> Request {
        Request { kind: RequestKind::Write, offset, bytes }
    }
    /// A write that is durable when it returns.
    #[must_use]
    pub fn durable_write(offset: u64, bytes: u64) -> Request {
        Request { kind: RequestKind::DurableWrite, offset, bytes }
    }
    /// A sync.
    #[must_use]
    pub fn sync() -> Request {
        Request { kind: RequestKind::Sync, offset: 0, bytes: 0 }
    }

    /// The first byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
