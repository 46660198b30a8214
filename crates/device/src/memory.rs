//! A device in memory, for tests of the layers above and for databases that need not last.

use crate::bytes::SharedBytes;
use crate::device::{Device, DeviceInfo, Durability, Fill, check_transfer, whole_blocks};
use crate::error::{DeviceError, DeviceErrorKind};
use firndb_base::machine;
use firndb_base::sync::{RwLock, before_device};

/// A growable block device in memory. Everything written counts as durable.
///
/// Zeros take no memory, and [`MemoryDevice::duplicate`] costs only what is changed afterwards.
#[derive(Debug)]
pub struct MemoryDevice {
    info: DeviceInfo,
    limit: u64,
    /// Protects contents and length; a leaf.
    bytes: RwLock<SharedBytes>,
}

impl MemoryDevice {
    /// Empty, with 512-byte blocks, and able to grow without limit.
    #[must_use]
    pub fn new(name: &str) -> MemoryDevice {
        MemoryDevice::with(name, 512, u64::MAX)
    }

    /// Empty, with blocks of `logical_block` bytes, full at `limit` bytes.
    #[must_use]
    pub fn with(name: &str, logical_block: usize, limit: u64) -> MemoryDevice {
        assert!(logical_block.is_power_of_two() && (512..=65536).contains(&logical_block));
        let info = DeviceInfo { name: name.to_owned(), logical_block, direct: false };
        MemoryDevice::holding(info, limit, SharedBytes::default())
    }

    /// A device of its own with the same name, geometry, limit and contents.
    #[must_use]
    pub fn duplicate(&self) -> MemoryDevice {
        MemoryDevice::holding(self.info.clone(), self.limit, self.contents())
    }

    pub(crate) fn holding(info: DeviceInfo, limit: u64, bytes: SharedBytes) -> MemoryDevice {
        assert!(bytes.len().is_multiple_of(info.logical_block as u64));
        MemoryDevice { info, limit, bytes: RwLock::new(bytes) }
    }

    pub(crate) fn contents(&self) -> SharedBytes {
        self.bytes.read().clone()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

/// The error of a device in memory that would grow past `limit` bytes.
pub(crate) fn over_limit(info: &DeviceInfo, len: u64, limit: u64) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::NoSpace,
        format!("{}: cannot grow to {len} bytes, {limit} is its limit", info.name),
    )
}

impl Device for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn len(&self) -> u64 {
        self.bytes.read().len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = self.bytes.read();
        check_transfer(&self.info, bytes.len(), offset, buf.len())?;
        bytes.read(offset, buf);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8], _: Durability) -> Result<(), DeviceError> {
        let mut bytes = self.bytes.write();
        check_transfer(&self.info, bytes.len(), offset, data.len())?;
        bytes.write(offset, data);
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        before_device();
        Ok(())
    }
    fn grow(&self, len: u64, _: Fill) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        if len > self.limit {
            return Err(over_limit(&self.info, len, self.limit));
        }
        // Zeros take no memory, but what says so does. Asked for memory that there is not, the
        // allocator would end the process.
        let memory = machine::memory_bytes();
        if SharedBytes::table_bytes(len) > memory / 4 {
            return Err(DeviceError::new(
                DeviceErrorKind::NoSpace,
                format!(
                    "{}: cannot grow to {len} bytes, this machine has {memory} bytes of memory",
                    self.info.name
                ),
            ));
        }
        let mut bytes = self.bytes.write();
        if len > bytes.len() {
            bytes.resize(len);
        }
        Ok(())
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let len = whole_blocks(&self.info, len)?;
        let mut bytes = self.bytes.write();
        if len < bytes.len() {
            bytes.resize(len);
        }
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut bytes = self.bytes.write();
        check_transfer(&self.info, bytes.len(), offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        bytes.zero(offset, len);
        Ok(())
    }
}
