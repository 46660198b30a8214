//! The in-flight table: requests in flight, the devices that write them, and the threads that wait
//! for them. Everything behind the flight lock.
//!
//! The state is private to this folder, and each file changes one part of it by named transitions:
//! * here: a request begins ([`Flight::begin`]), a write ends ([`Flight::write_ended`]), log
//!   becomes durable and its waiters are settled, the log fails;
//! * `turns.rs`: what a thread does that needs log durable, and the choice of the thread that
//!   writes next;
//! * `devices.rs`: devices are taken and returned, fail, join and leave;
//! * `waiters.rs`: threads enter and leave the list of waiters;
//! * `hedged.rs`: requests are written once more;
//! * `archived.rs`: the archive has log;
//! * `background.rs`: workers, flushes that no thread waits for, seals, closing.
//!
//! Two or more devices may write a request at the same time, since a request that takes too long is
//! issued again on another device (a hedged write). A request is done when enough of its writes
//! have completed, or when another source (the archive) reports its log durable. Writes of it that
//! end later only free their devices.
//!
//! Invariants ([`Flight::check`]):
//! * requests are in the order in which they were composed: their boundaries ascend, and the last
//!   one's is the end of all log that was requested;
//! * the oldest request is not done: what is done in front is removed at once, and the end of the
//!   log on the devices is the boundary of the last one removed;
//! * `sealed <= on_devices <= durable`, and `on_devices <= requested_boundary`;
//! * a device has one write in flight at a time, and each write in flight is counted once: as that
//!   of a device that writes, or of a failed device whose loss is not settled;
//! * an unfinished request has a write in flight or queued, or is an orphan; orphans are in the
//!   order of their requests;
//! * a thread in the list waits for log that is not durable as it needs.

mod archived;
mod background;
mod batching;
mod check;
mod devices;
mod hedged;
pub(crate) mod rules;
pub(crate) mod slot;
pub(crate) mod turns;
pub(crate) mod waiter;
mod waiters;

use crate::block::BLOCK;
use crate::error::LogError;
use crate::hedge::hiding::Hider;
use crate::log_layout::Completing;
use crate::options::LogStatistics;
use crate::write::front::{Composed, Requested};
use crate::write::gathering::Gathering;
use crate::write::in_flight::batching::Batching;
use crate::write::in_flight::rules::Rules;
use crate::write::in_flight::slot::{FreeDevice, Slot, Writing};
use crate::write::in_flight::waiter::{Depth, Waiter, Wake, WakeList};
use crate::write::job::{Begun, Bytes, Job, Task};
use firndb_base::Lsn;
use firndb_base::clock::Moment;
use firndb_base::sync::Arc;
use std::collections::VecDeque;

/// A request that devices may be writing.
pub(crate) struct Request {
    /// First LSN that the request carries.
    pub from: Lsn,
    pub boundary: Lsn,
    done: bool,
    /// Devices that were given the request, one bit each. A second write on the same device is no
    /// second copy.
    pub devices: u64,
    /// Copies required.
    pub copies_required: u32,
    /// Copies written.
    pub copies_written: u32,
    /// Writes of the request that are in flight or queued. They may be more than are required,
    /// since overdue ones are issued again.
    writes: u32,
}

/// A request none of whose writes succeeded.
struct Orphan {
    number: u64,
    bytes: Arc<Bytes>,
}

/// Whether a worker watches for the log to become idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    /// No worker watches: all durable log is sealed.
    None,
    /// A worker was woken to watch.
    Requested,
    /// A worker watches.
    Active,
}

/// Everything behind the flight lock.
pub(crate) struct Flight {
    rules: Rules,
    /// Requests in the order in which they were composed. While one device stalls and its write
    /// cannot be hedged, completed requests of other devices queue behind it: 32 bytes for each,
    /// and never more of them than units fit on the devices.
    requests: VecDeque<Request>,
    /// Number of the oldest request of the queue.
    first_number: u64,
    /// Used in place of `requests` where each device has log of its own: a request's number is then
    /// its device.
    lanes: Option<Box<dyn Completing>>,
    /// Group boundary up to which requests were composed: a copy of the front's.
    requested_boundary: Lsn,
    /// All log before this LSN is on the devices.
    on_devices: Lsn,
    /// All log before this LSN is durable.
    durable: Lsn,
    /// The archive has all log before this LSN; [`Lsn::ZERO`] while archiving does not count
    /// towards durability.
    archived: Lsn,
    /// Whether archiving counts towards durability.
    archive_completes: bool,

