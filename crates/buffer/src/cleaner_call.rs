//! How a thread that misses calls the cleaner.

use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Condvar, Mutex};
use std::time::Duration;

/// A call for the background cleaner.
#[derive(Default)]
pub(crate) struct CleanerCall {
    /// Set by a miss, reset by the cleaner; spares the lock.
    raised: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl CleanerCall {
    /// Wakes the cleaner, unless it has been called and not come yet.
    pub(crate) fn raise(&self) {
        if !self.raised.load(Relaxed) && !self.raised.swap(true, Relaxed) {
            let _guard = self.lock.lock();
            self.wake.notify_all();
        }
    }

    /// Resets the call; returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.raised.swap(false, Relaxed)
    }

    /// Blocks until there is a call, for at most `time`.
    pub(crate) fn wait(&self, time: Duration) {
        let mut guard = self.lock.lock();
        if !self.raised.load(Relaxed) {
            self.wake.wait_for(&mut guard, time);
        }
    }
}
