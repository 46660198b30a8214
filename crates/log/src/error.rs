//! The log's errors.

use firndb_device::DeviceError;
use std::fmt;

/// What a caller can do about a log error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogErrorKind {
    /// The log has no space for this class of record until it is truncated.
    Full,
    /// The log's buffer is full until a device has written some of it, and the caller asked not to
    /// wait. Try again after [`crate::Log::wait_for_buffer`], with no latch held.
    BufferFull,
    /// A device failed: nothing more can be made durable until the database is opened again.
    Failed,
    /// The log on the devices is damaged before its end, or a member is missing or foreign.
    Damaged,
    /// A record, group or option is over its limit.
    BadArgument,
    /// The log was closed.
    Closed,
}

impl LogErrorKind {
    /// An error of this kind with a sentence for people.
    pub(crate) fn error(self, message: impl Into<String>) -> LogError {
        LogError { kind: self, message: message.into() }
    }
}

/// A log error: its kind, and a message for people.
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
        kind.error(message)
    }
}
impl From<DeviceError> for LogError {
    fn from(error: DeviceError) -> LogError {
        LogErrorKind::Failed.error(error.message)
    }
}
impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for LogError {}