    /// By device; a device that has left the log keeps its place.
    slots: Vec<Slot>,
    /// The device that is tried first for the next request.
    next_device: usize,
    /// The device of the last request; a seal goes to another one.
    last_device: usize,
    /// Writes composed and queued for workers; if there are no workers, for the next thread that
    /// flushes. At most one for each device.
    jobs: VecDeque<Job>,
    /// Writes composed whose threads have not returned from their devices, including writes of
    /// requests that another write has completed.
    outstanding_writes: usize,
    /// Writes whose threads panicked inside their devices.
    lost_writes: usize,
    /// Device failures whose handlers have not returned yet. No request is composed meanwhile: it
    /// might be acknowledged with fewer copies than the superblock promises.
    unsettled_losses: usize,
    /// Requests none of whose writes succeeded; oldest first. They are written before everything
    /// else.
    orphans: VecDeque<Orphan>,

    waiters: Vec<Waiter>,
    /// A waiter was woken as leader and has not taken the lock yet.
    leader_woken: bool,
    /// The earliest time for which a waiter has set its timer.
    earliest_timer: Option<Moment>,
    /// Threads chosen to be woken: handed out before the lock is released. A reused allocation.
    wakes: WakeList,

    /// Whether writes may be hedged: there are two devices or more, and the options ask for it.
    hedges: bool,
    hider: Hider,
    batching: Batching,

    /// What no thread waits for; shared with the committers.
    gathering: Arc<Gathering>,
    /// Log that no request holds is to be flushed, although no thread waits for it.
    flush_due: bool,
    /// A worker will look again for log that has gathered.
    gatherer: bool,
    /// The last LSN that a seal block recorded.
    sealed: Lsn,
    watch: Watch,
    /// A worker was woken for new work and has not taken the lock yet.
    worker_woken: bool,
    /// Running workers.
    workers: usize,
    stopping: bool,
    /// The log is being closed: workers issue all writes, so that the closing thread is not blocked
    /// inside a device.
    closing: bool,
    /// The final seal is still to be written, if that is possible.
    final_seal_pending: bool,
    failed: Option<LogError>,
    /// Why closing stopped waiting for a device.
    given_up: Option<LogError>,

    /// Of requests and waits; the front counts records, the hider what it hides.
    statistics: LogStatistics,
}

/// What a transition moved, for the pipeline to publish and to signal before it releases the lock.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Moved {
    /// The end of the log on the devices, if it moved.
    pub on_devices: Option<Lsn>,
    /// The end of the durable log, if it moved.
    pub durable: Option<Lsn>,
    /// A write has returned, for which the thread that closes the log waits.
    pub closer_awaits_write: bool,
    /// Log is on the devices, for which the thread that closes the log waits.
    pub closer_awaits_log: bool,
    /// All workers have something to look for.
    pub for_workers: bool,
    /// One worker is to watch for the log to become idle.
    pub for_watcher: bool,
}

impl Flight {
    pub fn new(
        slots: Vec<Slot>,
        rules: Rules,
        hider: Hider,
        start: Lsn,
        lanes: Option<Box<dyn Completing>>,
        gathering: Arc<Gathering>,
    ) -> Flight {
        Flight {
            rules,
            requests: VecDeque::with_capacity(16 * slots.len()),
            first_number: 0,
            lanes,
            requested_boundary: start,
            on_devices: start,
            durable: start,
            archived: Lsn::ZERO,
            archive_completes: false,
            next_device: 0,
            last_device: 0,
            jobs: VecDeque::with_capacity(slots.len()),
            outstanding_writes: 0,
            lost_writes: 0,
            unsettled_losses: 0,
            orphans: VecDeque::new(),
            waiters: Vec::new(),
            leader_woken: false,
            earliest_timer: None,
            wakes: Vec::new(),
            hedges: hider.is_active(),
            hider,
            batching: Batching::default(),
            gathering,
            flush_due: false,
            gatherer: false,
            sealed: start,
            watch: Watch::None,
            worker_woken: false,
            workers: 0,
            stopping: false,
            closing: false,
            final_seal_pending: false,
            failed: None,
            given_up: None,
            statistics: LogStatistics::default(),
            slots,
        }
    }

