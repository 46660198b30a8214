//! Requests in flight, the threads that wait for them, and who writes next.

use crate::LogError;
use firn_base::Lsn;
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_device::AlignedBuf;
use std::collections::VecDeque;

/// Why a waiting thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Its LSN is durable, or never will be.
    Settled,
    /// Log waits that it needs, and a device is free: it is to write the next request.
    Lead,
}

/// Where one thread sleeps. The lock protects the word; it is held for no other work.
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

    pub fn wait(&self) -> Wake {
        let mut word = self.word.lock();
        loop {
            if let Some(why) = word.take() {
                return why;
            }
            self.woken.wait(&mut word);
        }
    }
}

/// A thread that waits for `lsn` to become durable.
pub(crate) struct Waiter {
    pub lsn: Lsn,
    pub parker: Arc<Parker>,
}

/// Threads to wake once no lock is held.
pub(crate) type WakeList = Vec<(Arc<Parker>, Wake)>;

/// Wakes them.
pub(crate) fn wake_all(list: &mut WakeList) {
    for (parker, why) in list.drain(..) {
        parker.wake(why);
    }
}

/// A request that a device may be writing.
struct InFlight {
    boundary: Lsn,
    done: bool,
}

/// Whether a worker watches for the log to fall idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Nobody does: all durable log is sealed.
    None,
    /// A worker was woken to.
    Called,
    /// A worker does.
    Held,
}

/// Everything behind the flight lock.
pub(crate) struct Flight {
    /// In the order in which they were composed. While one device stalls, those written by others gather
    /// behind its request: 16 bytes for each, and never more of them than units fit on the devices.
    requests: VecDeque<InFlight>,
    /// Number of the oldest request of the queue.
    first_number: u64,
    pub waiters: Vec<Waiter>,
    /// Each device's request buffer; `None` while the device writes it.
    pub buffers: Vec<Option<AlignedBuf>>,
    /// Which device is asked first for the next request.
    pub next_device: usize,
    /// Group boundary up to which requests were composed: a copy of the frontend's.
    pub covered: Lsn,
    /// A waiter was woken to lead and has not come yet.
    pub called: bool,
    /// Up to here the log is wanted durable by nobody who waits.
    pub wanted: Lsn,
    pub failed: Option<LogError>,
    /// The last LSN that a seal block recorded.
    pub sealed: Lsn,
    pub watch: Watch,
    /// Where the last request went, so that a seal goes elsewhere.
    pub last_device: usize,
    pub stopping: bool,
    /// A worker was woken to write what is wanted and has not looked yet.
    pub summoned: bool,
    pub requests_done: u64,
    pub written_bytes: u64,
    pub requests_by_size: [u64; 16],
    pub seals: u64,
    pub waits: u64,
    pub hand_overs: u64,
    /// Kept for its memory.
    pub scratch: WakeList,
}

impl Flight {
    pub fn new(buffers: Vec<AlignedBuf>, start: Lsn) -> Flight {
        Flight {
            requests: VecDeque::with_capacity(16 * buffers.len()),
            first_number: 0,
            waiters: Vec::new(),
            buffers: buffers.into_iter().map(Some).collect(),
            next_device: 0,
            covered: start,
            called: false,
            wanted: start,
            failed: None,
            sealed: start,
            watch: Watch::None,
            last_device: 0,
            stopping: false,
            summoned: false,
            requests_done: 0,
            written_bytes: 0,
            requests_by_size: [0; 16],
            seals: 0,
            waits: 0,
            hand_overs: 0,
            scratch: Vec::new(),
        }
    }

    /// Notes a request composed up to `boundary`; answers its number.
    pub fn begin(&mut self, boundary: Lsn) -> u64 {
        assert!(self.requests.back().is_none_or(|r| r.boundary <= boundary), "requests are taken in order");
        self.requests.push_back(InFlight { boundary, done: false });
        self.first_number + self.requests.len() as u64 - 1
    }

    /// Notes that request `number` is written; answers up to where the log is durable by that, if it moved.
    pub fn complete(&mut self, number: u64) -> Option<Lsn> {
        let place = (number - self.first_number) as usize;
        assert!(!self.requests[place].done, "a request is written once");
        self.requests[place].done = true;
        let mut durable = None;
        while self.requests.front().is_some_and(|r| r.done) {
            durable = self.requests.pop_front().map(|r| r.boundary);
            self.first_number += 1;
        }
        durable
    }

    /// Whether any request is being written.
    pub fn is_busy(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether any device is free.
    pub fn has_idle_device(&self) -> bool {
        self.buffers.iter().any(Option::is_some)
    }

    /// Moves the waiters that `durable` satisfies to `list`.
    pub fn settle(&mut self, durable: Lsn, list: &mut WakeList) {
        let mut i = 0;
        while i < self.waiters.len() {
            if self.waiters[i].lsn <= durable {
                list.push((self.waiters.swap_remove(i).parker, Wake::Settled));
            } else {
                i += 1;
            }
        }
    }

    /// Moves all waiters to `list`.
    pub fn settle_all(&mut self, list: &mut WakeList) {
        list.extend(self.waiters.drain(..).map(|w| (w.parker, Wake::Settled)));
    }

    /// Calls one waiter to write the next request, if a device is free and one needs log that no request
    /// holds: the one with the least LSN. One is enough, since it takes all that waits; if it cannot, it
    /// calls the next. Answers whether anybody is on the way.
    pub fn call_leader(&mut self, list: &mut WakeList) -> bool {
        if self.called {
            return true;
        }
        if !self.has_idle_device() || self.failed.is_some() {
            return false;
        }
        let needy = self.waiters.iter().enumerate().filter(|(_, w)| w.lsn > self.covered);
        let Some((place, _)) = needy.min_by_key(|(_, w)| w.lsn) else { return false };
        let waiter = self.waiters.swap_remove(place);
        self.called = true;
        self.hand_overs += 1;
        list.push((waiter.parker, Wake::Lead));
        true
    }
}
