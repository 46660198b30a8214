//! The emulated devices of a measurement: parts of one.

use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, DeviceError, DeviceInfo, Durability, Fill, MemoryDevice};
use firndb_emulate::{Model, Pacer, Request};
use firndb_profile::DeviceProfile;

/// Equal parts of one device's time: the bytes of each lie apart, in memory of its own, and the
/// requests of all go to one model. So one drive becomes several virtual ones (FlashLogging, 5.4).
#[derive(Debug)]
pub struct Partition {
    memory: Arc<MemoryDevice>,
    whole: Arc<Pacer>,
    /// Where the partition begins on the drive.
    start: u64,
}

impl Partition {
    /// Makes a virtual device of each of `memories`, all on one drive of this profile.
    pub fn split(
        memories: Vec<Arc<MemoryDevice>>,
        profile: &DeviceProfile,
        seed: u64,
    ) -> Result<Vec<Arc<Partition>>, Failure> {
        let model = Model::new(profile, seed).map_err(|error| Failure::bad_argument(error.to_string()))?;
        let whole = Arc::new(Pacer::new(model));
        let mut start = 0;
        let parts = memories.into_iter().map(|memory| {
            let part = Partition { whole: whole.clone(), start, memory };
            // Far enough apart that the end of one is not the beginning of the next.
            start += part.memory.len().next_multiple_of(64 << 20) + (64 << 20);
            Arc::new(part)
        });
        Ok(parts.collect())
    }
}

impl Device for Partition {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let done = self.whole.submit(&Request::read(self.start + offset, buf.len() as u64));
        self.memory.read(offset, buf)?;
        self.whole.wait_until(done);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        let request = match durability {
            Durability::Later => Request::write(self.start + offset, bytes),
            Durability::Durable => Request::durable_write(self.start + offset, bytes),
        };
        let done = self.whole.submit(&request);
        self.memory.write(offset, data, durability)?;
        self.whole.wait_until(done);
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        let done = self.whole.submit(&Request::sync());
        self.whole.wait_until(done);
        Ok(())
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.memory.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.memory.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, len)
    }
}
