//! Group commit: a thread that needs log durable and finds a device free writes the next request
//! itself (the leader).
//!
//! Locks, in the order in which they are taken:
//! 1. `flight`: requests in flight, waiters, free devices ([`Flight`]).
//! 2. `front`: buffer, positions on the devices, space ([`Front`]). `append` takes it alone.
//! 3. a `Parker`'s own lock, alone or last.
//!
//! No lock is held during I/O, while checksums are computed, or while threads are woken. `end` and
//! `durable` mirror what the locks protect, so that both are read without a lock: `end` is stored
//! under `front`, `durable` under `flight`.
//!
//! With one client a flush is one device write on the client's own thread, and no thread is woken.
//! With several clients, those that find no free device wait. The thread whose write frees a device
//! wakes exactly the threads whose LSN is durable now, and one leader: a thread that needs log that
//! no request holds yet. The leader writes all log that has accumulated. Another client may take
//! the free device before the leader runs, so the device does not idle for the length of a thread
//! switch. Where many threads wait, a request that is much shorter than usual is delayed to let
//! more log accumulate (`batching.rs`).

use crate::archive::signal::ArchiverSignal;
use crate::block::Owner;
use crate::error::{LogError, LogErrorKind};
use crate::hedge::hiding::{Hider, Hiding};
use crate::layout_policy::LogPolicy;
use crate::members::loss::{FailureListener, LossHandler};
use crate::options::{Appended, Compose, LogClass, LogOptions};
use crate::ranks;
use crate::record::Record;
use crate::write::completion::PanicGuard;
use crate::write::flight::{Depth, Flight, Parker, Slot, Waiter, Wake, WakeList, wake_all};
use crate::write::front::{Front, Refused};
use crate::write::job::{Job, Task};
use crate::write::stripes::{LanesWritten, Stripes};
use firn_base::sync::atomic::{AtomicU64, Ordering};
use firn_base::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, before_device};
use firn_base::{Epoch, Lsn};
use firn_device::AlignedBuf;
use std::collections::VecDeque;

/// While a request is being written, an asynchronous flush uses a second device only once this much
/// log is unrequested, in bytes.
const SECOND_DEVICE_BYTES: u64 = 32 << 10;

/// The log without its threads.
pub(crate) struct Pipeline {
    pub epoch: Epoch,
    pub options: LogOptions,
    end: AtomicU64,
    durable: AtomicU64,
    on_devices: AtomicU64,
    /// Shared with `front`.
    pub promised: Arc<AtomicU64>,
    pub decisions: Arc<AtomicU64>,
    /// Signals the archiver.
    pub archiver_signal: ArchiverSignal,
    pub flight: Mutex<Flight>,
    pub front: Mutex<Front>,
    /// Wakes the workers; used with `flight`.
    pub work: Condvar,
    /// Wakes the thread that closes the log, which waits for writes and workers to end; used with
    /// `flight`.
    pub ended: Condvar,
    buffer_waits: AtomicU64,
    /// Decides what becomes of a device that fails.
    pub handler: OnceLock<LossHandler>,
    /// Called when the log has failed.
    pub on_failed: OnceLock<Box<FailureListener>>,
}

thread_local! {
    /// Where this thread sleeps. It is made once, so that a wait allocates nothing. A thread waits
    /// for one log at a time.
    static PARKER: Arc<Parker> = Arc::default();
}

