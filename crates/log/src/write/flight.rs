//! Requests in flight, the devices that write them, the threads that wait for them, and the choice
//! of the thread that writes next.
//!
//! Two or more devices may write a request at the same time, since a request that takes too long is
//! issued again on another device (a hedged write). A request is done when enough of its writes
//! have completed, or when another source (the archive) reports its log durable. Writes of it that
//! end later only free their devices.

use crate::block::Owner;
use crate::error::LogError;
use crate::hedge::hiding::Hider;
use crate::members::state::MemberState;
use crate::write::batching::Batching;
use crate::write::job::{Bytes, Job};
use crate::write::stripes::LanesWritten;
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

/// A request that devices may be writing.
pub(crate) struct InFlight {
    /// First LSN that the request carries.
    pub from: Lsn,
    pub boundary: Lsn,
    pub done: bool,
    /// Devices that were given the request, one bit each. A second write on the same device is no
    /// second copy.
    pub devices: u64,
    /// Copies required.
    pub copies_required: u32,
    /// Copies written.
    pub copies_written: u32,
    /// Writes of the request that are in flight or queued. They may be more than are required,
    /// since overdue ones are issued again.
    pub writes: u32,
}

/// A write that a device performs, or that is queued for it.
pub(crate) struct Writing {
    /// Number of the request; `None` for a seal.
    pub request: Option<u64>,
    pub bytes: Arc<Bytes>,
    pub blocks: usize,
    /// The device whose slow write this one hedges.
    pub hides: Option<usize>,
    /// The write was found overdue; it is counted once.
    pub detected: bool,
    /// Set once the request was issued again because of this write; the value is whether log waited
    /// for a device at that time.
    pub reissued: Option<bool>,
    /// When another write of the request completed it.
    pub hidden_at: Option<Moment>,
}

/// A device as the pipeline uses it.
pub(crate) struct Slot {
    pub device: Arc<dyn Device>,
    /// Owner of the device's main stream.
    pub owner: Owner,
    /// The device's request buffer; `None` while the device writes it. A device has one write in
    /// flight at a time, whichever of its streams the write is for.
    pub buffer: Option<AlignedBuf>,
    pub state: MemberState,
    /// The device's last write took so long that a worker should issue the next one.
    pub is_slow: bool,
    /// The write in flight, where outliers may be hidden.
    pub writing: Option<Writing>,
    /// Writes that have ended.
    pub writes_ended: u64,
}

impl Slot {
    pub fn new(device: Arc<dyn Device>, owner: Owner, buffer: AlignedBuf) -> Slot {
        Slot {
            device,
            owner,
            buffer: Some(buffer),
            state: MemberState::InUse,
            is_slow: false,
            writing: None,
            writes_ended: 0,
        }
    }

    /// Whether the device accepts writes at all.
    pub fn is_usable(&self) -> bool {
        self.state == MemberState::InUse
    }

    pub fn is_ready(&self) -> bool {
        self.is_usable() && self.buffer.is_some()
    }
}

/// A request none of whose writes succeeded.
pub(crate) struct Orphan {
    pub number: u64,
    pub bytes: Arc<Bytes>,
}

/// Whether a worker watches for the log to become idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// No worker watches: all durable log is sealed.
    None,
    /// A worker was woken to watch.
    Requested,
    /// A worker watches.
    Active,
}