    /// Registers a request that was composed for `free`. Returns its write.
    pub fn begin(&mut self, free: FreeDevice, composed: Composed, requested: Requested) -> Job {
        let task = self.begin_request(free.device, 1 << free.device, &composed, requested);
        self.begin_write(free, composed, task)
    }

    /// Registers a request for the devices of the mask `devices`, of which `first` was chosen
    /// first.
    pub fn begin_request(
        &mut self,
        first: usize,
        devices: u64,
        composed: &Composed,
        requested: Requested,
    ) -> Task {
        let Composed { from, boundary, .. } = *composed;
        assert!(self.requests.back().is_none_or(|r| r.boundary <= boundary), "requests are taken in order");
        (self.next_device, self.last_device) = ((first + 1) % self.slots.len(), first);
        self.requested_boundary = requested.boundary;
        self.let_gather();
        self.batching.took(requested.end.since(from));
        if let (Some(lanes), Some(cursor)) = (&mut self.lanes, requested.lane) {
            lanes.begin(first, cursor, boundary);
            return Task::Request(first as u64);
        }
        let count = devices.count_ones();
        self.requests.push_back(Request {
            from,
            boundary,
            done: false,
            devices,
            copies_required: count,
            copies_written: 0,
            writes: count,
        });
        Task::Request(self.first_number + self.requests.len() as u64 - 1)
    }

    /// Makes a job of a write that was composed for `free`.
    pub fn begin_write(&mut self, free: FreeDevice, composed: Composed, task: Task) -> Job {
        let FreeDevice { device, buf, .. } = free;
        let Composed { offset, len, rest, .. } = composed;
        let bytes = Arc::new(Bytes::default());
        let slot = &mut self.slots[device];
        assert!(slot.buffer.is_none() && slot.writing.is_none(), "one write at a time");
        if self.hedges {
            slot.writing = Some(Writing::new(task, Arc::clone(&bytes), len / BLOCK));
        }
        let target = Arc::clone(&slot.device);
        self.outstanding_writes += 1;
        let for_worker = self.has_workers() && self.worker_should_write(device, len / BLOCK);
        Job { device, target, buf, bytes, offset, len, rest, task, for_worker }
    }

    /// Ends a write that succeeded, at `at`: its device is free, its request may be done, log may
    /// be durable. `end` is the log's end.
    pub fn write_ended(
        &mut self,
        device: usize,
        task: Task,
        bytes: Arc<Bytes>,
        at: Moment,
        end: Lsn,
    ) -> Moved {
        if self.hedges {
            self.learn_from_write(device, &bytes, at, end);
        }
        let Begun { at: began, buf, len } = Bytes::ended(bytes);
        let slot = &mut self.slots[device];
        slot.buffer = Some(buf);
        slot.writes_ended += 1;
        slot.is_slow = at.since(began) >= self.rules.direct_below;
        let mut moved = self.write_returned();
        self.statistics.written_bytes += len as u64;
        if !matches!(task, Task::Again { .. }) {
            self.statistics.requests += 1;
            self.statistics.requests_by_size[((len / BLOCK).ilog2() as usize).min(15)] += 1;
        }
        match task {
            Task::Request(number) | Task::Again { request: number, .. } => {
                let (done, on_devices) = self.complete(number);
                if done && self.hedges {
                    self.note_hidden(number, at);
                }
                self.acknowledge(on_devices, end, &mut moved);
            }
            Task::Seal(lsn) => {
                self.statistics.seals += 1;
                // One that a slow device held up may end after a later one.
                self.sealed = self.sealed.max(lsn);
            }
        }
        if self.rules.workers && self.watch == Watch::None && self.is_unsealed() {
            self.watch = Watch::Requested;
            moved.for_watcher = true;
        }
        moved
    }

    /// Records that a write's thread has returned from its device.
    pub fn write_returned(&mut self) -> Moved {
        self.outstanding_writes -= 1;
        Moved {
            closer_awaits_write: self.stopping || self.closing,
            // A request that lost its devices waits for a free one.
            for_workers: self.stopping || !self.orphans.is_empty(),
            ..Moved::default()
        }
    }

