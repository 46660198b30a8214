//! Staging buffers: aligned memory for images that are being written to the tier.
//!
//! There are a few buffers, made with the pool and part of its budget. The thread that holds one
//! writes a batch and *never blocks on a latch*; so a thread that waits here for a buffer, or for
//! the end of a write, may hold latches without a deadlock. It waits for a device, though: the only
//! exclusive latches it may hold are of frames that it fills or discards.

use crate::frame::state::Frame;
use crate::ranks;
use firndb_base::sync::{Condvar, Mutex, before_device};
use firndb_device::AlignedBuf;

/// The buffers of a pool.
pub(crate) struct Staging {
    /// Protects the buffers that are not in use.
    idle: Mutex<Vec<AlignedBuf>>,
    /// Notified whenever a buffer is returned, after all writing flags of its batch.
    returned: Condvar,
    count: usize,
}

impl Staging {
    /// `count` buffers of `bytes` each.
    pub(crate) fn new(count: usize, bytes: usize) -> Staging {
        let idle = (0..count).map(|_| AlignedBuf::zeroed(bytes)).collect();
        Staging { idle: ranks::IDLE.mutex(idle), returned: Condvar::new(), count }
    }

    /// A buffer; waits for one.
    pub(crate) fn take(&self) -> AlignedBuf {
        before_device();
        let mut idle = self.idle.lock();
        loop {
            match idle.pop() {
                Some(buffer) => return buffer,
                None => self.returned.wait(&mut idle),
            }
        }
    }
    /// A buffer, if one is idle.
    pub(crate) fn try_take(&self) -> Option<AlignedBuf> {
        self.idle.lock().pop()
    }
    /// Returns a buffer, after the writing flags of its batch were released.
    pub(crate) fn put_back(&self, buffer: AlignedBuf) {
        let mut idle = self.idle.lock();
        assert!(idle.len() < self.count, "every buffer comes back once");
        idle.push(buffer);
        self.returned.notify_all();
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
