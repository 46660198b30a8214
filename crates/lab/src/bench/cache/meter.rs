//! What a device was asked for, and how long it had something to do.

use firndb_base::clock::{self, Moment};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{
    Device, DeviceError, DeviceInfo, Durability, Fill, InFlight, Io, IoOp, OwnedRead, ReadDone,
};
use std::time::Duration;

/// A request of at least this number of bytes is a large one.
const LARGE: u64 = 64 << 10;
/// A write that begins no further behind the last one goes on with it: pages are skipped, headers
/// and padding.
const SKIPPED_AT_MOST: u64 = 16 << 10;

/// What was asked of a device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Pages in the requests.
    pub read_pages: u64,
    pub write_pages: u64,
    /// Bytes of large writes that began where the one before ended, or up to as much further on.
    pub sequential_write_bytes: u64,
    /// Reads of less than a large request, and their bytes.
    pub small_reads: u64,
    pub small_read_bytes: u64,
    /// Writes of less, and that do not go on where the one before ended.
    pub scattered_writes: u64,
    pub scattered_write_bytes: u64,
    /// Time with a request under way.
    pub busy: Duration,
}

impl Counts {
    /// Requests since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            read_pages: self.read_pages - earlier.read_pages,
            write_pages: self.write_pages - earlier.write_pages,
            sequential_write_bytes: self.sequential_write_bytes - earlier.sequential_write_bytes,
            small_reads: self.small_reads - earlier.small_reads,
            small_read_bytes: self.small_read_bytes - earlier.small_read_bytes,
            scattered_writes: self.scattered_writes - earlier.scattered_writes,
            scattered_write_bytes: self.scattered_write_bytes - earlier.scattered_write_bytes,
            busy: self.busy - earlier.busy,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    outstanding: usize,
    /// Since when there is something to do.
    since: Option<Moment>,
    /// Where the last large write ended, and the last of any size.
    large_end: u64,
    end: u64,
}

/// Passes everything on, and counts it.
#[derive(Debug)]
pub struct Meter {
    inner: Arc<dyn Device>,
    /// Bytes that a page takes on this device.
    page_bytes: u64,
    /// A leaf; never held during I/O.
    state: Mutex<State>,
}

impl Meter {
    pub fn new(inner: Arc<dyn Device>, page_bytes: u64) -> Meter {
        Meter { inner, page_bytes, state: Mutex::new(State::default()) }
    }

    /// What was asked for until now.
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        let mut counts = state.counts;
        if let Some(since) = state.since {
            counts.busy += since.elapsed();
        }
        counts
    }

    fn pages(&self, bytes: u64) -> u64 {
        (bytes / self.page_bytes).max(1)
    }

    fn note_read(&self, state: &mut State, bytes: u64) {
        state.counts.reads += 1;
        state.counts.read_bytes += bytes;
        state.counts.read_pages += self.pages(bytes);
        if bytes < LARGE {
            state.counts.small_reads += 1;
            state.counts.small_read_bytes += bytes;
        }
    }

    fn note_write(&self, state: &mut State, offset: u64, bytes: u64) {
        state.counts.writes += 1;
        state.counts.write_bytes += bytes;
        state.counts.write_pages += self.pages(bytes);
        if bytes >= LARGE {
            if (state.large_end..=state.large_end + LARGE).contains(&offset) {
                state.counts.sequential_write_bytes += bytes;
            }
            state.large_end = offset + bytes;
        } else if !(state.end..=state.end + SKIPPED_AT_MOST).contains(&offset) {
            state.counts.scattered_writes += 1;
            state.counts.scattered_write_bytes += bytes;
        }
        state.end = offset + bytes;
    }

    fn during<T>(&self, note: impl FnOnce(&mut State), call: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock();
            note(&mut state);
            state.outstanding += 1;
            if state.outstanding == 1 {
                state.since = Some(clock::now());
            }
        }
        let outcome = call();
        let mut state = self.state.lock();
        state.outstanding -= 1;
        if state.outstanding == 0 {
            let since = state.since.take().expect("set with the first request");
            state.counts.busy += since.elapsed();
        }
        outcome
    }
}

impl Device for Meter {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = buf.len() as u64;
        self.during(|state| self.note_read(state, bytes), || self.inner.read(offset, buf))
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        self.during(
            |state| self.note_write(state, offset, bytes),
            || self.inner.write(offset, data, durability),
        )
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.during(|_| {}, || self.inner.sync())
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        let asked: Vec<(u64, u64, bool)> = batch
            .iter()
            .map(|io| match &io.op {
                IoOp::Read(buf) => (io.offset, buf.len() as u64, true),
                IoOp::Write(data, _) => (io.offset, data.len() as u64, false),
            })
            .collect();
        let note = |state: &mut State| {
            for (offset, bytes, reads) in &asked {
                match reads {
                    true => self.note_read(state, *bytes),
                    false => self.note_write(state, *offset, *bytes),
                }
            }
        };
        self.during(note, || self.inner.submit(batch));
    }
    /// Time counts as busy while a thread waits for a read.
    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        let bytes = read.len as u64;
        let note = |state: &mut State| self.note_read(state, bytes);
        self.during(note, || self.inner.begin_read(in_flight, read));
    }
    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        let reads: Vec<OwnedRead> = reads.collect();
        let lens: Vec<u64> = reads.iter().map(|read| read.len as u64).collect();
        let note = |state: &mut State| lens.iter().for_each(|bytes| self.note_read(state, *bytes));
        self.during(note, || self.inner.begin_reads(in_flight, &mut reads.into_iter()));
    }
    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        self.during(|_| {}, || self.inner.next_read(in_flight, until))
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.inner.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.inner.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::simulation::simulate;
    use firndb_device::MemoryDevice;
    use firndb_emulate::{Emulated, profiles};

    #[test]
    fn requests_pages_and_sequential_bytes_are_counted_and_waiting_is_not_twice() {
        let profile = profiles::find("x25-e").unwrap();
        let (counts, _) = simulate(1, 1, move || {
            let memory = Arc::new(MemoryDevice::new("m"));
            memory.grow(1 << 20, Fill::Sparse).unwrap();
            let meter = Meter::new(Arc::new(Emulated::new(memory, &profile, 1).unwrap()), 4096);
            let data = vec![1; 128 << 10];
            meter.write(0, &data, Durability::Durable).unwrap();
            meter.write(128 << 10, &data, Durability::Durable).unwrap();
            meter.write(600 << 10, &data[..4096], Durability::Durable).unwrap();
            let mut bufs = [[0; 4096]; 2];
            let [a, b] = &mut bufs;
            let before = meter.counts().busy;
            let mut batch = [
                Io { offset: 0, op: IoOp::Read(a), outcome: Ok(()) },
                Io { offset: 8192, op: IoOp::Read(b), outcome: Ok(()) },
            ];
            meter.submit(&mut batch);
            let counts = meter.counts();
            // Side by side: as long as one.
            assert!((counts.busy - before).as_micros() < 300, "{:?}", counts.busy - before);
            Ok(counts)
        })
        .unwrap();
        assert_eq!((counts.reads, counts.writes), (2, 3));
        assert_eq!((counts.read_pages, counts.write_pages), (2, 65));
        assert_eq!(counts.sequential_write_bytes, 256 << 10);
        assert_eq!((counts.small_reads, counts.small_read_bytes), (2, 8192));
        // The one at 600 KiB, not the large ones.
        assert_eq!((counts.scattered_writes, counts.scattered_write_bytes), (1, 4096));
    }
}
