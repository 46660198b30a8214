//! Errors of measuring.

use firndb_device::{DeviceError, DeviceErrorKind};
use std::fmt;

/// Why a measurement did not start or did not finish; the message says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument that is not possible.
    BadArgument(String),
    /// The measurement would destroy data.
    Refused(String),
    /// No such place, no permission, no memory, no threads.
    Unusable(String),
    /// Too little space.
    Full(String),
    /// The device returned an error.
    Failed(String),
    /// Stopped by the caller.
    Interrupted,
}

impl Error {
    pub(crate) fn bad_argument(message: impl Into<String>) -> Error {
        Error::BadArgument(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadArgument(message)
            | Error::Refused(message)
            | Error::Unusable(message)
            | Error::Full(message)
            | Error::Failed(message) => f.write_str(message),
            Error::Interrupted => f.write_str("stopped before all was measured; nothing was left behind"),
        }
    }
}
impl std::error::Error for Error {}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        match error.kind {
            DeviceErrorKind::NoSpace => Error::Full(error.message),
            DeviceErrorKind::Locked | DeviceErrorKind::Unusable => Error::Unusable(error.message),
            _ => Error::Failed(error.message),
        }
    }
}
