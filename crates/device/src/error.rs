//! What can go wrong on a device.

use std::fmt;

/// What a caller can do about a device error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// The file system or device is full.
    NoSpace,
    /// Beyond the device's end.
    OutOfRange,
    /// Another process holds the device.
    Locked,
    /// No such file, or no permission, or not a file or block device.
    Unusable,
    /// The device returned an error: it may be broken.
    Failed,
}

/// An I/O error: which device, which operation, what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What a caller can do about it.
    pub kind: DeviceErrorKind,
    /// A sentence for people: device, operation, offset, cause.
    pub message: String,
}

impl DeviceError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: DeviceErrorKind, message: impl Into<String>) -> DeviceError {
        DeviceError { kind, message: message.into() }
    }

    pub(crate) fn out_of_range(name: &str, offset: u64, len: u64, device_len: u64) -> DeviceError {
        DeviceError::new(
            DeviceErrorKind::OutOfRange,
            format!("{name}: {len} bytes at offset {offset} lie beyond its end at {device_len}"),
        )
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for DeviceError {}
