//! The emulated devices of a measurement: parts of one.

use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_console::Failure;
use firndb_device::{
    Device, DeviceError, DeviceInfo, Durability, Fill, InFlight, Io, IoOp, MemoryDevice, OwnedRead, ReadDone,
};
use firndb_emulate::{Model, Pacer, Request};
use firndb_profile::DeviceProfile;

/// Equal parts of one device's time: the bytes of each lie apart, in memory of its own, and the
/// requests of all go to one model. So one drive becomes several virtual ones (FlashLogging, 5.4).
#[derive(Debug)]
pub struct Partition {
    memory: Arc<MemoryDevice>,
    whole: Arc<Pacer>,
    /// Of all parts: calls take no time.
    is_free: Arc<AtomicBool>,
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
        let (whole, is_free) = (Arc::new(Pacer::new(model)), Arc::new(AtomicBool::new(false)));
        let mut start = 0;
        let parts = memories.into_iter().map(|memory| {
            let part = Partition { whole: whole.clone(), is_free: is_free.clone(), start, memory };
            // Far enough apart that the end of one is not the beginning of the next.
            start += part.memory.len().next_multiple_of(64 << 20) + (64 << 20);
            Arc::new(part)
        });
        Ok(parts.collect())
    }

    /// Whether calls to any part of the drive take no time from now on, and leave no trace in it:
    /// for the preparation of what is to be measured.
    pub fn run_free(&self, free: bool) {
        self.is_free.store(free, Ordering::Release);
    }

    /// Submits the request, makes the call and waits for the request's end.
    fn timed<T>(&self, request: &Request, call: impl FnOnce() -> T) -> T {
        if self.is_free.load(Ordering::Acquire) {
            return call();
        }
        let done = self.whole.submit(request);
        let outcome = call();
        self.whole.wait_until(done);
        outcome
    }

    fn write_request(&self, offset: u64, bytes: usize, durability: Durability) -> Request {
        match durability {
            Durability::Later => Request::write(self.start + offset, bytes as u64),
            Durability::Durable => Request::durable_write(self.start + offset, bytes as u64),
        }
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
        let request = Request::read(self.start + offset, buf.len() as u64);
        self.timed(&request, || self.memory.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let request = self.write_request(offset, data.len(), durability);
        self.timed(&request, || self.memory.write(offset, data, durability))
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.timed(&Request::sync(), || Ok(()))
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        let request = |io: &Io<'_>| match &io.op {
            IoOp::Read(buf) => Request::read(self.start + io.offset, buf.len() as u64),
            IoOp::Write(data, durability) => self.write_request(io.offset, data.len(), *durability),
        };
        let requests: Vec<Request> = batch.iter().map(request).collect();
        let is_free = self.is_free.load(Ordering::Acquire);
        let done = (!is_free).then(|| self.whole.submit_batch(&requests));
        self.memory.submit(batch);
        done.into_iter().for_each(|done| self.whole.wait_until(done));
    }
    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        self.begin_reads(in_flight, &mut std::iter::once(read));
    }
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        if self.is_free.load(Ordering::Acquire) {
            return self.memory.begin_reads(in_flight, reads);
        }
        let request = |read: &OwnedRead| Request::read(self.start + read.offset, read.len as u64);
        self.whole.begin_reads(in_flight, reads, request, &*self.memory);
    }
    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        in_flight.next(until, |moment| self.whole.wait_until(moment))
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
