//! A cache of log reads during an opening, which reads the log twice: to find its end, and to
//! analyse it. What the first pass read is kept for the second, within a budget; a disk then reads
//! it once.
//!
//! Invariants:
//! * No more is kept than the budget, and nothing that the second pass has had.
//! * The cache equals the device: no thread writes to the log between the two passes, and a write
//!   empties the cache.
//!
//! The wrappers stay around the devices of the opened log. A write then costs one more load of an
//! atomic.

use firndb_base::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{AlignedBuf, Device, DeviceError, Durability, Fill, Io, IoOp};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a copy of the log's header on a device of smaller blocks.
const HEADER_BLOCK: usize = 512;

/// Reads are kept, and served from what is kept.
const KEEPING: u8 = 0;
/// Reads are served from what is kept, for the last time.
const SERVING: u8 = 1;
/// Reads go to the device.
const OFF: u8 = 2;

#[derive(Debug)]
struct Shared {
    phase: AtomicU8,
    /// Bytes that may still be kept.
    left: AtomicU64,
}

/// The log's devices while a database is opened.
#[derive(Debug)]
pub(crate) struct ScanCache {
    shared: Arc<Shared>,
    devices: Vec<Arc<Kept>>,
}

impl ScanCache {
    /// Wraps `devices`. Keeps up to `budget` bytes.
    pub fn of(devices: Vec<Arc<dyn Device>>, budget: usize) -> ScanCache {
        let shared = Arc::new(Shared { phase: AtomicU8::new(KEEPING), left: AtomicU64::new(budget as u64) });
        let kept =
            |inner| Arc::new(Kept { inner, shared: shared.clone(), reads: Mutex::new(BTreeMap::new()) });
        ScanCache { devices: devices.into_iter().map(kept).collect(), shared }
    }

    /// The devices, for the first pass. What an earlier pass read is dropped: the medium may be
    /// readable now.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().for_each(|device| device.forget());
        self.devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    /// For the first pass, which may have to read a block again from the medium itself.
    pub fn forgetting(&self) -> Arc<dyn firndb_log::KeptReads> {
        Arc::new(Forgetting(self.devices.clone()))
    }

    /// The second pass begins.
    pub fn serve(&self) {
        self.shared.phase.store(SERVING, Relaxed);
    }

    /// Ends the second pass: nothing is kept any more.
    pub fn end(&self) {
        self.shared.phase.store(OFF, Relaxed);
        self.devices.iter().for_each(|device| device.forget());
    }
}

/// Drops parts of what was read.
#[derive(Debug)]
struct Forgetting(Vec<Arc<Kept>>);

impl firndb_log::KeptReads for Forgetting {
    fn forget(&self, device: usize, range: Range<u64>) {
        match range.start {
            // The whole device: it is read from the beginning.
            0 => self.0[device].forget(),
            _ => self.0[device].refresh(range),
        }
    }
}

