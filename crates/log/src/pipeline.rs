//! Flushing: whoever needs log durable and finds a device free writes the next request itself.
//!
//! Locks, in the order in which they are taken:
//! 1. `flight`: requests in flight, waiters, free devices ([`Flight`]).
//! 2. `front`: buffer, positions on the devices, space ([`Front`]). Taken alone by `append`.
//! 3. a `Parker`'s own lock, alone or last.
//!
//! No lock is held during I/O, while checksums are computed, or while threads are woken. `end` and `durable` mirror
//! what the locks protect, so that both are read without a lock: `end` is stored under `front`, `durable` under `flight`.
//!
//! With one client a flush is one device write on the client's own thread and nobody is woken. With more,
//! those that find no free device wait; the thread whose write frees a device wakes exactly those that
//! are durable now and one that needs log that nobody has requested yet, which then takes all that has gathered.
//! A newcomer may take the free device before that one has woken up: the device does not idle for
//! the length of a thread switch. Where many wait, a request that is much shorter than usual is left to gather
//! ([`crate::gathering`]).

use crate::block::Owner;
use crate::early::Bell;
use crate::flight::{Flight, Parker, Slot, Waiter, Wake, WakeList, wake_all};
use crate::front::{Front, Refused};
use crate::hiding::{Hider, Hiding};
use crate::job::{Job, Task};
use crate::loss::{FailureListener, LossHandler};
use crate::options::{Appended, Compose, LogClass, LogOptions};
use crate::policy::LogPolicy;
use crate::ranks;
use crate::record::Record;
use crate::stripes::{LanesWritten, Stripes};
use crate::{LogError, LogErrorKind};
use firn_base::sync::atomic::{AtomicU64, Ordering};
use firn_base::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, thread};
use firn_base::{Epoch, Lsn};
use firn_device::AlignedBuf;
use std::collections::VecDeque;

/// Bytes of log that gather behind a request, wanted durable by nobody who waits, before another device is
/// set to work.
const GATHERED_MAX: u64 = 32 << 10;

/// Where log is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// On the devices, or in the archive as far as that counts.
    Anywhere,
    /// On the devices.
    Devices,
}

/// The log without its threads.
pub(crate) struct Pipeline {
    pub epoch: Epoch,
    pub options: LogOptions,
    end: AtomicU64,
    durable: AtomicU64,
    on_devices: AtomicU64,
    /// As in `front`.
    pub promised: Arc<AtomicU64>,
    /// Rung for whoever archives.
    pub bell: Bell,
    pub flight: Mutex<Flight>,
    pub front: Mutex<Front>,
    /// Wakes the workers; goes with `flight`.
    pub work: Condvar,
    buffer_waits: AtomicU64,
    /// Asked what becomes of a device that fails.
    pub handler: OnceLock<Box<LossHandler>>,
    /// Told when the log has failed.
    pub on_failed: OnceLock<Box<FailureListener>>,
}

thread_local! {
    /// Where this thread sleeps: made once, so that a wait allocates nothing. A thread waits for one log at a time.
    static PARKER: Arc<Parker> = Arc::default();
}

impl Pipeline {
    pub fn new(epoch: Epoch, options: LogOptions, front: Front, slots: Vec<Slot>) -> Pipeline {
        let start = front.end();
        let striped = match options.policy {
            LogPolicy::Striped { unit_bytes } => Some(Stripes::new(unit_bytes, slots.len())),
            LogPolicy::Array | LogPolicy::InPlace => None,
        };
        // What belongs to a device no other may write.
        let hiding = if striped.is_some() { Hiding::Off } else { options.hiding };
        let hider = Hider::new(hiding, &options.outliers, slots.len());
        let lanes = striped.map(|stripes| LanesWritten::new(stripes, start));
        let copies = options.copies;
        Pipeline {
            epoch,
            options,
            end: AtomicU64::new(start.0),
            durable: AtomicU64::new(start.0),
            on_devices: AtomicU64::new(start.0),
            promised: front.promised.clone(),
            bell: Bell::default(),
            flight: ranks::FLIGHT.mutex(Flight::new(slots, copies, hider, start, lanes)),
            front: ranks::FRONT.mutex(front),
            work: Condvar::new(),
            buffer_waits: AtomicU64::new(0),
            handler: OnceLock::new(),
            on_failed: OnceLock::new(),
        }
    }

    pub fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// All log before it is durable on the devices.
    pub fn on_devices(&self) -> Lsn {
        Lsn(self.on_devices.load(Ordering::Acquire))
    }

    /// Under the flight lock.
    pub fn set_on_devices(&self, lsn: Lsn) {
        self.on_devices.store(lsn.0, Ordering::Release);
    }

