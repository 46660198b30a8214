//! Errors of a tier.

use firndb_device::{DeviceError, DeviceErrorKind};
use firndb_log::{LogError, LogErrorKind};
use std::borrow::Cow;
use std::fmt;

/// What a caller can do about a tier error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierErrorKind {
    /// No space for another page: delete something, some rows in each transaction, or make the
    /// volume larger.
    Full,
    /// The log is full until it is truncated.
    LogFull,
    /// The log's buffer is full until a device has written some of it: wait for that with no latch
    /// held (`Log::wait_for_buffer`), and try again.
    LogBufferFull,
    /// The page map pages that the change needs are not in memory: prepare them with no latch held
    /// ([`crate::PageTier::prepare`]), and try again.
    Unprepared,
    /// A page differs from its map entry: checksum, identity or version.
    Damaged,
    /// The page is not allocated.
    NotAllocated,
    /// A device could not read. Nothing has changed, and the read may be tried again.
    Unreadable,
    /// A device failed.
    Failed,
    /// An option or argument is out of its range.
    BadArgument,
    /// Stored in a format that this program does not know yet.
    TooNew,
}

/// A tier error: what to do, and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierError {
    /// What a caller can do about it.
    pub kind: TierErrorKind,
    /// A message for people.
    pub message: Cow<'static, str>,
}
impl TierError {
    /// Whether the error concerns one page: its stored image is damaged or unreadable. Other pages
    /// may be fine.
    #[must_use]
    pub fn concerns_the_page(&self) -> bool {
        matches!(self.kind, TierErrorKind::Damaged | TierErrorKind::Unreadable)
    }
    /// An error of `kind` with a message for people.
    pub fn new(kind: TierErrorKind, message: impl Into<Cow<'static, str>>) -> TierError {
        TierError { kind, message: message.into() }
    }
    /// The outcome of a page before its tier sets it. Does not allocate: every page that is read or
    /// written begins with it.
    #[must_use]
    pub const fn unset() -> TierError {
        TierError { kind: TierErrorKind::Failed, message: Cow::Borrowed("the tier returned no outcome") }
    }
    /// The error of a read that failed.
    pub(crate) fn of_read(error: DeviceError) -> TierError {
        TierError::new(TierErrorKind::Unreadable, error.message)
    }
}
impl From<DeviceError> for TierError {
    fn from(error: DeviceError) -> TierError {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => TierErrorKind::Full,
            _ => TierErrorKind::Failed,
        };
        TierError::new(kind, error.message)
    }
}
impl From<LogError> for TierError {
    fn from(error: LogError) -> TierError {
        let kind = match error.kind {
            LogErrorKind::Full => TierErrorKind::LogFull,
            LogErrorKind::BufferFull => TierErrorKind::LogBufferFull,
            LogErrorKind::Damaged => TierErrorKind::Damaged,
            _ => TierErrorKind::Failed,
        };
        TierError::new(kind, error.message)
    }
}
impl fmt::Display for TierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for TierError {}
