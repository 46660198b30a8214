//! What can go wrong with rows beyond memory.

use firndb_base::codec::Malformed;
use firndb_device::{DeviceError, DeviceErrorKind};
use std::fmt;

/// What a caller can do about an error. The database is unharmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillErrorKind {
    /// It was used wrongly: change the call.
    BadArgument,
    /// More memory is needed than the limit: raise it.
    OutOfMemory,
    /// There is no spill device, or it is full: give it more space, or the work more memory.
    Full,
    /// The spill device failed, or returned other bytes than were written: do the work again.
    Failed,
}

/// An error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillError {
    /// What a caller can do about it.
    pub kind: SpillErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl SpillError {
    pub(crate) fn new(kind: SpillErrorKind, message: impl Into<String>) -> SpillError {
        SpillError { kind, message: message.into() }
    }
    pub(crate) fn bad_argument(message: impl Into<String>) -> SpillError {
        SpillError::new(SpillErrorKind::BadArgument, message)
    }
}

impl From<DeviceError> for SpillError {
    /// Of the spill device.
    fn from(error: DeviceError) -> SpillError {
        match error.kind {
            DeviceErrorKind::NoSpace => SpillError::new(
                SpillErrorKind::Full,
                format!("the spill device is full: {}; free space there, or raise the memory", error.message),
            ),
            _ => SpillError::new(
                SpillErrorKind::Failed,
                format!(
                    "the spill device failed: {}; the database is unharmed, run the work again",
                    error.message
                ),
            ),
        }
    }
}
impl From<Malformed> for SpillError {
    fn from(error: Malformed) -> SpillError {
        SpillError::new(SpillErrorKind::Failed, format!("the spill device returned other bytes: {error}"))
    }
}
impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for SpillError {}