impl Pipeline {
    pub fn new(epoch: Epoch, options: LogOptions, front: Front, slots: Vec<Slot>) -> Pipeline {
        let start = front.end();
        let striped = match options.policy {
            LogPolicy::Striped { unit_bytes } => Some(Stripes::new(unit_bytes, slots.len())),
            LogPolicy::Array | LogPolicy::InPlace => None,
        };
        // In a striped log, only the owner of a stripe may write it.
        let hiding = if striped.is_some() { Hiding::Off } else { options.hiding };
        let hider = Hider::new(hiding, &options.outliers, slots.len());
        let lanes = striped.map(|stripes| LanesWritten::new(stripes, start));
        let copies = options.copies;
        let handler = OnceLock::new();
        if let Some(given) = &options.on_device_lost {
            let _ = handler.set(given.clone());
        }
        Pipeline {
            epoch,
            options,
            end: AtomicU64::new(start.0),
            durable: AtomicU64::new(start.0),
            on_devices: AtomicU64::new(start.0),
            promised: front.promised.clone(),
            decisions: front.decisions.clone(),
            archiver_signal: ArchiverSignal::default(),
            flight: ranks::FLIGHT.mutex(Flight::new(slots, copies, hider, start, lanes)),
            front: ranks::FRONT.mutex(front),
            work: Condvar::new(),
            ended: Condvar::new(),
            buffer_waits: AtomicU64::new(0),
            handler,
            on_failed: OnceLock::new(),
        }
    }

    pub fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// All log before this LSN is durable on the devices.
    pub fn on_devices(&self) -> Lsn {
        Lsn(self.on_devices.load(Ordering::Acquire))
    }

    /// The caller holds the flight lock.
    pub fn set_on_devices(&self, lsn: Lsn) {
        self.on_devices.store(lsn.0, Ordering::Release);
    }

    /// The caller holds the flight lock.
    pub fn set_durable(&self, durable: Lsn) {
        self.durable.store(durable.0, Ordering::Release);
    }

    pub fn buffer_waits(&self) -> u64 {
        self.buffer_waits.load(Ordering::Relaxed)
    }

