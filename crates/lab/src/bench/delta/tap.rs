//! What the store asks of its device: requests by kind, replayed on emulated drives.

use super::cell::KindCount;
use super::timed::Timed;
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{Device, DeviceError, Durability, Io, IoOp, forward};
use firndb_page_comparators::medium::{Direction, Kind, Request, Watch};
use std::collections::BTreeMap;

/// What was asked for since the measurement began.
#[derive(Clone, Debug, Default)]
pub struct Tapped {
    pub requests: Vec<KindCount>,
    /// Virtual seconds of all requests, by drive.
    pub seconds: BTreeMap<String, f64>,
}

struct State {
    counts: BTreeMap<Kind, u64>,
    /// Where the last request of each direction ended: reads, writes.
    ends: [u64; 2],
    timed: Timed,
}

/// Passes everything on, and notes it. Syncs are not noted: drives are replayed with durable
/// writes, as they are for the comparators.
pub struct Tap {
    inner: Arc<dyn Device>,
    /// A leaf; never held during I/O.
    state: Mutex<State>,
}

impl Tap {
    pub fn new(inner: Arc<dyn Device>, timed: Timed) -> Tap {
        Tap { inner, state: Mutex::new(State { counts: BTreeMap::new(), ends: [u64::MAX; 2], timed }) }
    }

    /// The measurement begins.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.counts.clear();
        state.timed.restart();
    }

    /// What was asked for since then.
    pub fn tapped(&self) -> Tapped {
        let state = self.state.lock();
        let kinds = state.counts.iter();
        let requests = kinds
            .map(|(kind, count)| (kind.direction == Direction::Write, kind.sequential, kind.bytes, *count));
        Tapped { requests: requests.collect(), seconds: state.timed.seconds() }
    }

    fn note(&self, direction: Direction, offset: u64, bytes: usize) {
        let (state, bytes) = (&mut *self.state.lock(), bytes as u64);
        let end = &mut state.ends[direction as usize];
        let kind = Kind { direction, sequential: *end == offset, bytes };
        *end = offset + bytes;
        *state.counts.entry(kind).or_default() += 1;
        state.timed.request(Request { direction, offset, bytes });
    }
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl Device for Tap {
    // Reads in flight are left out: each is a read then.
    forward!(inner: info, len, sync, grow, shrink, discard);
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.note(Direction::Read, offset, buf.len());
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.note(Direction::Write, offset, data.len());
        self.inner.write(offset, data, durability)
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        for io in batch.iter() {
            match &io.op {
                IoOp::Read(buf) => self.note(Direction::Read, io.offset, buf.len()),
                IoOp::Write(data, _) => self.note(Direction::Write, io.offset, data.len()),
            }
        }
        self.inner.submit(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_device::{Fill, MemoryDevice};

    #[test]
    fn requests_since_the_restart_are_counted_by_kind_and_take_their_time() {
        let memory = Arc::new(MemoryDevice::new("m"));
        memory.grow(1 << 20, Fill::Sparse).unwrap();
        let tap = Tap::new(memory, Timed::new(&["myers-a"], 1).unwrap());
        tap.write(0, &[1; 4096], Durability::Later).unwrap();
        tap.restart();
        tap.write(4096, &[2; 4096], Durability::Later).unwrap();
        let mut buf = [0; 4096];
        let op = IoOp::Read(&mut buf);
        tap.submit(&mut [Io { offset: 4096, op, outcome: Ok(()) }]);
        let tapped = tap.tapped();
        assert_eq!(tapped.requests, [(false, false, 4096, 1), (true, true, 4096, 1)]);
        assert!(tapped.seconds["myers-a"] > 0.000_4, "{tapped:?}");
        assert_eq!(buf, [2; 4096], "the device below has it");
    }
}
