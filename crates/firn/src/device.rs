//! Devices, for databases on something else than files in a directory
//! ([`crate::Options::create_on`]): the trait that all bytes go through, files and raw devices, and
//! memory. With the feature `testing` also devices that count, fail, crash and record.

#[cfg(feature = "testing")]
pub use firndb_device::*;
pub use firndb_device::{
    AlignedBuf, Count, Device, DeviceCounts, DeviceError, DeviceErrorKind, DeviceInfo, Durability,
    FileDevice, FileOptions, Fill, InFlight, Io, IoOp, MemoryDevice, OwnedRead, ReadDone,
};
