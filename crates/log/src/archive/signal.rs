//! The archiver's wake-up.

use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Condvar, Mutex};
use firndb_base::{Lsn, clock};
use std::time::Duration;

/// Interval at which a thread that waits without a limit checks the log's end.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Wakes the archiver when enough log has been appended.
#[derive(Default)]
pub(crate) struct ArchiverSignal {
    /// LSN at or beyond which `append` signals the archiver; 0 when the archiver is not waiting.
    threshold: AtomicU64,
    signalled: Mutex<bool>,
    wake: Condvar,
}

impl ArchiverSignal {
    /// Called after an append that ended at `end`. One load if the archiver is not waiting or the
    /// log is still too short.
    pub fn appended(&self, end: Lsn) {
        let threshold = self.threshold.load(Ordering::Relaxed);
        if threshold != 0 && end.0 >= threshold {
            self.signal();
        }
    }

    /// Ends the current wait, or the next one.
    pub fn signal(&self) {
        *self.signalled.lock() = true;
        self.threshold.store(0, Ordering::Relaxed);
        self.wake.notify_all();
    }

    /// Waits until `log_end` reaches `end` or [`ArchiverSignal::signal`] is called, at most for
    /// `limit`; without a limit if that is beyond the clock's range. For one thread.
    pub fn wait(&self, end: Lsn, limit: Duration, log_end: impl Fn() -> Lsn) {
        let deadline = clock::now().after(limit);
        let mut signalled = self.signalled.lock();
        self.threshold.store(end.0.max(1), Ordering::SeqCst);
        while !*signalled && log_end() < end {
            // If an append is missed between the store and the check, the limit ends the wait, or
            // the next check sees it.
            let in_time = match deadline {
                Some(deadline) => self.wake.wait_until(&mut signalled, deadline),
                None => {
                    self.wake.wait_for(&mut signalled, CHECK_INTERVAL);
                    true
                }
            };
            if !in_time {
                break;
            }
        }
        *signalled = false;
        self.threshold.store(0, Ordering::Relaxed);
    }
}
