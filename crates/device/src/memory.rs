//! A device in memory, for tests of the floors above and for databases that need not last.

use crate::device::check_transfer;
use crate::{Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill};
use firn_base::sync::RwLock;

/// A growable block device in memory. Everything written counts as durable.
#[derive(Debug)]
pub struct MemoryDevice {
    info: DeviceInfo,
    limit: u64,
    bytes: RwLock<Vec<u8>>,
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
        MemoryDevice { info, limit, bytes: RwLock::new(Vec::new()) }
    }
}

impl Device for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn len(&self) -> u64 {
        self.bytes.read().len() as u64
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = self.bytes.read();
        check_transfer(&self.info, bytes.len() as u64, offset, buf.len())?;
        buf.copy_from_slice(&bytes[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8], _: Durability) -> Result<(), DeviceError> {
        let mut bytes = self.bytes.write();
        check_transfer(&self.info, bytes.len() as u64, offset, data.len())?;
        bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn grow(&self, len: u64, _: Fill) -> Result<(), DeviceError> {
        let mut bytes = self.bytes.write();
        if len > self.limit {
            return Err(DeviceError::new(
                DeviceErrorKind::NoSpace,
                format!("{}: cannot grow to {len} bytes, {} is its limit", self.info.name, self.limit),
            ));
        }
        if len > bytes.len() as u64 {
            bytes.resize(len as usize, 0);
        }
        Ok(())
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.bytes.write().truncate(len as usize);
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut bytes = self.bytes.write();
        check_transfer(&self.info, bytes.len() as u64, offset, len as usize)?;
        bytes[offset as usize..(offset + len) as usize].fill(0);
        Ok(())
    }
}
