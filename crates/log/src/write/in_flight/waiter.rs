//! Threads that wait for log to become durable, and how they are woken.

use firndb_base::Lsn;
use firndb_base::clock::Moment;
use firndb_base::sync::{Arc, Condvar, Mutex};

/// Why a waiting thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Its LSN is durable, or never will be.
    Settled,
    /// The thread is the next leader: it needs log that no request holds, and a device is free. It
    /// writes the next request, or reissues an overdue one.
    Lead,
    /// A write that the thread waits for is overdue.
    Timeout,
}

/// Where one thread sleeps. The lock protects the reason for the wake-up and is held for no other
/// work.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    word: Mutex<Option<Wake>>,
    woken: Condvar,
}

impl Parker {
    pub fn wake(&self, why: Wake) {
        *self.word.lock() = Some(why);
        self.woken.notify_one();
    }

    /// Waits for a wake-up; `None` if there was none by `deadline`.
    pub fn wait(&self, deadline: Option<Moment>) -> Option<Wake> {
        let mut word = self.word.lock();
        loop {
            if let Some(why) = word.take() {
                return Some(why);
            }
            let in_time = match deadline {
                Some(deadline) => self.woken.wait_until(&mut word, deadline),
                None => {
                    self.woken.wait(&mut word);
                    true
                }
            };
            if !in_time {
                return word.take();
            }
        }
    }
}

/// Where log has to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// On the devices, or in the archive as far as archiving counts towards durability.
    Anywhere,
    /// On the devices.
    Devices,
}

/// A thread that waits for `lsn` to become durable.
pub(crate) struct Waiter {
    pub lsn: Lsn,
    pub depth: Depth,
    pub parker: Arc<Parker>,
}

/// Threads to wake once no lock is held.
pub(crate) type WakeList = Vec<(Arc<Parker>, Wake)>;

/// Wakes all threads of the list.
pub(crate) fn wake_all(list: &mut WakeList) {
    for (parker, why) in list.drain(..) {
        parker.wake(why);
    }
}