/// Everything behind the flight lock.
pub(crate) struct Flight {
    /// Requests in the order in which they were composed. While one device stalls and its write
    /// cannot be hedged, completed requests of other devices queue behind it: 32 bytes for each,
    /// and never more of them than units fit on the devices.
    requests: VecDeque<InFlight>,
    /// Number of the oldest request of the queue.
    first_number: u64,
    /// Under `LogPolicy::Striped`, used in place of `requests`: a request's number is then its
    /// device.
    lanes: Option<LanesWritten>,
    pub waiters: Vec<Waiter>,
    /// By device; a device that has left the log keeps its place.
    pub slots: Vec<Slot>,
    /// Copies that each request should have. A request goes to this number of devices, or to all in
    /// use if they are fewer.
    pub copies: usize,
    /// Requests none of whose writes succeeded; oldest first. They are written before everything
    /// else.
    pub orphans: VecDeque<Orphan>,
    /// Device failures whose handlers have not returned yet. No request is composed meanwhile: it
    /// might be acknowledged with fewer copies than the superblock promises.
    pub unsettled_losses: usize,
    /// Writes composed and queued for workers; if there are no workers, for the next thread that
    /// flushes. At most one for each device.
    pub jobs: VecDeque<Job>,
    pub hider: Hider,
    pub batching: Batching,
    /// The earliest time for which a waiter has set its timer.
    pub earliest_timer: Option<Moment>,
    /// The device that is tried first for the next request.
    pub next_device: usize,
    /// Group boundary up to which requests were composed: a copy of the front's.
    pub requested_boundary: Lsn,
    /// A waiter was woken as leader and has not taken the lock yet.
    pub leader_woken: bool,
    /// `request_flush` asked for durability up to this LSN; no thread waits for it.
    pub async_flush_target: Lsn,
    pub failed: Option<LogError>,
    /// The archive has all log before this LSN; [`Lsn::ZERO`] while archiving does not count
    /// towards durability.
    pub archived: Lsn,
    /// Whether archiving counts towards durability.
    pub archive_completes: bool,
    /// The last LSN that a seal block recorded.
    pub sealed: Lsn,
    pub watch: Watch,
    /// The device of the last request; a seal goes to another one.
    pub last_device: usize,
    pub stopping: bool,
    /// The log is being closed: workers issue all writes, so that the closing thread is not blocked
    /// inside a device.
    pub closing: bool,
    /// The final seal is still to be written, if that is possible.
    pub final_seal_pending: bool,
    /// Running workers.
    pub workers: usize,
    /// Why closing stopped waiting for a device.
    pub given_up: Option<LogError>,
    /// Writes composed whose threads have not returned from their devices, including writes of
    /// requests that another write has completed.
    pub outstanding_writes: usize,
    /// A worker was woken for new work and has not taken the lock yet.
    pub worker_woken: bool,
    pub requests_done: u64,
    pub written_bytes: u64,
    pub requests_by_size: [u64; 16],
    pub seals: u64,
    pub waits: u64,
    pub hand_overs: u64,
    /// Reused allocation for wake lists.
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
            unsettled_losses: 0,
            hider,
            batching: Batching::default(),
            earliest_timer: None,
            next_device: 0,
            requested_boundary: start,
            leader_woken: false,
            async_flush_target: start,
            failed: None,
            archived: Lsn::ZERO,
            archive_completes: false,
            sealed: start,
            watch: Watch::None,
            last_device: 0,
            stopping: false,
            closing: false,
            final_seal_pending: false,
            workers: 0,
            given_up: None,
            outstanding_writes: 0,
            worker_woken: false,
            requests_done: 0,
            written_bytes: 0,
            requests_by_size: [0; 16],
            seals: 0,
            waits: 0,
            hand_overs: 0,
            scratch: Vec::new(),
        }
    }

    /// Registers a request that carries log from `from` on, composed up to `boundary`, for the
    /// devices of the mask `devices`. Returns its number.
    pub fn begin(&mut self, devices: u64, from: Lsn, boundary: Lsn) -> u64 {
        assert!(self.requests.back().is_none_or(|r| r.boundary <= boundary), "requests are taken in order");
        let count = devices.count_ones();
        self.requests.push_back(InFlight {
            from,
            boundary,
            done: false,
            devices,
            copies_required: count,
            copies_written: 0,
            writes: count,
        });
        self.first_number + self.requests.len() as u64 - 1
    }

    /// Registers a request for `device` that moves its lane to `cursor`, of log up to `boundary`.
    /// Returns its number.
    pub fn begin_lane(&mut self, device: usize, cursor: Lsn, boundary: Lsn) -> u64 {
        let lanes = self.lanes.as_mut().expect("a striped log has lanes");
        lanes.begin(device, cursor, boundary);
        device as u64
    }

    /// Records that a write of request `number` has completed. Returns whether the request is done
    /// with it, and the new end of the durable log if that moved. No effect on a request that was
    /// done before.
    pub fn complete(&mut self, number: u64) -> (bool, Option<Lsn>) {
        if let Some(lanes) = &mut self.lanes {
            return (false, lanes.complete(number as usize));
        }
        let done = self.copy_written(number);
        (done, self.advance_durable())
    }

    /// Records a completed write of request `number`. Returns whether it was the last that the
    /// request required. No effect on a request that was done before.
    fn copy_written(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.copies_written += 1;
        request.done = request.copies_written >= request.copies_required;
        request.done
    }

    /// Records a failed write of request `number`. If too few of its writes are left, the request
    /// requires fewer copies. Returns whether it has no copy at all and must be written anew.
    pub fn write_failed(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.copies_required = request.copies_required.min(request.copies_written + request.writes).max(1);
        request.done = request.copies_written >= request.copies_required;
        request.copies_written + request.writes == 0
    }

    /// Records that request `number` is written to `device` as well.
    pub fn add_write(&mut self, number: u64, device: usize) {
        if let Some(request) = self.unfinished_mut(number) {
            request.devices |= 1 << device;
            request.writes += 1;
        }
    }

    /// Moves the end of the durable log past all leading requests that are done. Returns the new
    /// end if it moved.
    pub fn advance_durable(&mut self) -> Option<Lsn> {
        let mut durable = None;
        while self.requests.front().is_some_and(|r| r.done) {
            durable = self.requests.pop_front().map(|r| r.boundary);
            self.first_number += 1;
        }
        durable
    }

    /// The requests behind the end of the durable log, oldest first.
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

    /// Takes the buffer of a device that is free and in use.
    pub fn take_buffer(&mut self, device: usize) -> Option<AlignedBuf> {
        let slot = &mut self.slots[device];
        if slot.is_usable() { slot.buffer.take() } else { None }
    }

    /// Whether any request is unfinished, or done but behind one that is unfinished.
    pub fn is_busy(&self) -> bool {
        !self.requests.is_empty() || self.lanes.as_ref().is_some_and(LanesWritten::is_busy)
    }

    /// Whether no device in use is writing.
    pub fn is_all_free(&self) -> bool {
        self.busy_devices() == 0
    }

    /// Whether any device in use is free.
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

    /// Whether enough devices are free for a new request.
    pub fn has_idle_set(&self) -> bool {
        match self.width() {
            1 => self.has_idle_device(),
            width => self.slots.iter().filter(|slot| slot.is_ready()).count() >= width,
        }
    }

    /// Whether a thread waits for log that no request holds.
    pub fn has_unrequested_waiter(&self) -> bool {
        self.waiters.iter().any(|w| w.lsn > self.requested_boundary)
    }

    /// Moves the satisfied waiters to `list`: the log is durable up to `durable`, and up to
    /// `on_devices` on the devices.
    pub fn take_satisfied_waiters(&mut self, durable: Lsn, on_devices: Lsn, list: &mut WakeList) {
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
    pub fn take_all_waiters(&mut self, list: &mut WakeList) {
        list.extend(self.waiters.drain(..).map(|w| (w.parker, Wake::Settled)));
    }

    /// Removes a waiter whose timer fired. Returns false if it is not in the list any more because
    /// another thread is about to wake it.
    pub fn remove_waiter(&mut self, parker: &Arc<Parker>) -> bool {
        self.earliest_timer = None;
        let place = self.waiters.iter().position(|w| Arc::ptr_eq(&w.parker, parker));
        place.map(|place| self.waiters.swap_remove(place)).is_some()
    }

    /// Wakes a waiter as leader if a device is free and the waiter needs log that no request holds:
    /// the waiter with the least LSN. One is enough, since the leader takes all log that waits; if
    /// it cannot, it wakes the next. Returns whether a leader is on its way.
    pub fn wake_leader(&mut self, list: &mut WakeList) -> bool {
        let boundary = self.requested_boundary;
        self.leader_woken || (self.has_idle_set() && self.wake_first_waiter_past(boundary, list))
    }

    /// Wakes the waiter with the least LSN past `lsn` to use a free device. Returns as
    /// [`Flight::wake_leader`] does.
    pub fn wake_first_waiter_past(&mut self, lsn: Lsn, list: &mut WakeList) -> bool {
        if self.leader_woken {
            return true;
        }
        if self.failed.is_some() {
            return false;
        }
        let waiting = self.waiters.iter().enumerate().filter(|(_, w)| w.lsn > lsn);
        let Some((place, _)) = waiting.min_by_key(|(_, w)| w.lsn) else { return false };
        let waiter = self.waiters.swap_remove(place);
        self.leader_woken = true;
        self.hand_overs += 1;
        list.push((waiter.parker, Wake::Lead));
        true
    }
}
