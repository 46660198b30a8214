//! A device's time for a store that writes each page over its old version.
//!
//! Firn's store writes pages to free places, in runs as long as there are. The engines of the paper
//! wrote in place: a page here, a page there. This device stores the bytes at the offsets it is
//! given and takes the time of such an engine: every page of a request is a request of its own, at
//! a place that has nothing to do with its neighbour's.

use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_console::Failure;
use firndb_device::{
    Device, DeviceError, DeviceInfo, Durability, Fill, InFlight, Io, IoOp, MemoryDevice, OwnedRead, ReadDone,
};
use firndb_emulate::{Model, Pacer, Request, Statistics};
use firndb_profile::DeviceProfile;

const PAGE: u64 = 4096;

/// See the head of the file.
#[derive(Debug)]
pub struct InPlace {
    memory: Arc<MemoryDevice>,
    pacer: Pacer,
    /// Pages on the part of the device that the database lies on.
    pages: u64,
    free: AtomicBool,
}

impl InPlace {
    /// Over `memory`, whose pages are scattered over the first `bytes` of the device.
    pub fn new(
        memory: Arc<MemoryDevice>,
        profile: &DeviceProfile,
        bytes: u64,
        seed: u64,
    ) -> Result<InPlace, Failure> {
        let model = Model::new(profile, seed).map_err(|error| Failure::bad_argument(error.to_string()))?;
        let pages = (bytes / PAGE).max(1);
        Ok(InPlace { memory, pacer: Pacer::new(model), pages, free: AtomicBool::new(false) })
    }

    pub fn run_free(&self, free: bool) {
        self.free.store(free, Ordering::Release);
    }

    pub fn statistics(&self) -> Statistics {
        self.pacer.statistics()
    }

    /// Where the page at `offset` is taken to lie: anywhere, and always there.
    fn home(&self, offset: u64) -> u64 {
        let mixed = (offset / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % self.pages * PAGE
    }

    /// One request a page; a read of metadata (two neighbouring slots) stays one.
    fn requests(&self, io: &Io<'_>) -> Vec<Request> {
        match &io.op {
            IoOp::Read(buf) => vec![Request::read(self.home(io.offset), buf.len() as u64)],
            IoOp::Write(data, durability) => self.writes(io.offset, data.len() as u64, *durability),
        }
    }

    fn writes(&self, offset: u64, bytes: u64, durability: Durability) -> Vec<Request> {
        let page = |at: u64| {
            let (home, bytes) = (self.home(at), (offset + bytes - at).min(PAGE));
            match durability {
                Durability::Later => Request::write(home, bytes),
                Durability::Durable => Request::durable_write(home, bytes),
            }
        };
        (offset..offset + bytes).step_by(PAGE as usize).map(page).collect()
    }

    fn timed<T>(&self, requests: impl FnOnce() -> Vec<Request>, call: impl FnOnce() -> T) -> T {
        if self.free.load(Ordering::Acquire) {
            return call();
        }
        let done = self.pacer.submit_batch(&requests());
        let outcome = call();
        self.pacer.wait_until(done);
        outcome
    }
}

impl Device for InPlace {
    fn info(&self) -> &DeviceInfo {
        self.memory.info()
    }
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = buf.len() as u64;
        self.timed(|| vec![Request::read(self.home(offset), bytes)], || self.memory.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        self.timed(|| self.writes(offset, bytes, durability), || self.memory.write(offset, data, durability))
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.timed(|| vec![Request::sync()], || self.memory.sync())
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        let requests: Vec<Request> = batch.iter().flat_map(|io| self.requests(io)).collect();
        self.timed(|| requests, || self.memory.submit(batch));
    }
    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        self.begin_reads(in_flight, &mut std::iter::once(read));
    }
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        if self.free.load(Ordering::Acquire) {
            return self.memory.begin_reads(in_flight, reads);
        }
        let request = |read: &OwnedRead| Request::read(self.home(read.offset), read.len as u64);
        self.pacer.begin_reads(in_flight, reads, request, &*self.memory);
    }
    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        in_flight.next(until, |moment| self.pacer.wait_until(moment))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::simulation::simulate;
    use firndb_base::clock;
    use firndb_device::AlignedBuf;
    use firndb_emulate::profiles;

    /// 32 pages in a row cost what 32 random writes do, not what one long write does.
    #[test]
    fn a_run_costs_what_its_pages_cost_apart() {
        let profile = profiles::find("samsung-470").unwrap();
        let (took, _) = simulate(1, 1, move || {
            let memory = MemoryDevice::new("m");
            memory.grow(1 << 20, Fill::Sparse).unwrap();
            let device = InPlace::new(Arc::new(memory), &profile, 1 << 30, 1)?;
            let began = clock::now();
            device.write(0, &vec![7; 32 * 4096], Durability::Durable).unwrap();
            let took = began.elapsed();
            device.run_free(true);
            let mut back = vec![0; 32 * 4096];
            device.read(0, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == 7));
            assert_eq!(device.statistics().durable_writes.requests, 32);
            Ok(took)
        })
        .unwrap();
        // 6314 a second.
        let expected = 32.0 / 6314.0;
        assert!((0.9..1.1).contains(&(took.as_secs_f64() / expected)), "{took:?}");
    }

    /// A store in place has the elevator of its disks as Firn's has: for reads that are begun
    /// together, too.
    #[test]
    fn reads_begun_together_take_as_long_as_a_batch() {
        // Each on a drive that has done nothing yet.
        let measured = |together: bool| {
            let measure = move || {
                let memory = MemoryDevice::new("m");
                memory.grow(1 << 20, Fill::Sparse).unwrap();
                let profile = profiles::find("disk-7200").unwrap();
                let device = InPlace::new(Arc::new(memory), &profile, 1 << 34, 1)?;
                let began = clock::now();
                if together {
                    let (mut in_flight, buf) = (InFlight::default(), || AlignedBuf::zeroed(4096));
                    let read = |page| OwnedRead { offset: page * PAGE, len: 4096, buf: buf(), tag: page };
                    device.begin_reads(&mut in_flight, &mut (0..32).map(read));
                    assert_eq!(std::iter::from_fn(|| device.next_read(&mut in_flight, None)).count(), 32);
                } else {
                    let mut buffers = vec![[0u8; 4096]; 32];
                    let io = |(page, buf)| Io { offset: page * PAGE, op: IoOp::Read(buf), outcome: Ok(()) };
                    let mut batch: Vec<Io<'_>> =
                        (0..).zip(buffers.iter_mut().map(|buf| &mut buf[..])).map(io).collect();
                    device.submit(&mut batch);
                }
                Ok(began.elapsed())
            };
            simulate(1, 1, measure).unwrap().0
        };
        assert_eq!(measured(true), measured(false));
    }
}