    /// Under the flight lock.
    pub fn set_durable(&self, durable: Lsn) {
        self.durable.store(durable.0, Ordering::Release);
    }

    pub fn buffer_waits(&self) -> u64 {
        self.buffer_waits.load(Ordering::Relaxed)
    }

    /// Appends a group, for the log's own purposes if `class` is `None`.
    pub fn append(&self, class: Option<LogClass>, records: &[Record<'_>]) -> Result<Appended, LogError> {
        loop {
            let outcome = {
                let mut front = self.front.lock();
                let outcome = front.append(class, records);
                if let Ok(appended) = &outcome {
                    self.end.store(appended.end.0, Ordering::Release);
                }
                outcome
            };
            match outcome {
                Ok(appended) => {
                    self.bell.appended(appended.end);
                    return Ok(appended);
                }
                Err(Refused::Error(error)) => return Err(error),
                Err(Refused::Buffer(until)) => {
                    // Bounded by the devices' progress: each turn waits for a request or writes one.
                    self.buffer_waits.fetch_add(1, Ordering::Relaxed);
                    // What is archived stays in the buffer until the devices are given it.
                    self.flush_to(until, Depth::Devices)?;
                }
            }
        }
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
        if lsn > self.end() {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!("cannot flush to LSN {lsn}: the log ends at {}", self.end()),
            ));
        }
        let _guard = PanicGuard::new(self);
        let mut lead = false;
        loop {
            // A thread that was called must say that it came, even if it has nothing to do any more.
            if !lead && self.reached(depth) >= lsn {
                return Ok(());
            }
            let mut flight = self.flight.lock();
            if std::mem::take(&mut lead) {
                flight.called = false;
            }
            if self.reached(depth) >= lsn {
                self.pass_on(flight);
                return Ok(());
            }
            if let Some(error) = &flight.failed {
                return Err(error.clone());
            }
            let mut own = None;
            while own.is_none()
                && let Some(job) = self.next_for(&mut flight, lsn)
            {
                own = self.hand_over(&mut flight, job);
            }
            if let Some(job) = own {
                self.pass_on(flight);
                self.run(job);
                continue;
            }
            lead = self.wait(flight, lsn, depth)? == Wake::Lead;
        }
    }

    /// What a thread that needs the log up to `lsn` can have written: a late request, before new log.
    fn next_for(&self, flight: &mut Flight, lsn: Lsn) -> Option<Job> {
        if let Some(job) = self.take_left(flight) {
            return Some(job);
        }
        if let Some(job) = self.take_late(flight, lsn) {
            return Some(job);
        }
        if lsn <= flight.covered {
            return None;
        }
        self.plan_for(lsn);
        if self.holds_back(flight, 1) { None } else { self.take(flight) }
    }

    /// What goes before all else: copies that no worker is there for, and requests that lost their devices.
    fn take_left(&self, flight: &mut Flight) -> Option<Job> {
        if !self.has_workers(flight)
            && let Some(job) = flight.jobs.pop_front()
        {
            return Some(job);
        }
        self.take_orphan(flight)
    }

    /// Under the paper's policy, promises the log up to `lsn` as a request.
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
        if flight.is_all_free() && work_left && !flight.called && flight.settling == 0 {
            // Every device is free, yet none took the log: the argument of `front` would be wrong.
            let error = self.dead_end(&flight, lsn);
            drop(flight);
            self.fail(error.clone());
            return Err(error);
        }
        let parker = PARKER.with(Arc::clone);
        let alarm = self.alarm(&mut flight, lsn);
        flight.waits += 1;
        flight.waiters.push(Waiter { lsn, depth, parker: Arc::clone(&parker) });
        if lsn <= flight.covered {
            // Others may need log that is not requested. A thread that needs some itself and still waits found
            // no device with room: calling would go in circles until one has written.
            self.pass_on(flight);
        } else {
            drop(flight);
        }
        if let Some(wake) = parker.wait(alarm) {
            return Ok(wake);
        }
        if self.flight.lock().forget(&parker) {
            return Ok(Wake::Alarm);
        }
        // Somebody has taken this thread off the list and is about to wake it.
        Ok(parker.wait(None).unwrap_or(Wake::Settled))
    }

    /// Releases the lock after calling for another leader if log and a device wait for one.
    fn pass_on(&self, mut flight: MutexGuard<'_, Flight>) {
        let mut list = std::mem::take(&mut flight.scratch);
        self.call(&mut flight, &mut list);
        self.release(flight, list);
    }

    /// Finds somebody for what a free device could do: a worker where workers write, else a waiting thread.
    pub fn call(&self, flight: &mut Flight, list: &mut WakeList) {
        if let Some(from) = self.first_late(flight) {
            if self.has_workers(flight) {
                return self.summon(flight);
            }
            if flight.call_first_past(from, list) {
                return;
            }
        }
        if let Some(orphan) = flight.orphans.front()
            && flight.has_idle_device()
        {
            let from = flight.unfinished(orphan.number).map_or(Lsn::ZERO, |request| request.from);
            return match self.has_workers(flight) {
                true => self.summon(flight),
                false => drop(flight.call_first_past(from, list)),
            };
        }
        let wanted = flight.wanted > flight.covered && flight.has_idle_set();
        let held = self.holds_back(flight, 0);
        let led = if held || self.workers_lead(flight) { false } else { flight.call_leader(list) };
        if !led && (wanted || !held && self.workers_lead(flight) && flight.is_needy()) {
            self.summon(flight);
        }
    }

    /// Whether there are threads that perform what is handed to them.
    pub fn has_workers(&self, flight: &Flight) -> bool {
        self.options.workers && !flight.stopping
    }

    /// Whether workers take the next request, since the device that is free is not one for the committing threads.
    pub fn workers_lead(&self, flight: &Flight) -> bool {
        let free = flight.slots.iter().position(Slot::is_ready);
        self.has_workers(flight) && free.is_some_and(|device| self.hands_over(flight, device, 1))
    }

    /// Whether a thread of the log's own is to perform a write of `blocks` blocks: since the device may stall, or since
    /// the archive may answer before it.
    pub fn hands_over(&self, flight: &Flight, device: usize, blocks: usize) -> bool {
        let overtaken = flight.archive_completes && flight.slots[device].is_slow;
        overtaken || flight.hider.hands_over(device, blocks)
    }

    /// Wakes a worker for what is wanted, unless one is on its way: it will see all that is wanted by then.
    fn summon(&self, flight: &mut Flight) {
        if !flight.summoned {
            flight.summoned = true;
            self.work.notify_one();
        }
    }

    pub fn release(&self, mut flight: MutexGuard<'_, Flight>, mut list: WakeList) {
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

    /// Composes the next request on a free device that has room, or on as many as are to have a copy.
    fn take(&self, flight: &mut Flight) -> Option<Job> {
        if flight.settling > 0 || !flight.orphans.is_empty() {
            return None;
        }
        if flight.copies > 1 {
            return self.take_copies(flight);
        }
        let count = flight.slots.len();
        for i in 0..count {
            let device = (flight.next_device + i) % count;
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let owner = flight.slots[device].owner;
            let (composed, cursor, requested) = {
                let mut front = self.front.lock();
                let composed = front.compose(device, owner, self.durable(), &mut buf);
                flight.covered = front.covered();
                (composed, front.lane_cursor(device), front.requested())
            };
            let Some(composed) = composed else {
                flight.slots[device].buffer = Some(buf);
                continue;
            };
            flight.next_device = (device + 1) % count;
            flight.last_device = device;
            flight.gathering.took(requested.since(composed.from));
            let number = match cursor {
                Some(cursor) => flight.begin_lane(device, cursor, composed.boundary),
                None => flight.begin(1 << device, composed.from, composed.boundary),
            };
            let task = Task::Request(number);
            return Some(self.job(flight, device, buf, composed, task));
        }
        None
    }

    /// Composes the next request for all the devices that it goes to; the caller writes the first, workers or whoever
    /// comes write the others.
    fn take_copies(&self, flight: &mut Flight) -> Option<Job> {
        let (width, count) = (flight.width(), flight.slots.len());
        let mut front = self.front.lock();
        let places = (0..count).map(|i| (flight.next_device + i) % count);
        let mut free: Vec<usize> = places
            .filter(|&place| flight.slots[place].is_ready() && front.space_mut(place).room_bytes() > 0)
            .collect();
        if free.len() < width {
            return None;
        }
        // The emptiest first: the room that `copies` promises is most when they are level.
        free.sort_by_key(|&place| std::cmp::Reverse(front.space_mut(place).room_bytes()));
        free.truncate(width);
        let devices: Vec<(usize, Owner)> =
            free.iter().map(|&place| (place, flight.slots[place].owner)).collect();
        let mut bufs: Vec<AlignedBuf> = free.iter().filter_map(|&place| flight.take_buffer(place)).collect();
        let composed = front.compose_copies(&devices, self.durable(), &mut bufs);
        flight.covered = front.covered();
        let requested = front.requested();
        drop(front);
        let Some(composed) = composed else {
            free.into_iter().zip(bufs).for_each(|(place, buf)| flight.slots[place].buffer = Some(buf));
            return None;
        };
        (flight.next_device, flight.last_device) = ((free[0] + 1) % count, free[0]);
        let carriers = free.iter().fold(0, |mask, place| mask | 1 << place);
        flight.gathering.took(requested.since(composed[0].from));
        let task = Task::Request(flight.begin(carriers, composed[0].from, composed[0].boundary));
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

    /// Composes a seal if all log is durable, none was sealed since, and a device is free; on another
    /// device than the last request's, if there is one.
    fn take_seal(&self, flight: &mut Flight) -> Option<Job> {
        let durable = self.on_devices();
        let busy = flight.is_busy() || flight.settling > 0;
        if busy || flight.failed.is_some() || flight.sealed >= durable || durable != self.end() {
            return None;
        }
        let count = flight.slots.len();
        for i in 1..=count {
            let device = (flight.last_device + i) % count;
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let owner = flight.slots[device].owner;
            let mut front = self.front.lock();
            // Under `front` the end cannot move: what the seal says is true when it is composed.
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

    /// Has the log flushed to `lsn` by a worker, or by the next `step`.
    pub fn request_flush(&self, lsn: Lsn) {
        if self.on_devices() >= lsn {
            return;
        }
        let mut flight = self.flight.lock();
        let lsn = lsn.min(self.end());
        if lsn <= flight.wanted {
            return;
        }
        flight.wanted = lsn;
        if lsn > flight.covered {
            self.plan_for(lsn);
            // Nobody waits for this: while a request is being written, its end calls for the next, which then
            // holds all that has gathered. Only much log is worth a second device and a thread's waking.
            let gathered = self.end().since(flight.covered);
            if flight.has_idle_set() && (!flight.is_busy() || gathered >= GATHERED_MAX) {
                self.summon(&mut flight);
            }
        }
    }

    /// What a worker has to do: what was handed to it, a late request, new log, in this order.
    pub fn next_job(&self, flight: &mut Flight) -> Option<Job> {
        if let Some(job) = flight.jobs.pop_front() {
            return Some(job);
        }
        let urgent = self.take_orphan(flight).or_else(|| self.take_late(flight, Lsn::ZERO));
        let job = urgent.or_else(|| {
            let needed = self.workers_lead(flight) && flight.is_needy() && flight.failed.is_none();
            if needed && !self.holds_back(flight, 0) { self.take(flight) } else { self.take_wanted(flight) }
        })?;
        let needy = self.workers_lead(flight) && self.is_contended(flight);
        let more = flight.has_idle_set() && (flight.wanted > flight.covered || needy);
        if more {
            self.summon(flight);
        }
        Some(job)
    }

    /// Composes the next request if `request_flush` asked for it and a device has room.
    fn take_wanted(&self, flight: &mut Flight) -> Option<Job> {
        if flight.wanted <= flight.covered || flight.failed.is_some() {
            return None;
        }
        self.take(flight)
    }

    /// Writes one request that `request_flush` asked for; answers whether there was one.
    pub fn write_wanted(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let mut flight = self.flight.lock();
        let job = self.take_left(&mut flight).or_else(|| self.take_wanted(&mut flight));
        if job.is_none() && self.is_stuck(&flight) {
            let error = self.dead_end(&flight, self.end());
            drop(flight);
            self.fail(error);
            return false;
        }
        drop(flight);
        job.map(|job| self.run(job)).is_some()
    }

    /// Writes a seal block if one is due; answers whether it did.
    pub fn write_seal(&self) -> bool {
        let _guard = PanicGuard::new(self);
        let job = self.take_seal(&mut self.flight.lock());
        job.map(|job| self.run(job)).is_some()
    }

    /// Whether log became durable that no seal has recorded.
    pub fn is_unsealed(&self, flight: &Flight) -> bool {
        flight.failed.is_none() && flight.sealed < self.on_devices()
    }
}

/// Fails the log if its thread panics, so that nobody waits for ever for a request it held. Made before any
/// lock is taken, so that it acts after all are released.
pub(crate) struct PanicGuard<'a> {
    pipeline: &'a Pipeline,
    /// Not so in a thread that unwinds already, and flushes from a destructor.
    armed: bool,
}

impl<'a> PanicGuard<'a> {
    pub fn new(pipeline: &'a Pipeline) -> PanicGuard<'a> {
        PanicGuard { pipeline, armed: !thread::panicking() }
    }
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if self.armed && thread::panicking() {
            self.pipeline.fail(LogError::new(
                LogErrorKind::Failed,
                "the log failed: a thread panicked while it wrote a request. Whether commits that were not \
                 acknowledged yet are durable is unknown until the database is opened again",
            ));
        }
    }
}
