//! Read-ahead of a stream on a thread of its own.
//!
//! Neither the scan nor the thread waits for the other as long as both are equally fast: checking
//! and merging the blocks takes about as long as a fast drive takes to read them. The thread reads
//! forward only, into buffers that the scan returns when it has used them up; the number of buffers
//! is fixed. Dropping [`Ahead`] waits for at most one read.

use crate::error::{LogError, LogErrorKind};
use crate::layout::Geometry;
use crate::read::medium::Medium;
use firndb_base::sync::thread::{self, JoinHandle};
use firndb_base::sync::{Arc, Condvar, Mutex};
use firndb_device::AlignedBuf;
use std::collections::VecDeque;
use std::ops::Range;

/// A part of a stream in memory.
pub(crate) struct Chunk {
    pub buf: AlignedBuf,
    /// Linear position of its first byte.
    pub start: u64,
    pub len: usize,
    /// Offsets in the chunk of units that cannot be read.
    unreadable: Vec<usize>,
}

impl Chunk {
    /// An empty chunk before `start`.
    pub fn empty(buf: AlignedBuf, start: u64) -> Chunk {
        Chunk { buf, start, len: 0, unreadable: Vec::new() }
    }

    /// Reads the first part of `rest`, as much as `buf` takes and is contiguous on the device.
    pub fn read(
        medium: &Medium,
        geometry: &Geometry,
        rest: &Range<u64>,
        mut buf: AlignedBuf,
    ) -> Result<Chunk, LogError> {
        let start = rest.start;
        let to_wrap = geometry.ring_bytes() - start % geometry.ring_bytes();
        let len = (buf.len() as u64).min(to_wrap).min(rest.end - rest.start) as usize;
        // Whole units: positions start at units, and a last block's unit is there as a whole.
        let whole = len.next_multiple_of(geometry.unit as usize);
        let unreadable = medium.read(geometry.offset(start), &mut buf[..whole])?;
        Ok(Chunk { buf, start, len, unreadable })
    }

    /// Whether the unit that begins at this offset of the chunk could not be read.
    pub fn is_unreadable(&self, at: usize) -> bool {
        !self.unreadable.is_empty() && self.unreadable.contains(&at)
    }
}

/// State shared by the thread and its reader.
struct Shared {
    state: Mutex<State>,
    /// Signals a chunk, a buffer, or the end.
    moved: Condvar,
}

struct State {
    /// In order.
    ready: VecDeque<Chunk>,
    spare: Vec<AlignedBuf>,
    /// The thread reads no more: all is read, a read failed, or it panicked.
    ended: bool,
    failed: Option<LogError>,
    /// The reader needs no more.
    stop: bool,
}

/// A thread that reads ahead.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins to read `rest` into `spare`. Returns the buffers if the system cannot start a thread.
    pub fn start(
        medium: Arc<Medium>,
        geometry: Geometry,
        rest: Range<u64>,
        spare: Vec<AlignedBuf>,
    ) -> Result<Ahead, Vec<AlignedBuf>> {
        let state = State {
            ready: VecDeque::with_capacity(spare.len()),
            spare,
            ended: false,
            failed: None,
            stop: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), moved: Condvar::new() });
        let thread_shared = Arc::clone(&shared);
        let body = move || {
            let _end = EndNotice(&thread_shared);
            thread_shared.read(&medium, &geometry, rest);
        };
        match thread::spawn("firn-log-read", body) {
            Ok(thread) => Ok(Ahead { shared, thread: Some(thread) }),
            Err(_) => Err(std::mem::take(&mut shared.state.lock().spare)),
        }
    }

    /// Returns a buffer that is used up.
    pub fn return_buffer(&self, used: AlignedBuf) {
        self.shared.state.lock().spare.push(used);
        self.shared.moved.notify_all();
    }

    /// The next chunk, as soon as it is read; `None` at the end.
    pub fn next(&self) -> Result<Option<Chunk>, LogError> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(chunk) = state.ready.pop_front() {
                return Ok(Some(chunk));
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.ended {
                return Ok(None);
            }
            self.shared.moved.wait(&mut state);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.moved.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was returned as an error of the read.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, medium: &Medium, geometry: &Geometry, mut rest: Range<u64>) {
        while rest.start < rest.end {
            let Some(buf) = self.spare() else { return };
            let outcome = Chunk::read(medium, geometry, &rest, buf);
            let mut state = self.state.lock();
            match outcome {
                Ok(chunk) => {
                    rest.start += chunk.len as u64;
                    state.ready.push_back(chunk);
                }
                Err(error) => {
                    state.failed = Some(error);
                    return;
                }
            }
            self.moved.notify_all();
        }
    }

    /// A buffer to read into, as soon as there is one; `None` if the reader needs no more.
    fn spare(&self) -> Option<AlignedBuf> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(buf) = state.spare.pop() {
                return Some(buf);
            }
            self.moved.wait(&mut state);
        }
    }
}

/// Marks the thread as ended, also if it panics.
struct EndNotice<'a>(&'a Shared);

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = true;
        if thread::panicking() {
            let message = "reading the log ahead panicked";
            state.failed.get_or_insert_with(|| LogErrorKind::Failed.error(message));
        }
        self.0.moved.notify_all();
    }
}
