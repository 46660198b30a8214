//! Reading a stream ahead of whoever takes its blocks apart, on a thread of its own.
//!
//! So that neither waits for the other as long as both are equally fast: checking and merging what was read takes as long
//! as a fast drive takes to read it. The thread reads forward only, into buffers that come back when they are used up;
//! memory is theirs, and they are as many as they were. Whoever drops [`Ahead`] waits for one read at most.

use crate::layout::Geometry;
use crate::{LogError, LogErrorKind};
use firn_base::sync::thread::{self, JoinHandle};
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_device::{AlignedBuf, Device};
use std::collections::VecDeque;
use std::ops::Range;

/// A part of a stream in memory.
pub(crate) struct Chunk {
    pub buf: AlignedBuf,
    /// Linear position of its first byte.
    pub start: u64,
    pub len: usize,
}

impl Chunk {
    /// Nothing, before `start`.
    pub fn empty(buf: AlignedBuf, start: u64) -> Chunk {
        Chunk { buf, start, len: 0 }
    }

    /// Reads what comes first in `rest`, as much as `buf` takes and lies in one piece on the device.
    pub fn read(
        device: &dyn Device,
        geometry: &Geometry,
        rest: &Range<u64>,
        mut buf: AlignedBuf,
    ) -> Result<Chunk, LogError> {
        let start = rest.start;
        let to_wrap = geometry.ring_bytes() - start % geometry.ring_bytes();
        let len = (buf.len() as u64).min(to_wrap).min(rest.end - rest.start) as usize;
        // Whole units: positions start at units, and a last block's unit is there as a whole.
        let whole = len.next_multiple_of(geometry.unit as usize);
        device.read(geometry.offset(start), &mut buf[..whole])?;
        Ok(Chunk { buf, start, len })
    }
}

/// What the thread and its reader share.
struct Shared {
    state: Mutex<State>,
    /// A chunk, a buffer, or the end.
    moved: Condvar,
}

struct State {
    /// In order.
    ready: VecDeque<Chunk>,
    spare: Vec<AlignedBuf>,
    /// The thread reads no more: all is read, a read failed, or it panicked.
    ended: bool,
    failed: Option<LogError>,
    /// Nobody wants more.
    stop: bool,
}

/// A thread that reads ahead.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins to read `rest` into `spare`; gives the buffers back if the system has no thread to give.
    pub fn start(
        device: Arc<dyn Device>,
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
        let theirs = Arc::clone(&shared);
        let body = move || {
            let _end = EndsWith(&theirs);
            theirs.read(&*device, &geometry, rest);
        };
        match thread::spawn("firn-log-read", body) {
            Ok(thread) => Ok(Ahead { shared, thread: Some(thread) }),
            Err(_) => Err(std::mem::take(&mut shared.state.lock().spare)),
        }
    }

    /// Takes a buffer back that is used up.
    pub fn give_back(&self, used: AlignedBuf) {
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
            // Its panic, if any, was told as an error of the read.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(&self, device: &dyn Device, geometry: &Geometry, mut rest: Range<u64>) {
        while rest.start < rest.end {
            let Some(buf) = self.spare() else { return };
            let outcome = Chunk::read(device, geometry, &rest, buf);
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

    /// A buffer to read into, as soon as there is one; `None` if nobody wants more.
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

/// Says that the thread has ended, however it did.
struct EndsWith<'a>(&'a Shared);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ended = true;
        if thread::panicking() {
            let message = "reading the log ahead panicked";
            state.failed.get_or_insert_with(|| LogError::new(LogErrorKind::Failed, message));
        }
        self.0.moved.notify_all();
    }
}
