//! What can go wrong in a tree.

use firndb_base::codec::Malformed;
use firndb_base::{PageId, TreeId};
use firndb_buffer::{BufferError, BufferErrorKind};
use firndb_log::LogError;
use firndb_tier::TierError;
use std::fmt;

/// What a caller can do about a tree error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeErrorKind {
    /// The store is full.
    Full,
    /// The log is full until it is truncated.
    LogFull,
    /// The buffer is too small for the work in flight.
    NoFrame,
    /// A page breaks an invariant or is not what was written.
    Damaged,
    /// A device could not read a page. Nothing has changed, and the read may be tried again.
    Unreadable,
    /// The tree is being cleared and may not be read any more.
    Condemned,
    /// A device failed.
    Failed,
    /// A key or value is over its limit.
    TooLarge,
    /// The call does not fit the tree's state or the call's own terms (unsorted bulk load, …).
    BadArgument,
}

/// A tree error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// What a caller can do about it.
    pub kind: TreeErrorKind,
    /// A sentence for people.
    pub message: String,
}
impl TreeError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: TreeErrorKind, message: impl Into<String>) -> TreeError {
        TreeError { kind, message: message.into() }
    }
    /// Whether some page cannot be had, its stored image being damaged or unreadable. Nothing has
    /// changed.
    #[must_use]
    pub fn concerns_a_page(&self) -> bool {
        matches!(self.kind, TreeErrorKind::Damaged | TreeErrorKind::Unreadable)
    }
    /// A page whose bytes are not a node, or not the one that belongs there.
    #[cold]
    pub(crate) fn damaged(page: PageId, error: Malformed) -> TreeError {
        let message =
            format!("{page:?} is damaged ({}): run a check, then restore it from a backup", error.what);
        TreeError::new(TreeErrorKind::Damaged, message)
    }
    /// A page that belongs to another tree.
    #[cold]
    pub(crate) fn foreign(tree: TreeId, page: PageId, owner: TreeId) -> TreeError {
        let message = format!("{page:?} should be a node of {tree:?}, but is one of {owner:?}: run a check");
        TreeError::new(TreeErrorKind::Damaged, message)
    }
    #[cold]
    pub(crate) fn condemned(tree: TreeId) -> TreeError {
        let message = format!("{tree:?} is being cleared: finish clearing it before it is used");
        TreeError::new(TreeErrorKind::Condemned, message)
    }
}
impl From<BufferError> for TreeError {
    fn from(error: BufferError) -> TreeError {
        let kind = match error.kind {
            BufferErrorKind::Full => TreeErrorKind::Full,
            BufferErrorKind::LogFull => TreeErrorKind::LogFull,
            BufferErrorKind::NoFrame => TreeErrorKind::NoFrame,
            BufferErrorKind::Damaged | BufferErrorKind::NotAllocated => TreeErrorKind::Damaged,
            BufferErrorKind::Unreadable => TreeErrorKind::Unreadable,
            _ => TreeErrorKind::Failed,
        };
        TreeError::new(kind, error.message)
    }
}
impl From<TierError> for TreeError {
    fn from(error: TierError) -> TreeError {
        BufferError::from(error).into()
    }
}
impl From<LogError> for TreeError {
    fn from(error: LogError) -> TreeError {
        BufferError::from(error).into()
    }
}
impl From<Malformed> for TreeError {
    fn from(error: Malformed) -> TreeError {
        TreeError::new(TreeErrorKind::Damaged, error.to_string())
    }
}
impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for TreeError {}
