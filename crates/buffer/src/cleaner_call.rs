//! How a thread that misses calls the cleaners.

use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Condvar, Mutex};
use std::time::Duration;

/// A call for the cleaners.
#[derive(Default)]
pub(crate) struct CleanerCall {
    /// Set by a miss, reset by the cleaner; spares the lock.
    raised: AtomicBool,
    /// Set for good when the cleaners are to end; changed under the lock.
    ended: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl CleanerCall {
    /// Wakes the cleaners that wait, unless they have been called and none has come yet.
    pub(crate) fn raise(&self) {
        if !self.raised.load(Relaxed) && !self.raised.swap(true, Relaxed) {
            let _guard = self.lock.lock();
            self.wake.notify_all();
        }
    }

    /// Wakes a cleaner that waits, without a call: there is work beside another cleaner's.
    pub(crate) fn wake_another(&self) {
        let _guard = self.lock.lock();
        self.wake.notify_one();
    }

    /// No cleaner waits from now on.
    pub(crate) fn end(&self) {
        let _guard = self.lock.lock();
        self.ended.store(true, Relaxed);
        self.wake.notify_all();
    }

    /// Resets the call; returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.raised.swap(false, Relaxed)
    }

    /// Blocks until there is a call, for at most `time`; not at all once cleaning has ended.
    pub(crate) fn wait(&self, time: Duration) {
        let mut guard = self.lock.lock();
        if !self.raised.load(Relaxed) && !self.ended.load(Relaxed) {
            self.wake.wait_for(&mut guard, time);
        }
    }
}