/// One of them.
#[derive(Debug)]
struct Kept {
    inner: Arc<dyn Device>,
    shared: Arc<Shared>,
    /// By offset.
    reads: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Kept {
    fn forget(&self) {
        let reads = std::mem::take(&mut *self.reads.lock());
        let bytes: usize = reads.values().map(|read| read.len()).sum();
        self.shared.left.fetch_add(bytes as u64, Relaxed);
    }

    /// Reads the range again, into what is kept of it. Kept reads whose second reading fails are
    /// dropped.
    fn refresh(&self, range: Range<u64>) {
        let mut again = AlignedBuf::zeroed((range.end - range.start) as usize);
        let readable = self.inner.read(range.start, &mut again).is_ok();
        let mut freed = 0;
        self.reads.lock().retain(|&start, read| {
            let end = start + read.len() as u64;
            let (from, to) = (start.max(range.start), end.min(range.end));
            if from >= to {
                return true;
            }
            if readable {
                let (at, of) = ((from - start) as usize, (from - range.start) as usize);
                let len = (to - from) as usize;
                read[at..at + len].copy_from_slice(&again[of..of + len]);
            } else {
                freed += read.len() as u64;
            }
            readable
        });
        self.shared.left.fetch_add(freed, Relaxed);
    }

    /// Whether only the log's header is read. It is never kept: reading it tells whether the device
    /// is there.
    fn is_header(&self, offset: u64, len: usize) -> bool {
        offset + len as u64 <= 2 * self.inner.info().logical_block.max(HEADER_BLOCK) as u64
    }

    fn before_change(&self) {
        if self.shared.phase.load(Relaxed) != OFF {
            self.forget();
        }
    }

    /// Serves a read from what is kept, of one read or of several that adjoin; false if it has to
    /// be read. `last`: what the read reaches the end of is dropped.
    fn answer(&self, offset: u64, buf: &mut [u8], last: bool) -> bool {
        let end = offset + buf.len() as u64;
        let mut reads = self.reads.lock();
        let Some((&first, _)) = reads.range(..=offset).next_back() else { return false };
        let mut reached = offset;
        for (&start, read) in reads.range(first..end) {
            if start > reached {
                return false;
            }
            reached = reached.max(start + read.len() as u64);
        }
        if reached < end {
            return false;
        }
        let mut passed = Vec::new();
        for (&start, read) in reads.range(first..end) {
            let read_end = start + read.len() as u64;
            let (from, to) = (start.max(offset), read_end.min(end));
            if from < to {
                let part = &read[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
            if read_end <= end {
                passed.push(start);
            }
        }
        for start in passed.into_iter().filter(|_| last) {
            let len = reads.remove(&start).map_or(0, |read| read.len());
            self.shared.left.fetch_add(len as u64, Relaxed);
        }
        true
    }

    fn keep(&self, offset: u64, bytes: &[u8]) {
        let taken =
            self.shared.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes.len() as u64));
        if taken.is_err() {
            return;
        }
        let before = self.reads.lock().insert(offset, bytes.into());
        self.shared.left.fetch_add(before.map_or(0, |before| before.len()) as u64, Relaxed);
    }
}

impl Device for Kept {
    firndb_device::forward!(inner: info, len, sync);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let phase = self.shared.phase.load(Relaxed);
        if phase == OFF || self.is_header(offset, buf.len()) {
            return self.inner.read(offset, buf);
        }
        if self.answer(offset, buf, phase == SERVING) {
            return Ok(());
        }
        self.inner.read(offset, buf)?;
        if phase == KEEPING {
            self.keep(offset, buf);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.before_change();
        self.inner.write(offset, data, durability)
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        if batch.iter().any(|io| matches!(io.op, IoOp::Write(..))) {
            self.before_change();
        }
        self.inner.submit(batch);
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.before_change();
        self.inner.grow(len, fill)
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.before_change();
        self.inner.shrink(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.before_change();
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_device::{Counting, MemoryDevice};

    const KIB: usize = 1024;

    /// A device of 64 KiB, and a function that returns how often it was read.
    fn device() -> (Arc<Counting>, Vec<u8>) {
        let memory = MemoryDevice::new("log");
        memory.grow(64 * KIB as u64, Fill::Sparse).unwrap();
        let bytes: Vec<u8> = (0..64 * KIB).map(|at| (at / 512 % 251) as u8).collect();
        memory.write(0, &bytes, Durability::Later).unwrap();
        (Arc::new(Counting::new(Arc::new(memory))), bytes)
    }

    fn read(device: &dyn Device, offset: usize, len: usize, wanted: &[u8]) {
        let mut buf = vec![0; len];
        device.read(offset as u64, &mut buf).unwrap();
        assert_eq!(buf, wanted[offset..offset + len], "{len} bytes at {offset}");
    }

    #[test]
    fn what_was_read_once_is_not_read_again_until_it_was_served() {
        let (counting, bytes) = device();
        let kept = ScanCache::of(vec![counting.clone()], 64 * KIB);
        let log = kept.devices().remove(0);
        (0..16).for_each(|at| read(&*log, at * 4 * KIB, 4 * KIB, &bytes));
        assert_eq!(counting.snapshot().reads.ops, 16);
        // A part of it, twice, and a range across two reads.
        (0..2).for_each(|_| read(&*log, 5 * KIB, KIB, &bytes));
        assert_eq!(counting.snapshot().reads.ops, 16);
        read(&*log, 6 * KIB, 4 * KIB, &bytes);
        assert_eq!(counting.snapshot().reads.ops, 16);
        kept.serve();
        (0..15).for_each(|at| read(&*log, at * 4 * KIB, 4 * KIB, &bytes));
        // The last one is shorter.
        read(&*log, 60 * KIB, KIB, &bytes);
        assert_eq!(counting.snapshot().reads.ops, 16);
        read(&*log, 0, 4 * KIB, &bytes);
        assert_eq!(counting.snapshot().reads.ops, 17, "it was served");
        read(&*log, 56 * KIB, 6 * KIB, &bytes);
        assert_eq!(counting.snapshot().reads.ops, 18, "only the end of it is kept");
        kept.end();
        read(&*log, 60 * KIB, KIB, &bytes);
        assert_eq!(counting.snapshot().reads.ops, 19);
        assert_eq!(kept.shared.left.load(Relaxed), 64 * KIB as u64, "nothing is left behind");
    }

    #[test]
    fn a_place_can_be_read_again_and_nothing_else_is() {
        let (counting, mut bytes) = device();
        let kept = ScanCache::of(vec![counting.clone()], 64 * KIB);
        let log = kept.devices().remove(0);
        (0..4).for_each(|at| read(&*log, at * 4 * KIB, 4 * KIB, &bytes));
        counting.write(5 * KIB as u64, &[7; 512], Durability::Later).unwrap();
        bytes[5 * KIB..5 * KIB + 512].fill(7);
        kept.forgetting().forget(0, 5 * KIB as u64..5 * KIB as u64 + 512);
        (0..4).for_each(|at| read(&*log, at * 4 * KIB, 4 * KIB, &bytes));
        assert_eq!(counting.snapshot().reads.ops, 5);
        assert_eq!(kept.shared.left.load(Relaxed), 48 * KIB as u64);
        kept.end();
        assert_eq!(kept.shared.left.load(Relaxed), 64 * KIB as u64);
    }

    #[test]
    fn the_budget_is_kept_and_a_write_is_seen() {
        let (counting, mut bytes) = device();
        let kept = ScanCache::of(vec![counting.clone()], 10 * KIB);
        let log = kept.devices().remove(0);
        for _ in 0..2 {
            (0..4).for_each(|at| read(&*log, at * 4 * KIB, 4 * KIB, &bytes));
        }
        assert_eq!(counting.snapshot().reads.ops, 4 + 2, "two of the four are kept");
        bytes[..512].fill(9);
        log.write(0, &bytes[..512], Durability::Later).unwrap();
        read(&*log, 0, 4 * KIB, &bytes);
        // Another first pass begins anew.
        let log = kept.devices().remove(0);
        counting.write(0, &[8; 512], Durability::Later).unwrap();
        bytes[..512].fill(8);
        read(&*log, 0, 4 * KIB, &bytes);
    }
}
