//! Exact counts of what was asked of a device.

use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp};
use crate::error::DeviceError;
use crate::in_flight::{InFlight, OwnedRead, ReadDone};
use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering};

/// Passes everything on to another device and counts it.
///
/// What failed is counted as well, and once more under `errors`. The counters are statistics: while
/// other threads do I/O, a snapshot may hold one call's operation and not yet its bytes.
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Device>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Tally {
    ops: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    reads: Tally,
    writes: Tally,
    durable_writes: Tally,
    syncs: AtomicU64,
    batches: AtomicU64,
    grows: Tally,
    shrinks: AtomicU64,
    discards: Tally,
    errors: AtomicU64,
    /// Counted when a write has ended.
    writes_by_size: [AtomicU64; DeviceCounts::SIZES],
    /// Calls of all kinds, a batch as one.
    calls_begun: AtomicU64,
    /// Of `calls_begun`, those that have ended.
    calls_ended: AtomicU64,
}

/// A call under way; ends when it is dropped, also by a panic in the device.
struct UnderWay<'a>(&'a Counters);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls_ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Operations of a kind and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls, or transfers of batches.
    pub ops: u64,
    /// Bytes they were for.
    pub bytes: u64,
}

/// What a [`Counting`] device counted, or the difference of two such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads, those in batches included.
    pub reads: Count,
    /// All writes, durable ones and those in batches included.
    pub writes: Count,
    /// Writes that were to be durable when they return.
    pub durable_writes: Count,
    /// Syncs.
    pub syncs: u64,
    /// Batches of transfers; each transfer is counted by itself as well.
    pub batches: u64,
    /// Growths that succeeded, with the bytes by which the device became longer.
    pub grows: Count,
    /// Cuts.
    pub shrinks: u64,
    /// Discards.
    pub discards: Count,
    /// Operations of any kind that failed.
    pub errors: u64,
    /// Writes by size: index i counts those of at least 512 * 2^i bytes and less than twice as
    /// many; the last one larger ones, too.
    pub writes_by_size: [u64; DeviceCounts::SIZES],
}

impl Count {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Count) -> Count {
        Count { ops: self.ops - earlier.ops, bytes: self.bytes - earlier.bytes }
    }
}

impl DeviceCounts {
    /// Classes of size: 512 B up to 16 MiB and more.
    pub const SIZES: usize = 16;

    /// What was added since `earlier`, a snapshot of the same device.
    #[must_use]
    pub fn since(&self, earlier: &DeviceCounts) -> DeviceCounts {
        DeviceCounts {
            reads: self.reads.since(earlier.reads),
            writes: self.writes.since(earlier.writes),
            durable_writes: self.durable_writes.since(earlier.durable_writes),
            syncs: self.syncs - earlier.syncs,
            batches: self.batches - earlier.batches,
            grows: self.grows.since(earlier.grows),
            shrinks: self.shrinks - earlier.shrinks,
            discards: self.discards.since(earlier.discards),
            errors: self.errors - earlier.errors,
            writes_by_size: std::array::from_fn(|i| self.writes_by_size[i] - earlier.writes_by_size[i]),
        }
    }

    /// Calls of all kinds, each transfer of a batch for itself.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let transfers = self.reads.ops + self.writes.ops;
        transfers + self.syncs + self.grows.ops + self.shrinks + self.discards.ops
    }

    /// Writes that wait for the medium: durable writes and syncs.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.durable_writes.ops + self.syncs
    }
}

fn size_class(bytes: usize) -> usize {
    ((bytes / 512).max(1).ilog2() as usize).min(DeviceCounts::SIZES - 1)
}

impl Tally {
    fn add(&self, bytes: u64) {
        self.ops.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn read(&self) -> Count {
        Count { ops: self.ops.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Counting {
    /// Counts what is asked of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Counting {
        Counting { inner, counters: Counters::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> DeviceCounts {
        let counters = &self.counters;
        DeviceCounts {
            reads: counters.reads.read(),
            writes: counters.writes.read(),
            durable_writes: counters.durable_writes.read(),
            syncs: counters.syncs.load(Ordering::Relaxed),
            batches: counters.batches.load(Ordering::Relaxed),
            grows: counters.grows.read(),
            shrinks: counters.shrinks.load(Ordering::Relaxed),
            discards: counters.discards.read(),
            errors: counters.errors.load(Ordering::Relaxed),
            writes_by_size: std::array::from_fn(|i| counters.writes_by_size[i].load(Ordering::Relaxed)),
        }
    }

    /// Calls that have ended, of all kinds, a batch as one; and whether another one is under way. A
    /// watch that finds a call under way, and as many ended as some time ago, knows that none has
    /// ended in between.
    #[must_use]
    pub fn calls_ended(&self) -> (u64, bool) {
        // In this order: a call that ends in between is taken for one under way, never one under
        // way for none.
        let ended = self.counters.calls_ended.load(Ordering::Relaxed);
        (ended, self.counters.calls_begun.load(Ordering::Relaxed) != ended)
    }

    fn begin(&self) -> UnderWay<'_> {
        self.counters.calls_begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.counters)
    }

    fn wrote(&self, len: usize) {
        self.counters.writes_by_size[size_class(len)].fetch_add(1, Ordering::Relaxed);
    }

    fn count_write(&self, len: usize, durability: Durability) {
        self.counters.writes.add(len as u64);
        if durability == Durability::Durable {
            self.counters.durable_writes.add(len as u64);
        }
    }

    fn counted<T>(&self, outcome: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if outcome.is_err() {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

impl Device for Counting {
    crate::forward!(inner: read_otherwise);

    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let _call = self.begin();
        self.counters.reads.add(buf.len() as u64);
        self.counted(self.inner.read(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let _call = self.begin();
        self.count_write(data.len(), durability);
        let outcome = self.inner.write(offset, data, durability);
        self.wrote(data.len());
        self.counted(outcome)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let _call = self.begin();
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let outcome = self.inner.sync();
        self.counted(outcome)
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let _call = self.begin();
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        for io in &*batch {
            match &io.op {
                IoOp::Read(buf) => self.counters.reads.add(buf.len() as u64),
                IoOp::Write(data, durability) => self.count_write(data.len(), *durability),
            }
        }
        self.inner.submit(batch);
        for io in &*batch {
            if let IoOp::Write(data, _) = &io.op {
                self.wrote(data.len());
            }
        }
        let failed = batch.iter().filter(|io| io.outcome.is_err()).count();
        self.counters.errors.fetch_add(failed as u64, Ordering::Relaxed);
    }

    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        let _call = self.begin();
        self.counters.reads.add(read.len as u64);
        self.inner.begin_read(in_flight, read);
    }

    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        let _call = self.begin();
        let counted = |read: &OwnedRead| self.counters.reads.add(read.len as u64);
        self.inner.begin_reads(in_flight, &mut reads.inspect(counted));
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        let _call = self.begin();
        let done = self.inner.next_read(in_flight, until)?;
        let outcome = self.counted(done.outcome);
        Some(ReadDone { outcome, ..done })
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let _call = self.begin();
        let before = self.inner.len();
        let outcome = self.counted(self.inner.grow(len, fill));
        if outcome.is_ok() {
            self.counters.grows.add(self.inner.len().saturating_sub(before));
        }
        outcome
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let _call = self.begin();
        self.counters.shrinks.fetch_add(1, Ordering::Relaxed);
        self.counted(self.inner.shrink(len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _call = self.begin();
        self.counters.discards.add(len);
        self.counted(self.inner.discard(offset, len))
    }
}