    /// Appends a group, for the log's own purposes if `class` is `None`. Waits while the buffer is
    /// full.
    pub fn append(&self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, LogError> {
        before_device();
        loop {
            match self.append_now(class, records) {
                Ok(appended) => return Ok(appended),
                Err(Refused::Error(error)) => return Err(error),
                // Bounded by the devices' progress: each iteration waits for a request or writes
                // one.
                Err(Refused::Buffer(until)) => self.flush_buffer(until)?,
            }
        }
    }

    /// As [`Pipeline::append`], but returns an error of kind `BufferFull` if the buffer is full,
    /// and waits for no device.
    pub fn try_append(&self, class: LogClass, records: &[Record<'_>]) -> Result<Appended, LogError> {
        self.append_now(Some(class), records).map_err(|refused| match refused {
            Refused::Error(error) => error,
            Refused::Buffer(_) => buffer_full(),
        })
    }

    fn append_now(&self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, Refused> {
        let appended = {
            let mut front = self.front.lock();
            let appended = front.append(class, records)?;
            self.end.store(appended.end.0, Ordering::Release);
            appended
        };
        self.archiver_signal.appended(appended.end);
        Ok(appended)
    }

    /// Waits until the buffer has had space for `bytes` of stream.
    pub fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        before_device();
        let until = {
            let front = self.front.lock();
            front.buffer_needs(front.end().advance(bytes))
        };
        until.map_or(Ok(()), |until| self.flush_buffer(until))
    }

    fn flush_buffer(&self, until: Lsn) -> Result<(), LogError> {
        self.buffer_waits.fetch_add(1, Ordering::Relaxed);
        // Archived log stays in the buffer until it is composed into requests for the devices.
        self.flush_to(until, Depth::Devices)
    }

    pub fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.flush_to(lsn, Depth::Anywhere)
    }

    fn reached(&self, depth: Depth) -> Lsn {
        match depth {
            Depth::Anywhere => self.durable(),
            Depth::Devices => self.on_devices(),
        }
    }

    pub fn flush_to(&self, lsn: Lsn, depth: Depth) -> Result<(), LogError> {
        if self.reached(depth) >= lsn {
            return Ok(());
        }
        before_device();
        if lsn > self.end() {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!("cannot flush to LSN {lsn}: the log ends at {}", self.end()),
            ));
        }
        let _guard = PanicGuard::new(self);
        let mut lead = false;
        loop {
            // A woken leader must clear `leader_woken`, even if it has nothing left to do.
            if !lead && self.reached(depth) >= lsn {
                return Ok(());
            }
            let mut flight = self.flight.lock();
            if std::mem::take(&mut lead) {
                flight.leader_woken = false;
            }
            if self.reached(depth) >= lsn {
                self.unlock_and_wake_next(flight);
                return Ok(());
            }
            if let Some(error) = &flight.failed {
                return Err(error.clone());
            }
            let mut own = None;
            while own.is_none()
                && let Some(job) = self.next_for(&mut flight, lsn)
            {
                own = self.queue_for_worker(&mut flight, job);
            }
            if let Some(job) = own {
                self.unlock_and_wake_next(flight);
                self.run(job);
                continue;
            }
            lead = self.wait(flight, lsn, depth)? == Wake::Lead;
        }
    }

    /// The next write for a thread that needs the log up to `lsn`: an overdue request comes before
    /// new log.
    fn next_for(&self, flight: &mut Flight, lsn: Lsn) -> Option<Job> {
        if let Some(job) = self.take_queued_or_orphaned(flight) {
            return Some(job);
        }
        if let Some(job) = self.compose_reissue(flight, lsn) {
            return Some(job);
        }
        if lsn <= flight.requested_boundary {
            return None;
        }
        self.plan_for(lsn);
        if self.should_delay(flight, 1) { None } else { self.compose_request(flight) }
    }

    /// The write that precedes all others: a queued copy that no worker is there to write, or a
    /// request that lost its devices.
    fn take_queued_or_orphaned(&self, flight: &mut Flight) -> Option<Job> {
        if !self.has_workers(flight)
            && let Some(job) = flight.jobs.pop_front()
        {
            return Some(job);
        }
        self.compose_orphan(flight)
    }

    /// Under the paper's policy, reserves the log up to `lsn` as a request of its own.
    fn plan_for(&self, lsn: Lsn) {
        if self.options.compose == Compose::AtFlush {
            let mut front = self.front.lock();
            if !front.is_planned(lsn) {
                front.plan();
            }
        }
    }

    fn wait(&self, mut flight: MutexGuard<'_, Flight>, lsn: Lsn, depth: Depth) -> Result<Wake, LogError> {
        let work_left = !flight.is_busy() || !flight.orphans.is_empty();
        if flight.is_all_free() && work_left && !flight.leader_woken && flight.unsettled_losses == 0 {
            // All devices are free, yet none took the log: the space argument of `front` is
            // violated.
            let error = self.no_progress_error(&flight, lsn);
            drop(flight);
            self.fail(error.clone());
            return Err(error);
        }
        let parker = PARKER.with(Arc::clone);
        let timer = self.hedge_timer(&mut flight, lsn);
        flight.waits += 1;
        flight.waiters.push(Waiter { lsn, depth, parker: Arc::clone(&parker) });
        if lsn <= flight.requested_boundary {
            // Other threads may need log that no request holds. A thread that needs such log itself
            // and still has to wait found no device with free space: waking a leader would loop
            // until a write ends.
            self.unlock_and_wake_next(flight);
        } else {
            drop(flight);
        }
        if let Some(wake) = parker.wait(timer) {
            return Ok(wake);
        }
        if self.flight.lock().remove_waiter(&parker) {
            return Ok(Wake::Timeout);
        }
        // Another thread has removed this one from the list and is about to wake it.
        Ok(parker.wait(None).unwrap_or(Wake::Settled))
    }

    /// Releases the lock, after waking another leader if log waits and a device is free.
    fn unlock_and_wake_next(&self, mut flight: MutexGuard<'_, Flight>) {
        let mut list = std::mem::take(&mut flight.scratch);
        self.wake_next_writer(&mut flight, &mut list);
        self.unlock_and_wake(flight, list);
    }

    /// Wakes a thread to use an idle device: a worker where workers write, otherwise a waiting
    /// thread as the next leader.
    pub fn wake_next_writer(&self, flight: &mut Flight, list: &mut WakeList) {
        if let Some(from) = self.first_overdue(flight) {
            if self.has_workers(flight) {
                return self.wake_worker(flight);
            }
            if flight.wake_first_waiter_past(from, list) {
                return;
            }
        }
        if let Some(orphan) = flight.orphans.front()
            && flight.has_idle_device()
        {
            let from = flight.unfinished(orphan.number).map_or(Lsn::ZERO, |request| request.from);
            return match self.has_workers(flight) {
                true => self.wake_worker(flight),
                false => drop(flight.wake_first_waiter_past(from, list)),
            };
        }
        let async_due = flight.async_flush_target > flight.requested_boundary && flight.has_idle_set();
        let delayed = self.should_delay(flight, 0);
        let led = if delayed || self.workers_lead(flight) { false } else { flight.wake_leader(list) };
        if !led && (async_due || !delayed && self.workers_lead(flight) && flight.has_unrequested_waiter()) {
            self.wake_worker(flight);
        }
    }

    /// Whether there are workers to take queued writes.
    pub fn has_workers(&self, flight: &Flight) -> bool {
        self.options.workers && !flight.stopping
    }

    /// Whether workers take the next request, because committing threads should not write to the
    /// free device.
    pub fn workers_lead(&self, flight: &Flight) -> bool {
        let free = flight.slots.iter().position(Slot::is_ready);
        self.has_workers(flight) && free.is_some_and(|device| self.worker_should_write(flight, device, 1))
    }

    /// Whether a worker should issue a write of `blocks` blocks: because the device may stall,
    /// because the archive may acknowledge the log first, or because the log is being closed.
    pub fn worker_should_write(&self, flight: &Flight, device: usize, blocks: usize) -> bool {
        let overtaken = flight.archive_completes && flight.slots[device].is_slow;
        overtaken || flight.closing || flight.hider.worker_should_write(device, blocks)
    }

    /// Wakes a worker for new work, unless one is already on its way: it will see all work queued
    /// by then.
    pub fn wake_worker(&self, flight: &mut Flight) {
        if !flight.worker_woken {
            flight.worker_woken = true;
            self.work.notify_one();
        }
    }

    /// Whether the log that waits should accumulate until a request in flight is done, or until
    /// there is more of it. `asking` is the number of asking threads (one or none) that wait and
    /// are not in the list of waiters.
    pub fn should_delay(&self, flight: &mut Flight, asking: usize) -> bool {
        let applies =
            self.options.compose == Compose::WhenDeviceFree && self.options.policy == LogPolicy::Array;
        // A request that lost its devices completes only if another thread acts.
        let in_flight = flight.is_busy() && flight.orphans.is_empty() && flight.unsettled_losses == 0;
        let waiting = self.end().since(flight.requested_boundary);
        // Threads inside device calls wait as well.
        let writing = if flight.hider.is_active() { 0 } else { flight.busy_devices() };
        let threads = flight.waiters.len() + writing + asking;
        let at_once = flight.usable() / flight.width();
        applies && in_flight && flight.batching.should_delay(waiting, threads, at_once)
    }

    /// Whether log waits for a device: not for more log to accumulate, and not for work that
    /// precedes all new log (the settlement of a device failure, a request that lost its devices).
    /// A thread woken meanwhile could compose nothing.
    pub fn is_contended(&self, flight: &mut Flight) -> bool {
        let can_be_taken = flight.unsettled_losses == 0 && flight.orphans.is_empty();
        can_be_taken && flight.has_unrequested_waiter() && !self.should_delay(flight, 0)
    }

    pub fn unlock_and_wake(&self, mut flight: MutexGuard<'_, Flight>, mut list: WakeList) {
        if list.is_empty() {
            flight.scratch = list;
            return;
        }
        drop(flight);
        wake_all(&mut list);
        if let Some(mut flight) = self.flight.try_lock() {
            flight.scratch = list;
        }
    }

    /// Composes the next request on a free device with free space, or on several devices if the log
    /// has copies.
    fn compose_request(&self, flight: &mut Flight) -> Option<Job> {
        if flight.unsettled_losses > 0 || !flight.orphans.is_empty() {
            return None;
        }
        if flight.copies > 1 {
            return self.compose_request_copies(flight);
        }
        let count = flight.slots.len();
        for i in 0..count {
            let device = (flight.next_device + i) % count;
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let owner = flight.slots[device].owner;
            let (composed, cursor, requested) = {
                let mut front = self.front.lock();
                let composed = front.compose(device, owner, self.durable(), &mut buf);
                flight.requested_boundary = front.requested_boundary();
                (composed, front.lane_cursor(device), front.requested())
            };
            let Some(composed) = composed else {
                flight.slots[device].buffer = Some(buf);
                continue;
            };
            flight.next_device = (device + 1) % count;
            flight.last_device = device;
            flight.batching.took(requested.since(composed.from));
            let number = match cursor {
                Some(cursor) => flight.begin_lane(device, cursor, composed.boundary),
                None => flight.begin(1 << device, composed.from, composed.boundary),
            };
            let task = Task::Request(number);
            return Some(self.job(flight, device, buf, composed, task));
        }
        None
    }

    /// Composes the next request for all the devices that it goes to. The caller writes the first
    /// copy; workers, or the next threads that flush, write the others.
    fn compose_request_copies(&self, flight: &mut Flight) -> Option<Job> {
        let (width, count) = (flight.width(), flight.slots.len());
        let mut front = self.front.lock();
        let places = (0..count).map(|i| (flight.next_device + i) % count);
        let mut free: Vec<usize> = places
            .filter(|&place| flight.slots[place].is_ready() && front.space_mut(place).free_bytes() > 0)
            .collect();
        if free.len() < width {
            return None;
        }
        // The emptiest first: the space that `copies` guarantees is largest when the devices are
        // level.
        free.sort_by_key(|&place| std::cmp::Reverse(front.space_mut(place).free_bytes()));
        free.truncate(width);
        let devices: Vec<(usize, Owner)> =
            free.iter().map(|&place| (place, flight.slots[place].owner)).collect();
        let mut bufs: Vec<AlignedBuf> = free.iter().filter_map(|&place| flight.take_buffer(place)).collect();
        let composed = front.compose_copies(&devices, self.durable(), &mut bufs);
        flight.requested_boundary = front.requested_boundary();
        let requested = front.requested();
        drop(front);
        let Some(composed) = composed else {
            free.into_iter().zip(bufs).for_each(|(place, buf)| flight.slots[place].buffer = Some(buf));
            return None;
        };
        (flight.next_device, flight.last_device) = ((free[0] + 1) % count, free[0]);
        let device_mask = free.iter().fold(0, |mask, place| mask | 1 << place);
        flight.batching.took(requested.since(composed[0].from));
        let task = Task::Request(flight.begin(device_mask, composed[0].from, composed[0].boundary));
        let mut jobs = VecDeque::with_capacity(width);
        for ((place, buf), composed) in free.into_iter().zip(bufs).zip(composed) {
            jobs.push_back(self.job(flight, place, buf, composed, task));
        }
        let own = jobs.pop_front();
        if self.has_workers(flight) {
            jobs.iter().for_each(|_| self.work.notify_one());
        }
        flight.jobs.extend(jobs);
        own
    }

    /// Composes a seal if all log is durable, no seal records that yet, and a device is free; on
    /// another device than the last request's, if there is one.
    fn compose_seal_job(&self, flight: &mut Flight) -> Option<Job> {
        let durable = self.on_devices();
        let busy = flight.is_busy() || flight.unsettled_losses > 0;
        if busy || flight.failed.is_some() || flight.sealed >= durable || durable != self.end() {
            return None;
        }
        let count = flight.slots.len();
        for i in 1..=count {
            let device = (flight.last_device + i) % count;
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let owner = flight.slots[device].owner;
            let mut front = self.front.lock();
            // The end cannot move while `front` is held: the seal's statement is true when it is
            // composed.
            let still = front.end() == durable;
            let composed = if still { front.compose_seal(device, owner, &mut buf) } else { None };
            drop(front);
            if let Some(composed) = composed {
                return Some(self.job(flight, device, buf, composed, Task::Seal(durable)));
            }
            flight.slots[device].buffer = Some(buf);
        }
        None
    }

    /// Composes the seal that closes the log. Returns `None` if none can be written; closing then
    /// proceeds without it.
    fn compose_final_seal(&self, flight: &mut Flight) -> Option<Job> {
        flight.final_seal_pending = false;
        let job = self.compose_seal_job(flight);
        self.ended.notify_all();
        job
    }

    /// Has a worker, or the next `step`, flush the log to `lsn`.
    pub fn request_flush(&self, lsn: Lsn) {
        if self.on_devices() >= lsn {
            return;
        }
        let mut flight = self.flight.lock();
        let lsn = lsn.min(self.end());
        if lsn <= flight.async_flush_target {
            return;
        }
        flight.async_flush_target = lsn;
        if lsn > flight.requested_boundary {
            self.plan_for(lsn);
            // No thread waits for this. While a request is being written, its end triggers the next
            // one, which then holds all log that has accumulated. Only a large amount of log is
            // worth a second device and a thread's wake-up.
            let gathered = self.end().since(flight.requested_boundary);
            if flight.has_idle_set() && (!flight.is_busy() || gathered >= SECOND_DEVICE_BYTES) {
                self.wake_worker(&mut flight);
            }
        }
    }

    /// A worker's next write: a queued write, an orphan or an overdue request, the final seal, new
    /// log, in this order.
    pub fn next_job(&self, flight: &mut Flight) -> Option<Job> {
        if let Some(job) = flight.jobs.pop_front() {
            return Some(job);
        }
        let urgent = self.compose_orphan(flight).or_else(|| self.compose_reissue(flight, Lsn::ZERO));
        let seal = |flight: &mut Flight| {
            if flight.final_seal_pending { self.compose_final_seal(flight) } else { None }
        };
        let job = urgent.or_else(|| seal(flight)).or_else(|| {
            let needed =
                self.workers_lead(flight) && flight.has_unrequested_waiter() && flight.failed.is_none();
            if needed && !self.should_delay(flight, 0) {
                self.compose_request(flight)
            } else {
                self.compose_async_request(flight)
            }
        })?;
        let needy = self.workers_lead(flight) && self.is_contended(flight);
        let more = flight.has_idle_set() && (flight.async_flush_target > flight.requested_boundary || needy);
        if more {
            self.wake_worker(flight);
        }
        Some(job)
    }

    /// Composes the next request if `request_flush` asked for it and a device has free space.
    fn compose_async_request(&self, flight: &mut Flight) -> Option<Job> {
        if flight.async_flush_target <= flight.requested_boundary || flight.failed.is_some() {
            return None;
        }
        self.compose_request(flight)
    }

    /// Writes one request that `request_flush` asked for. Returns whether there was one.
    pub fn write_async_request(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let mut flight = self.flight.lock();
        let job =
            self.take_queued_or_orphaned(&mut flight).or_else(|| self.compose_async_request(&mut flight));
        if job.is_none() && self.is_stuck(&flight) {
            let error = self.no_progress_error(&flight, self.end());
            drop(flight);
            self.fail(error);
            return false;
        }
        drop(flight);
        job.map(|job| self.run(job)).is_some()
    }

    /// Writes a seal block if one is due. Returns whether it did.
    pub fn write_seal(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let job = self.compose_seal_job(&mut self.flight.lock());
        job.map(|job| self.run(job)).is_some()
    }

    /// Whether log became durable that no seal has recorded.
    pub fn is_unsealed(&self, flight: &Flight) -> bool {
        flight.failed.is_none() && flight.sealed < self.on_devices()
    }
}

#[cold]
fn buffer_full() -> LogError {
    LogError::new(LogErrorKind::BufferFull, "the log's buffer is full until a device has written some of it")
}
