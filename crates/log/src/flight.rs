//! Requests in flight, the devices that write them, the threads that wait for them, and who writes next.
//!
//! A request may be written more than once at the same time, since one that takes too long is issued again
//! elsewhere. It is done with the first of its writes, or when another source says that its log is durable; what the
//! others do later changes nothing but that their devices are free again.

use crate::LogError;
use crate::array::{MemberState, Orphan};
use crate::block::Owner;
use crate::gathering::Gathering;
use crate::hiding::Hider;
use crate::job::{Bytes, Job};
use crate::pipeline::Depth;
use crate::stripes::LanesWritten;
use firn_base::Lsn;
use firn_base::clock::Moment;
use firn_base::sync::{Arc, Condvar, Mutex};
use firn_device::{AlignedBuf, Device};
use std::collections::VecDeque;

/// Why a waiting thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Its LSN is durable, or never will be.
    Settled,
    /// Log waits that it needs, and a device is free: it is to write the next request, or a late one again.
    Lead,
    /// What it waits for takes too long.
    Alarm,
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

    /// Waits for a word; `None` if there was none by `alarm`.
    pub fn wait(&self, alarm: Option<Moment>) -> Option<Wake> {
        let mut word = self.word.lock();
        loop {
            if let Some(why) = word.take() {
                return Some(why);
            }
            let in_time = match alarm {
                Some(alarm) => self.woken.wait_until(&mut word, alarm),
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

/// A thread that waits for `lsn` to become durable.
pub(crate) struct Waiter {
    pub lsn: Lsn,
    pub depth: Depth,
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

/// A request that devices may be writing.
pub(crate) struct InFlight {
    /// First LSN it carries.
    pub from: Lsn,
    pub boundary: Lsn,
    pub done: bool,
    /// The devices that were given it, a bit each: a second copy on one device is none.
    pub carriers: u64,
    /// So many devices have to write it.
    pub needed: u32,
    /// So many have.
    pub copies: u32,
    /// Writes of it that are under way, or lie ready. They may be more than are needed: late ones are issued again.
    pub writes: u32,
}

/// A write that a device performs, or that lies ready for it.
pub(crate) struct Writing {
    /// Number of the request; `None` for a seal.
    pub request: Option<u64>,
    pub bytes: Arc<Bytes>,
    pub blocks: usize,
    /// The device whose slow write it is to hide.
    pub hides: Option<usize>,
    /// It was found to take too long: counted once.
    pub detected: bool,
    /// The request was issued once more after it; whether log waited for a device then.
    pub reissued: Option<bool>,
    /// When another write of the request was done.
    pub hidden_at: Option<Moment>,
}

/// A device as the pipeline uses it.
pub(crate) struct Slot {
    pub device: Arc<dyn Device>,
    /// Of its main stream.
    pub owner: Owner,
    /// The device's request buffer; `None` while the device writes it. A device is given one write at a time,
    /// whichever of its streams it is for.
    pub buffer: Option<AlignedBuf>,
    pub state: MemberState,
    /// Its last write took so long that a thread of the log's own had better do the next.
    pub is_slow: bool,
    /// What it writes, where outliers may be hidden.
    pub writing: Option<Writing>,
}

impl Slot {
    pub fn new(device: Arc<dyn Device>, owner: Owner, buffer: AlignedBuf) -> Slot {
        Slot { device, owner, buffer: Some(buffer), state: MemberState::InUse, is_slow: false, writing: None }
    }

    /// Whether the device may be given writes at all.
    pub fn is_usable(&self) -> bool {
        self.state == MemberState::InUse
    }

    pub fn is_ready(&self) -> bool {
        self.is_usable() && self.buffer.is_some()
    }
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
    /// In the order in which they were composed. While one device stalls and cannot be hidden, those written by
    /// others gather behind its request: 32 bytes for each, and never more of them than units fit on the devices.
    requests: VecDeque<InFlight>,
    /// Number of the oldest request of the queue.
    first_number: u64,
    /// Under `LogPolicy::Striped`, in place of the requests: a request's number is its device's then.
    lanes: Option<LanesWritten>,
    pub waiters: Vec<Waiter>,
    /// By device; those that have left the log keep their places.
    pub slots: Vec<Slot>,
    /// Copies of each request that the log is to have: so many devices write it, or all that are in use if they are fewer.
    pub copies: usize,
    /// Requests none of whose writes succeeded; oldest first. They go before all other work.
    pub orphans: VecDeque<Orphan>,
    /// Failures of devices that are being made known. No request is composed meanwhile: it might be acknowledged with
    /// fewer copies than the superblock says.
    pub settling: usize,
    /// Writes composed by committing threads for the workers to perform: at most one for each device.
    pub jobs: VecDeque<Job>,
    pub hider: Hider,
    pub gathering: Gathering,
    /// The earliest moment for which a waiter has set its alarm.
    pub alarm: Option<Moment>,
    /// Which device is asked first for the next request.
    pub next_device: usize,
    /// Group boundary up to which requests were composed: a copy of the frontend's.
    pub covered: Lsn,
    /// A waiter was woken to lead and has not come yet.
    pub called: bool,
    /// Up to here the log is wanted durable by nobody who waits.
    pub wanted: Lsn,
    pub failed: Option<LogError>,
    /// The archive has all log before; [`Lsn::ZERO`] while it takes no part.
    pub archived: Lsn,
    /// It takes part.
    pub archive_completes: bool,
    /// The last LSN that a seal block recorded.
    pub sealed: Lsn,
    pub watch: Watch,
    /// Where the last request went, so that a seal goes elsewhere.
    pub last_device: usize,
    pub stopping: bool,
    /// Writes composed whose threads are not back from their devices, those of requests that were done by
    /// another write included.
    pub under_way: usize,
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
    pub fn new(
        slots: Vec<Slot>,
        copies: usize,
        hider: Hider,
        start: Lsn,
        lanes: Option<LanesWritten>,
    ) -> Flight {
        Flight {
            requests: VecDeque::with_capacity(16 * slots.len()),
            first_number: 0,
            lanes,
            waiters: Vec::new(),
            jobs: VecDeque::with_capacity(slots.len()),
            slots,
            copies,
            orphans: VecDeque::new(),
            settling: 0,
            hider,
            gathering: Gathering::default(),
            alarm: None,
            next_device: 0,
            covered: start,
            called: false,
            wanted: start,
            failed: None,
            archived: Lsn::ZERO,
            archive_completes: false,
            sealed: start,
            watch: Watch::None,
            last_device: 0,
            stopping: false,
            under_way: 0,
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

    /// Notes a request that carries log from `from` on, composed up to `boundary` for the devices of `carriers`; answers
    /// its number.
    pub fn begin(&mut self, carriers: u64, from: Lsn, boundary: Lsn) -> u64 {
        assert!(self.requests.back().is_none_or(|r| r.boundary <= boundary), "requests are taken in order");
        let count = carriers.count_ones();
        self.requests.push_back(InFlight {
            from,
            boundary,
            done: false,
            carriers,
            needed: count,
            copies: 0,
            writes: count,
        });
        self.first_number + self.requests.len() as u64 - 1
    }

    /// Notes a request for `device` that brings its lane to `cursor`, of log up to `boundary`; answers its number.
    pub fn begin_lane(&mut self, device: usize, cursor: Lsn, boundary: Lsn) -> u64 {
        let lanes = self.lanes.as_mut().expect("a striped log has lanes");
        lanes.begin(device, cursor, boundary);
        device as u64
    }

    /// Notes that a write of request `number` is done; whether the request is with that, and up to where the log is durable
    /// by it, if that moved. Harmless if the request was done before.
    pub fn complete(&mut self, number: u64) -> (bool, Option<Lsn>) {
        if let Some(lanes) = &mut self.lanes {
            return (false, lanes.complete(number as usize));
        }
        let done = self.written(number);
        (done, self.advance())
    }

    /// Notes that a write of request `number` has ended well; whether that was the last that the request needed.
    /// Harmless if it was done before.
    fn written(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.copies += 1;
        request.done = request.copies >= request.needed;
        request.done
    }

    /// Notes that a write of request `number` has failed. If too few of its writes are left, it needs fewer copies; true
    /// if it has none at all and must be written anew.
    pub fn lost(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.needed = request.needed.min(request.copies + request.writes).max(1);
        request.done = request.copies >= request.needed;
        request.copies + request.writes == 0
    }

    /// Notes that request `number` is written to `device` as well.
    pub fn carry(&mut self, number: u64, device: usize) {
        if let Some(request) = self.unfinished_mut(number) {
            request.carriers |= 1 << device;
            request.writes += 1;
        }
    }

    /// Lets the durable log end after the last request before which all are done; answers that LSN, if it moved.
    pub fn settle_requests(&mut self) -> Option<Lsn> {
        self.advance()
    }

    fn advance(&mut self) -> Option<Lsn> {
        let mut durable = None;
        while self.requests.front().is_some_and(|r| r.done) {
            durable = self.requests.pop_front().map(|r| r.boundary);
            self.first_number += 1;
        }
        durable
    }

    /// The requests that are not settled, oldest first.
    pub fn requests(&self) -> impl Iterator<Item = &InFlight> {
        self.requests.iter()
    }

    /// Request `number`, unless it is done.
    pub fn unfinished(&self, number: u64) -> Option<&InFlight> {
        let place = number.checked_sub(self.first_number)?;
        self.requests.get(place as usize).filter(|request| !request.done)
    }

    /// As `unfinished`.
    pub fn unfinished_mut(&mut self, number: u64) -> Option<&mut InFlight> {
        let place = number.checked_sub(self.first_number)?;
        Some(&mut self.requests[place as usize]).filter(|request| !request.done)
    }

    /// The buffer of a device that is free and may be used.
    pub fn take_buffer(&mut self, device: usize) -> Option<AlignedBuf> {
        let slot = &mut self.slots[device];
        if slot.is_usable() { slot.buffer.take() } else { None }
    }

    /// Whether any request is not done.
    pub fn is_busy(&self) -> bool {
        !self.requests.is_empty() || self.lanes.as_ref().is_some_and(LanesWritten::is_busy)
    }

    /// Whether no device in use is writing.
    pub fn is_all_free(&self) -> bool {
        self.busy_devices() == 0
    }

    /// Whether any device is free.
    pub fn has_idle_device(&self) -> bool {
        self.slots.iter().any(Slot::is_ready)
    }

    /// Devices in use that are writing.
    pub fn busy_devices(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_usable() && slot.buffer.is_none()).count()
    }

    /// Devices in use.
    pub fn usable(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_usable()).count()
    }

    /// Devices that a new request goes to.
    pub fn width(&self) -> usize {
        if self.copies == 1 { 1 } else { self.copies.min(self.usable()).max(1) }
    }

    /// Whether as many devices are free as a new request needs.
    pub fn has_idle_set(&self) -> bool {
        match self.width() {
            1 => self.has_idle_device(),
            width => self.slots.iter().filter(|slot| slot.is_ready()).count() >= width,
        }
    }

    /// Whether somebody waits for log that no request holds.
    pub fn is_needy(&self) -> bool {
        self.waiters.iter().any(|w| w.lsn > self.covered)
    }

    /// Moves the waiters that are satisfied to `list`, of log that is durable up to `durable`, and up to `on_devices` on
    /// the devices.
    pub fn settle(&mut self, durable: Lsn, on_devices: Lsn, list: &mut WakeList) {
        let mut i = 0;
        while i < self.waiters.len() {
            let reached = match self.waiters[i].depth {
                Depth::Anywhere => durable,
                Depth::Devices => on_devices,
            };
            if self.waiters[i].lsn <= reached {
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

    /// Forgets a waiter whose alarm went off; false if it is no longer among them, since somebody is about to wake it.
    pub fn forget(&mut self, parker: &Arc<Parker>) -> bool {
        self.alarm = None;
        let place = self.waiters.iter().position(|w| Arc::ptr_eq(&w.parker, parker));
        place.map(|place| self.waiters.swap_remove(place)).is_some()
    }

    /// Calls one waiter to write the next request, if a device is free and one needs log that no request
    /// holds: the one with the least LSN. One is enough, since it takes all that waits; if it cannot, it
    /// calls the next. Answers whether anybody is on the way.
    pub fn call_leader(&mut self, list: &mut WakeList) -> bool {
        let covered = self.covered;
        self.called || (self.has_idle_set() && self.call_first_past(covered, list))
    }

    /// Calls the waiter with the least LSN past `lsn` for work that a device is free for, as `call_leader`.
    pub fn call_first_past(&mut self, lsn: Lsn, list: &mut WakeList) -> bool {
        if self.called {
            return true;
        }
        if self.failed.is_some() {
            return false;
        }
        let needy = self.waiters.iter().enumerate().filter(|(_, w)| w.lsn > lsn);
        let Some((place, _)) = needy.min_by_key(|(_, w)| w.lsn) else { return false };
        let waiter = self.waiters.swap_remove(place);
        self.called = true;
        self.hand_overs += 1;
        list.push((waiter.parker, Wake::Lead));
        true
    }
}
