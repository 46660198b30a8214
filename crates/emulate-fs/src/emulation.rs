//! A store on an emulated device: operations take effect at once and complete when they would on
//! the device.

use crate::completion::Completions;
use crate::counters::{Counters, Counts, Kind};
use crate::device::EmulatedDevice;
use crate::faults::FaultPlan;
use crate::journal::Inode;
use crate::script::Operation;
use crate::store::{Store, WriteMode};
use crate::timing::{DeviceOperation, DeviceRequest, Timing};
use crate::work::SyncWork;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;

/// How often names, lengths and places become durable by themselves.
pub const JOURNAL_INTERVAL: Duration = Duration::from_secs(5);

/// The state of the power.
#[derive(Debug, Default)]
pub enum Power {
    /// It is on.
    #[default]
    On,
    /// It was cut, at this time since the mount.
    Cut(Duration),
    /// It was cut, and the backing directory could not be changed to what the medium would hold.
    Failed(std::io::Error),
}

/// A store on an emulated device.
pub struct Emulation {
    /// The file system's state.
    pub store: Store,
    device: EmulatedDevice,
    counters: Counters,
    completions: Arc<Completions>,
    seed: u64,
    power: Mutex<Power>,
}

impl Emulation {
    /// Starts the clock of the mount, and schedules the scripted power cuts and the journal's
    /// interval.
    ///
    /// # Errors
    /// If the thread that sends replies cannot be started.
    pub fn start(
        store: Store,
        timing: Box<dyn Timing>,
        plan: FaultPlan,
        seed: u64,
    ) -> std::io::Result<Arc<Emulation>> {
        let power_cut = plan.power_cut_at();
        let emulation = Arc::new(Emulation {
            store,
            device: EmulatedDevice::new(timing, plan, seed),
            counters: Counters::default(),
            completions: Arc::new(Completions::default()),
            seed,
            power: Mutex::new(Power::On),
        });
        let (completions, of_clock) = (emulation.completions.clone(), Arc::downgrade(&emulation));
        firndb_base::sync::thread::spawn("replies", move || {
            completions.run(move || of_clock.upgrade().map_or(Duration::MAX, |emulation| emulation.now()));
        })?;
        if let Some(at) = power_cut {
            let weak = Arc::downgrade(&emulation);
            emulation.completions.schedule(at, move || {
                if let Some(emulation) = weak.upgrade() {
                    emulation.cut_power();
                }
            });
        }
        emulation.schedule_journal();
        Ok(emulation)
    }

    fn schedule_journal(self: &Arc<Emulation>) {
        let weak = Arc::downgrade(self);
        self.completions.schedule(self.now() + JOURNAL_INTERVAL, move || {
            if let Some(emulation) = weak.upgrade() {
                emulation.store.settle_metadata();
                emulation.schedule_journal();
            }
        });
    }

