//! What can go wrong in the buffer.

use firndb_log::{LogError, LogErrorKind};
use firndb_tier::{TierError, TierErrorKind};
use std::fmt;

/// What a caller can do about a buffer error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferErrorKind {
    /// The store is full.
    Full,
    /// The log is full until it is truncated.
    LogFull,
    /// Every frame is latched or dirty and cannot be written: a larger buffer is needed.
    NoFrame,
    /// A page is damaged.
    Damaged,
    /// The page is not allocated.
    NotAllocated,
    /// A device could not read the page. Nothing has changed, and the read may be tried again.
    Unreadable,
    /// A device failed.
    Failed,
    /// An option is out of its range.
    BadArgument,
}

/// A buffer error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferError {
    /// What a caller can do about it.
    pub kind: BufferErrorKind,
    /// A sentence for people.
    pub message: String,
}
impl BufferError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: BufferErrorKind, message: impl Into<String>) -> BufferError {
        BufferError { kind, message: message.into() }
    }
    /// Whether it is the page that cannot be had, its stored image being damaged or unreadable;
    /// anything else that was asked for might be.
    #[must_use]
    pub fn concerns_the_page(&self) -> bool {
        matches!(self.kind, BufferErrorKind::Damaged | BufferErrorKind::Unreadable)
    }
}
impl From<TierError> for BufferError {
    fn from(error: TierError) -> BufferError {
        let kind = match error.kind {
            TierErrorKind::Full => BufferErrorKind::Full,
            TierErrorKind::LogFull => BufferErrorKind::LogFull,
            TierErrorKind::Damaged => BufferErrorKind::Damaged,
            TierErrorKind::NotAllocated => BufferErrorKind::NotAllocated,
            TierErrorKind::Unreadable => BufferErrorKind::Unreadable,
            _ => BufferErrorKind::Failed,
        };
        BufferError::new(kind, error.message)
    }
}
impl From<LogError> for BufferError {
    fn from(error: LogError) -> BufferError {
        let kind = match error.kind {
            LogErrorKind::Full => BufferErrorKind::LogFull,
            LogErrorKind::Damaged => BufferErrorKind::Damaged,
            _ => BufferErrorKind::Failed,
        };
        BufferError::new(kind, error.message)
    }
}
impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for BufferError {}

/// The result of fixing a page.
pub type Fixed<T> = Result<T, BufferError>;
