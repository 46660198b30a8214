//! Staging buffers: aligned memory for images that are being written to the tier.
//!
//! There are a few buffers, made with the pool and part of its budget: they bound how many batches
//! are under way, and the memory that these take. The thread that holds one
//! writes a batch and *never blocks on a latch*; so a thread that waits here for a buffer, or for
//! the end of a write, may hold latches without a deadlock. It waits for a device, though: the only
//! exclusive latches it may hold are of frames that it fills or discards.

use crate::frame::state::Frame;
use crate::ranks;
use firndb_base::clock;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Condvar, Mutex, before_device};
use firndb_device::AlignedBuf;
use std::time::Duration;

/// The buffers of a pool.
pub(crate) struct Staging {
    /// Protects the buffers that are not in use.
    idle: Mutex<Vec<AlignedBuf>>,
    /// Notified whenever a buffer is returned, after all writing flags of its batch.
    returned: Condvar,
    count: usize,
    /// Buffers returned so far: batches that have ended, empty ones included.
    ended: AtomicU64,
    /// Most buffers that were in use at once.
    deepest: AtomicU64,
}

impl Staging {
    /// `count` buffers of `bytes` each.
    pub(crate) fn new(count: usize, bytes: usize) -> Staging {
        let idle = (0..count).map(|_| AlignedBuf::zeroed(bytes)).collect();
        Staging {
            idle: ranks::IDLE.mutex(idle),
            returned: Condvar::new(),
            count,
            ended: AtomicU64::new(0),
            deepest: AtomicU64::new(0),
        }
    }

    /// Buffers in all.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A buffer; waits for one.
    pub(crate) fn take(&self) -> AlignedBuf {
        before_device();
        let mut idle = self.idle.lock();
        loop {
            match self.pop(&mut idle) {
                Some(buffer) => return buffer,
                None => self.returned.wait(&mut idle),
            }
        }
    }
    /// A buffer, if one is idle.
    pub(crate) fn try_take(&self) -> Option<AlignedBuf> {
        self.pop(&mut self.idle.lock())
    }
    fn pop(&self, idle: &mut Vec<AlignedBuf>) -> Option<AlignedBuf> {
        let buffer = idle.pop();
        self.deepest.fetch_max((self.count - idle.len()) as u64, Relaxed);
        buffer
    }
    /// Returns a buffer, after the writing flags of its batch were released.
    pub(crate) fn put_back(&self, buffer: AlignedBuf) {
        let mut idle = self.idle.lock();
        assert!(idle.len() < self.count, "every buffer comes back once");
        idle.push(buffer);
        self.ended.fetch_add(1, Relaxed);
        self.returned.notify_all();
    }

    /// Batches that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Relaxed)
    }
    /// Most batches that were under way at once.
    pub(crate) fn deepest(&self) -> u64 {
        self.deepest.load(Relaxed)
    }

    /// Waits until more than `seen` batches have ended. Gives up, and returns false, if for `time`
    /// none has and none is being written.
    pub(crate) fn wait_for_end(&self, seen: u64, time: Duration) -> bool {
        let deadline = clock::now().after(time);
        let mut idle = self.idle.lock();
        while self.ended() == seen {
            if idle.len() < self.count {
                self.returned.wait(&mut idle);
            } else if !deadline.is_some_and(|deadline| self.returned.wait_until(&mut idle, deadline)) {
                // One may have begun, or ended, just then.
                if self.ended() == seen && idle.len() == self.count {
                    return false;
                }
            }
        }
        true
    }

    /// Waits until a batch that is being written now has ended; false at once if there is none.
    pub(crate) fn wait_for_a_batch(&self) -> bool {
        let mut idle = self.idle.lock();
        let written = idle.len() < self.count;
        if written {
            self.returned.wait(&mut idle);
        }
        written
    }
    /// Waits until no image of `frame` is in flight.
    pub(crate) fn wait_for(&self, frame: &Frame) {
        // Called even if there is no image in flight, so that a caller that holds a latch is caught
        // in every run.
        before_device();
        if frame.is_writing() {
            let mut idle = self.idle.lock();
            while frame.is_writing() {
                self.returned.wait(&mut idle);
            }
        }
    }
}
