//! Read-ahead of a stream by threads of its own: up to [`READS`] reads are in flight, and the
//! thread that has read a chunk also checks its blocks ([`Run`]) while the others still read.
//!
//! A buffer is at any time in one place, and owned there:
//! 1. among the spare ones;
//! 2. with a thread, which took it together with the range to read into it;
//! 3. in `ready`, read and checked, until the reader takes it;
//! 4. with the reader, as its current chunk. The cursor reads payloads there in place. When the
//!    reader has examined the whole chunk and takes the next one, it returns the buffer to the
//!    spare ones: what the cursor still needs of it, it has copied before (`merge.rs`).
//!
//! Invariants:
//! * Ranges are taken in the stream's order, each with a buffer, under the lock. So the chunk that
//!   the reader waits for is being read, or a buffer is spare: two buffers are enough.
//! * Chunks are handed over in the stream's order, in whatever order the reads end. A read that
//!   fails is handed over in its place, behind all that was read before it.
//! * No buffer is made after the beginning.
//!
//! Dropping [`Ahead`] waits for the reads in flight.

use crate::error::{LogError, LogErrorKind};
use crate::read::epochs::EpochTable;
use crate::read::member::Member;
use crate::read::runs::Run;
use firndb_base::sync::thread::{self, JoinHandle};
use firndb_base::sync::{Arc, Condvar, Mutex};
use firndb_device::AlignedBuf;
use std::collections::BTreeMap;
use std::ops::Range;

/// Reads in flight for each stream.
pub(crate) const READS: usize = 3;
/// Bytes of a stream's first read. Each is twice as long as the one before, up to a whole buffer: a
/// reader that wants a few records only has not much more read for it.
const FIRST_READ: usize = 128 << 10;

/// A stream as it is read: its blocks, and the rules which of them are log.
#[derive(Clone)]
pub(crate) struct Stream {
    pub member: Arc<Member>,
    pub epochs: Arc<EpochTable>,
}

/// A part of a stream in memory.
pub(crate) struct Chunk {
    pub buf: AlignedBuf,
    /// Linear position of its first byte.
    pub start: u64,
    pub len: usize,
    /// By ascending offset.
    pub runs: Vec<Run>,
    /// Offsets in the chunk of units that cannot be read.
    unreadable: Vec<usize>,
}

impl Chunk {
    /// An empty chunk before `start`.
    pub fn empty(buf: AlignedBuf, start: u64) -> Chunk {
        Chunk { buf, start, len: 0, runs: Vec::new(), unreadable: Vec::new() }
    }

    /// Length of the first part of `rest`: at most `most` bytes, contiguous on the device.
    pub fn part(stream: &Stream, rest: &Range<u64>, most: usize) -> usize {
        let ring = stream.member.geometry.ring_bytes();
        let to_wrap = ring - rest.start % ring;
        (most as u64).min(to_wrap).min(rest.end - rest.start) as usize
    }

    /// Reads and checks `len` bytes from `start` on, as [`Chunk::part`] returned them.
    pub fn read(stream: &Stream, start: u64, len: usize, mut buf: AlignedBuf) -> Result<Chunk, LogError> {
        let member = &*stream.member;
        // Whole units: positions start at units, and a last block's unit is there as a whole.
        let whole = len.next_multiple_of(member.geometry.unit as usize);
        let offset = member.geometry.offset(start);
        let unreadable = member.sections.medium().read(offset, &mut buf[..whole])?;
        let runs = Run::all(member, &stream.epochs, start, &buf[..len]);
        Ok(Chunk { buf, start, len, runs, unreadable })
    }

    /// Whether the unit that begins at this offset of the chunk could not be read.
    pub fn is_unreadable(&self, at: usize) -> bool {
        !self.unreadable.is_empty() && self.unreadable.contains(&at)
    }
}

/// State shared by the threads and their reader.
struct Shared {
    stream: Stream,
    state: Mutex<State>,
    /// Signals a chunk or a buffer.
    moved: Condvar,
}

struct State {
    /// What no thread has taken.
    rest: Range<u64>,
    /// Bytes of the next read, if the stream has as many.
    next_read: usize,
    spare: Vec<AlignedBuf>,
    /// By linear position.
    ready: BTreeMap<u64, Result<Chunk, LogError>>,
    /// The reader needs no more, or a read failed.
    stop: bool,
}

/// Threads that read ahead.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Ahead {
    /// Begins to read `rest` into `spare`. Returns the buffers if the system cannot start a thread.
    pub fn start(stream: Stream, rest: Range<u64>, spare: Vec<AlignedBuf>) -> Result<Ahead, Vec<AlignedBuf>> {
        assert!(!spare.is_empty(), "one buffer beside that of the reader");
        let reads = READS.min(spare.len());
        let ready = BTreeMap::new();
        let state = State { rest, next_read: FIRST_READ, spare, ready, stop: false };
        let shared = Arc::new(Shared { stream, state: Mutex::new(state), moved: Condvar::new() });
        let mut threads = Vec::with_capacity(reads);
        for _ in 0..reads {
            let shared = Arc::clone(&shared);
            match thread::spawn("firn-log-read", move || shared.read()) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        if threads.is_empty() {
            return Err(std::mem::take(&mut shared.state.lock().spare));
        }
        Ok(Ahead { shared, threads })
    }

    /// Returns a buffer that is used up.
    pub fn return_buffer(&self, used: AlignedBuf) {
        self.shared.state.lock().spare.push(used);
        self.shared.moved.notify_all();
    }

    /// The chunk at linear position `start`, as soon as it is read: the next one after that which
    /// was returned last.
    pub fn next(&self, start: u64) -> Result<Chunk, LogError> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(outcome) = state.ready.remove(&start) {
                return outcome;
            }
            self.shared.moved.wait(&mut state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.moved.notify_all();
        for thread in self.threads.drain(..) {
            // Its panic, if any, was returned as an error of the read.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Reads parts of the stream until there is none left.
    fn read(&self) {
        while let Some((start, len, buf)) = self.take() {
            let _notice = PanicNotice { shared: self, start };
            self.hand_over(start, Chunk::read(&self.stream, start, len, buf));
        }
    }

    /// The next part to read, with a buffer, as soon as there is one; `None` if the reader needs no
    /// more.
    fn take(&self) -> Option<(u64, usize, AlignedBuf)> {
        let mut state = self.state.lock();
        loop {
            if state.stop || state.rest.is_empty() {
                return None;
            }
            if let Some(buf) = state.spare.pop() {
                let start = state.rest.start;
                let len = Chunk::part(&self.stream, &state.rest, state.next_read.min(buf.len()));
                state.rest.start += len as u64;
                state.next_read = (2 * state.next_read).min(buf.len());
                return Some((start, len, buf));
            }
            self.moved.wait(&mut state);
        }
    }

    fn hand_over(&self, start: u64, outcome: Result<Chunk, LogError>) {
        let mut state = self.state.lock();
        // What follows a failed read is of no use to the reader.
        state.stop |= outcome.is_err();
        state.ready.insert(start, outcome);
        drop(state);
        self.moved.notify_all();
    }
}

/// Hands over an error if the thread panics.
struct PanicNotice<'a> {
    shared: &'a Shared,
    start: u64,
}

impl Drop for PanicNotice<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = LogErrorKind::Failed.error("reading the log ahead panicked");
            self.shared.hand_over(self.start, Err(error));
        }
    }
}