    /// As [`Flight::write_returned`], for a thread that panicked inside its device.
    pub fn write_lost(&mut self) -> Moved {
        self.lost_writes += 1;
        self.write_returned()
    }

    /// Records that a write of request `number` has completed. Returns whether the request is done
    /// with it, and the new end of the log on the devices if that moved. No effect on a request
    /// that was done before.
    fn complete(&mut self, number: u64) -> (bool, Option<Lsn>) {
        if let Some(lanes) = &mut self.lanes {
            return (false, lanes.complete(number as usize));
        }
        let done = self.copy_written(number);
        (done, self.remove_done())
    }

    /// Records a completed write of request `number`. Returns whether it was the last that the
    /// request required. No effect on a request that was done before.
    pub fn copy_written(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.copies_written += 1;
        request.done = request.copies_written >= request.copies_required;
        request.done
    }

    /// Removes all leading requests that are done. Returns the new end of the log on the devices if
    /// it moved.
    fn remove_done(&mut self) -> Option<Lsn> {
        let mut on_devices = None;
        while self.requests.front().is_some_and(|r| r.done) {
            on_devices = self.requests.pop_front().map(|r| r.boundary);
            self.first_number += 1;
        }
        on_devices
    }

    /// Advances the durable LSN if it can, and chooses the waiters that this settles to be woken.
    /// `on_devices` is the new end of what the devices have, if that moved.
    fn acknowledge(&mut self, on_devices: Option<Lsn>, end: Lsn, moved: &mut Moved) {
        if let Some(lsn) = on_devices {
            assert!(lsn >= self.on_devices && lsn <= end);
            self.on_devices = lsn;
            moved.on_devices = on_devices;
            moved.closer_awaits_log = self.closing;
        }
        let mut durable = self.on_devices.max(self.durable);
        if self.archived != Lsn::ZERO {
            durable = durable.max(self.durable_with_archive());
        }
        debug_assert!(durable <= end, "only what was appended is durable");
        if on_devices.is_some() || durable > self.durable {
            self.durable = durable;
            moved.durable = Some(durable);
            self.settle_waiters();
        }
    }

    /// Chooses the waiters whose log is durable to be woken.
    fn settle_waiters(&mut self) {
        let mut i = 0;
        while i < self.waiters.len() {
            if self.waiters[i].lsn <= self.reached(self.waiters[i].depth) {
                self.wakes.push((self.waiters.swap_remove(i).parker, Wake::Settled));
            } else {
                i += 1;
            }
        }
    }

    /// Fails the log, unless it has failed already: no flush is acknowledged any more. All waiters
    /// are to be woken.
    pub fn fail(&mut self, error: &LogError) {
        self.failed.get_or_insert_with(|| error.clone());
        self.wakes.extend(self.waiters.drain(..).map(|w| (w.parker, Wake::Settled)));
    }

    pub fn failure(&self) -> Option<&LogError> {
        self.failed.as_ref()
    }

    /// The requests behind the end of the log on the devices, oldest first.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Request `number`, unless it is done.
    pub fn unfinished(&self, number: u64) -> Option<&Request> {
        let place = number.checked_sub(self.first_number)?;
        self.requests.get(place as usize).filter(|request| !request.done)
    }

    fn unfinished_mut(&mut self, number: u64) -> Option<&mut Request> {
        let place = number.checked_sub(self.first_number)?;
        Some(&mut self.requests[place as usize]).filter(|request| !request.done)
    }

    /// Whether any request is unfinished, or done but behind one that is unfinished.
    pub fn is_busy(&self) -> bool {
        !self.requests.is_empty() || self.lanes.as_ref().is_some_and(|lanes| lanes.is_busy())
    }

    /// Group boundary up to which requests were composed.
    pub fn requested_boundary(&self) -> Lsn {
        self.requested_boundary
    }

    fn reached(&self, depth: Depth) -> Lsn {
        match depth {
            Depth::Anywhere => self.durable,
            Depth::Devices => self.on_devices,
        }
    }

    /// Bytes of all writes that have ended.
    pub fn written_bytes(&self) -> u64 {
        self.statistics.written_bytes
    }

    /// The counters of requests, waits and hiding.
    pub fn statistics(&self) -> LogStatistics {
        LogStatistics { hiding: self.hider.statistics(), ..self.statistics.clone() }
    }
}
