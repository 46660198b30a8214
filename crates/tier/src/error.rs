//! What can go wrong in a tier.

use firn_device::{DeviceError, DeviceErrorKind};
use firn_log::{LogError, LogErrorKind};
use std::fmt;

/// What a caller can do about a tier error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TierErrorKind {
    /// No room for another page: delete something or make the volume larger.
    Full,
    /// The log has no room until it is truncated.
    LogFull,
    /// A page is not what the map says: checksum, identity or version differ.
    Damaged,
    /// The page is not allocated.
    NotAllocated,
    /// A device failed.
    Failed,
    /// An option or argument is out of its range.
    BadArgument,
    /// Stored in a format that this program does not know yet.
    TooNew,
}

/// A tier error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierError {
    /// What a caller can do about it.
    pub kind: TierErrorKind,
    /// A sentence for people.
    pub message: String,
}
impl TierError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: TierErrorKind, message: impl Into<String>) -> TierError {
        TierError { kind, message: message.into() }
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
