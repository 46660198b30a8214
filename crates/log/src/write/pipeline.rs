//! The state that all threads of the log share.
//!
//! Locks, in the order in which they are taken:
//! 1. `flight`: requests in flight, waiters, free devices ([`Flight`]).
//! 2. `front`: buffer, positions on the devices, space ([`Front`]). `append` takes it alone.
//! 3. a `Parker`'s own lock, alone or last.
//!
//! No lock is held during I/O, while checksums are computed, or while threads are woken. `end`,
//! `on_devices` and `durable` mirror what the locks protect, so that they are read without a lock:
//! `end` is stored under `front` (`append.rs`), the others under `flight` (`completion.rs`).
//! `gathering` is the one that threads write without a lock.

use crate::archive::signal::ArchiverSignal;
use crate::error::LogErrorKind;
use crate::hedge::hiding::{Hider, Hiding};
use crate::members::loss::{FailureListener, LossHandler};
use crate::options::LogOptions;
use crate::ranks;
use crate::write::front::Front;
use crate::write::gathering::Gathering;
use crate::write::in_flight::Flight;
use crate::write::in_flight::rules::Rules;
use crate::write::in_flight::slot::Slot;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Arc, Condvar, Mutex, OnceLock, thread};
use firndb_base::{Epoch, Lsn};

/// The log without its threads.
pub(crate) struct Pipeline {
    pub epoch: Epoch,
    pub options: LogOptions,
    pub end: AtomicU64,
    pub durable: AtomicU64,
    pub on_devices: AtomicU64,
    /// Shared with `front`.
    pub promised: Arc<AtomicU64>,
    pub decisions: Arc<AtomicU64>,
    /// Signals the archiver.
    pub archiver_signal: ArchiverSignal,
    /// Flushes that no thread waits for; shared with `flight`.
    pub gathering: Arc<Gathering>,
    pub flight: Mutex<Flight>,
    pub front: Mutex<Front>,
    /// Wakes the workers; used with `flight`.
    pub work: Condvar,
    /// Wakes the thread that closes the log, which waits for writes and workers to end; used with
    /// `flight`.
    pub ended: Condvar,
    pub buffer_waits: AtomicU64,
    /// Decides what becomes of a device that fails.
    pub handler: OnceLock<LossHandler>,
    /// Called when the log has failed.
    pub on_failed: OnceLock<Box<FailureListener>>,
}

impl Pipeline {
    pub fn new(epoch: Epoch, options: LogOptions, front: Front, slots: Vec<Slot>) -> Pipeline {
        let start = front.end();
        let hiding = if options.takes_any_device() { options.hiding } else { Hiding::Off };
        let hider = Hider::new(hiding, &options.outliers, slots.len());
        let lanes = options.layout.as_ref().and_then(|layout| layout.completing(slots.len(), start));
        let rules = Rules::of(&options);
        let gathering = Arc::new(Gathering::new(start));
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
            gathering: Arc::clone(&gathering),
            flight: ranks::FLIGHT.mutex(Flight::new(slots, rules, hider, start, lanes, gathering)),
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
}

/// Fails the log if its thread panics: otherwise other threads would wait for ever for a request
/// that the thread held. Constructed before any lock is taken, so that it is dropped after all are
/// released.
pub(crate) struct PanicGuard<'a> {
    pipeline: &'a Pipeline,
    /// False in a thread that already unwinds and flushes from a destructor.
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
            self.pipeline.fail(LogErrorKind::Failed.error(
                "the log failed: a thread panicked while it wrote a request. Whether commits that were not \
                 acknowledged yet are durable is unknown until the database is opened again",
            ));
        }
    }
}
