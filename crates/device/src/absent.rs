//! The place of a device that is not there.

use crate::device::{Device, DeviceInfo, Durability, Fill};
use crate::error::DeviceError;

/// A device that could not be opened, or was removed: every call returns the reason.
#[derive(Clone, Debug)]
pub struct AbsentDevice {
    info: DeviceInfo,
    why: DeviceError,
}

impl AbsentDevice {
    /// Stands for the device that messages call `name`.
    #[must_use]
    pub fn new(name: &str, why: DeviceError) -> AbsentDevice {
        AbsentDevice { info: DeviceInfo { name: name.to_owned(), logical_block: 512, direct: false }, why }
    }

    fn refuse(&self) -> Result<(), DeviceError> {
        Err(self.why.clone())
    }
}

impl Device for AbsentDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn len(&self) -> u64 {
        0
    }
    fn read(&self, _offset: u64, _buf: &mut [u8]) -> Result<(), DeviceError> {
        self.refuse()
    }
    fn write(&self, _offset: u64, _data: &[u8], _durability: Durability) -> Result<(), DeviceError> {
        self.refuse()
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.refuse()
    }
    fn grow(&self, _len: u64, _fill: Fill) -> Result<(), DeviceError> {
        self.refuse()
    }
    fn shrink(&self, _len: u64) -> Result<(), DeviceError> {
        self.refuse()
    }
    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DeviceErrorKind;

    #[test]
    fn every_call_returns_why_it_is_not_there() {
        let why = DeviceError::new(DeviceErrorKind::Failed, "log.1: unplugged");
        let device = AbsentDevice::new("log.1", why.clone());
        assert_eq!(device.read(0, &mut [0; 512]), Err(why.clone()));
        assert_eq!(device.write(0, &[0; 512], Durability::Durable), Err(why.clone()));
        assert_eq!((device.sync(), device.grow(512, Fill::Written)), (Err(why.clone()), Err(why)));
        assert_eq!((device.len(), device.info().name.as_str()), (0, "log.1"));
    }
}
