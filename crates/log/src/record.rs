//! Records: the unit of append and of redo.

/// What a record is: the floor that wrote it owns the number and the body's format.
///
/// | range | owner |
/// |---|---|
/// | 0x01–0x0f | `log` itself (padding, epoch start) |
/// | 0x10–0x1f | `tier` (page map) |
/// | 0x20–0x3f | `btree` (page changes) |
/// | 0x40–0x4f | `txn` (commit, abort, prepare) |
/// | 0x50–0x5f | `firn` (checkpoint) |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u8);

/// A record as it is appended and as recovery delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Whose record it is.
    pub kind: Kind,
    /// Its owner's format.
    pub body: &'a [u8],
}