    /// Time since the mount.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.device.now()
    }
    /// All counts until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts(self.now())
    }
    /// The faults.
    #[must_use]
    pub fn plan(&self) -> &FaultPlan {
        &self.device.plan
    }
    /// Whether nothing can be allocated now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.plan().full(self.now())
    }

    /// Cuts the power now: bytes and names that are not durable are lost as the seed chooses, and
    /// every later request fails.
    pub fn cut_power(&self) {
        match self.store.cut(&mut Rng::new(self.seed ^ 0xC07)) {
            Ok(true) => *self.power.lock() = Power::Cut(self.now()),
            Ok(false) => {}
            Err(error) => *self.power.lock() = Power::Failed(error),
        }
    }
    /// Returns the state of the power.
    #[must_use]
    pub fn take_power(&self) -> Power {
        std::mem::take(&mut *self.power.lock())
    }

    /// Ends the thread that sends replies.
    pub fn end(&self) {
        self.completions.end();
    }

    fn check(&self, inode: Inode, operation: Operation, range: &Range<u64>) -> Result<(), Errno> {
        let named = |file: &std::path::Path| {
            self.store.names(|tree| Ok(tree.path(inode).is_some_and(|path| path == file))).unwrap_or(false)
        };
        if self.plan().fails(self.now(), operation, range, named) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Counts the arrival of a request, after a wait while too many replies are queued.
    fn arrive(&self) -> Duration {
        self.completions.wait_for_space();
        let now = self.now();
        self.counters.begin(now);
        now
    }

    fn complete<T>(&self, kind: Kind, begun: Duration, bytes: u64, result: &Result<T, Errno>) {
        self.counters.end(kind, begun, self.now(), result.is_ok().then_some(bytes));
    }

    fn at(self: &Arc<Emulation>, at: Duration, job: impl FnOnce(&Arc<Emulation>) + Send + 'static) {
        if at <= self.now() {
            job(self);
        } else {
            let emulation = self.clone();
            self.completions.schedule(at, move || job(&emulation));
        }
    }

    /// Reads, and calls `reply` with the bytes when the device would complete.
    pub fn read(
        self: &Arc<Emulation>,
        inode: Inode,
        offset: u64,
        length: usize,
        reply: impl FnOnce(Result<Vec<u8>, Errno>) + Send + 'static,
    ) {
        let begun = self.arrive();
        let range = offset..offset.saturating_add(length as u64);
        let read =
            self.check(inode, Operation::Reads, &range).and_then(|()| self.store.read(inode, offset, length));
        let (result, due) = match read {
            Ok((bytes, requests)) => (Ok(bytes), self.device.serve(&requests)),
            Err(error) => (Err(error), begun),
        };
        self.at(due, move |emulation| {
            let result = if emulation.store.is_dead() { Err(Errno::IO) } else { result };
            let bytes = result.as_ref().map_or(0, Vec::len) as u64;
            emulation.complete(Kind::Read, begun, bytes, &result);
            reply(result);
        });
    }

    /// Writes, and calls `reply` when the device would complete.
    pub fn write(
        self: &Arc<Emulation>,
        inode: Inode,
        offset: u64,
        bytes: &[u8],
        mode: WriteMode,
        reply: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let begun = self.arrive();
        let length = bytes.len() as u64;
        let range = offset..offset.saturating_add(length);
        let work = self
            .check(inode, Operation::Writes, &range)
            .and_then(|()| self.store.write(inode, offset, bytes, mode, self.is_full()));
        self.play(Kind::Write, begun, length, work.map(Some), reply);
    }

    /// Makes a file durable, and calls `reply` when the device would complete.
    pub fn sync(self: &Arc<Emulation>, inode: Inode, reply: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let begun = self.arrive();
        let work = self.check(inode, Operation::Syncs, &(0..0)).and_then(|()| self.store.begin_sync(inode));
        self.play(Kind::Sync, begun, 0, work, reply);
    }

    /// Makes names durable, and calls `reply` when the device would complete.
    pub fn sync_directory(
        self: &Arc<Emulation>,
        inode: Inode,
        reply: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let begun = self.arrive();
        let work =
            self.check(inode, Operation::Syncs, &(0..0)).and_then(|()| self.store.begin_directory_sync());
        self.play(Kind::Sync, begun, 0, work, reply);
    }

    /// Submits a sync's work to the device: the writes, then the sync; then marks what it covers as
    /// durable.
    fn play(
        self: &Arc<Emulation>,
        kind: Kind,
        begun: Duration,
        bytes: u64,
        work: Result<Option<SyncWork>, Errno>,
        reply: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let work = match work {
            Ok(Some(work)) => work,
            nothing => {
                let result = nothing.map(|_| ());
                self.complete(kind, begun, bytes, &result);
                return reply(result);
            }
        };
        let finish = move |emulation: &Arc<Emulation>, work: SyncWork| {
            let result = emulation.store.end_sync(work);
            emulation.complete(kind, begun, bytes, &result);
            reply(result);
        };
        let written = self.device.serve(&work.writes);
        self.at(written, move |emulation| {
            if !work.flush {
                return finish(emulation, work);
            }
            let flush = DeviceRequest { operation: DeviceOperation::Sync, range: 0..0 };
            emulation.at(emulation.device.serve(&[flush]), move |emulation| finish(emulation, work));
        });
    }
}
