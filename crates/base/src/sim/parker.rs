//! Where a simulated thread waits for its turn.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// Where one thread waits for its turn. One futex: passing the turn on is a wake and a wait.
#[derive(Default)]
pub(super) struct Parker {
    granted: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Parker {
    /// Says which thread waits here. Before the first `grant`.
    pub fn belongs_to(&self, thread: Thread) {
        let first = self.thread.set(thread).is_ok();
        assert!(first, "a parker has one thread");
    }

    /// Gives the thread the turn.
    pub fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        self.thread.get().expect("the thread was named when it was started").unpark();
    }

    /// Waits for the turn.
    pub fn wait(&self) {
        while !self.granted.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Parks the calling thread for the rest of the process.
pub(super) fn park_for_ever() -> ! {
    loop {
        thread::park();
    }
}
