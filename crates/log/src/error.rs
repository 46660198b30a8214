//! What can go wrong in the log.

use firn_device::DeviceError;
use std::fmt;

/// What a caller can do about a log error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// No room for this class of record until the log is truncated.
    Full,
    /// A device failed: nothing more can be made durable until the database is opened again.
    Failed,
    /// The log on the devices is damaged before its end, or a member is missing or foreign.
    Damaged,
    /// A record, group or option is over its limit.
    BadArgument,
    /// The log was closed.
    Closed,
}

/// A log error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// What a caller can do about it.
    pub kind: LogErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl LogError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: LogErrorKind, message: impl Into<String>) -> LogError {
        LogError { kind, message: message.into() }
    }
}
impl From<DeviceError> for LogError {
    fn from(error: DeviceError) -> LogError {
        LogError::new(LogErrorKind::Failed, error.message)
    }
}
impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for LogError {}
