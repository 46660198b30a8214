//! The database's own threads (the log's workers belong to the log).
//!
//! Each drives a step function of [`Engine`]. A panic in one poisons the database: it never hangs
//! without its background work.

use crate::engine::Engine;
use crate::engine::checkpointer::Request;
use crate::error::Error;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::thread::{self, JoinHandle};
use firndb_base::sync::{Arc, Condvar, Mutex};
use firndb_base::{Progress, clock};
use firndb_txn::{Sweeps, TxnError, TxnErrorKind};
use std::time::Duration;

/// How long a cleaner sleeps when no thread waits for a frame.
const CLEANER_NAP: Duration = Duration::from_millis(100);
/// How long the other cleaners do, which it wakes if there is more to write than it can.
const OTHER_CLEANERS_NAP: Duration = Duration::from_secs(10);
/// How often maintenance looks for work.
const MAINTENANCE_NAP: Duration = Duration::from_millis(20);
/// How long it rests after a step of a sweep at least, and `MAINTENANCE_NAP` at most: so at most
/// 8,000 leaves a second.
const SWEEP_NAP_MIN: Duration = Duration::from_millis(1);
/// How long nothing is swept after a step that removed nothing, in times of the step, and at most:
/// after a crash ranges are coarse, and may name all leaves of a table with a few deleted rows.
const VAIN_SWEEP_REST: u32 = 9;
const VAIN_SWEEP_REST_MAX: Duration = Duration::from_secs(1);
/// How long no groups are emptied after a step of it beside transactions, in times of the step:
/// nothing waits for the space, since places are taken in these groups before the file grows.
const EMPTYING_REST: u32 = 9;
/// How long stopping waits for a write to the archive that does not end.
pub(crate) const ARCHIVE_STOP_MAX: Duration = Duration::from_secs(5);
/// How long background work rests after a failure that may pass.
const FAILURE_NAP: Duration = Duration::from_millis(250);

/// How long a reader sleeps when there is nothing to read ahead.
const READER_NAP: Duration = Duration::from_secs(1);

/// The archiver thread's name: the only thread that may be left behind.
const ARCHIVE_THREAD: &str = "firn-archive";

/// The running threads.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    handles: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
}

struct Shared {
    engine: Arc<Engine>,
    stopping: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Threads {
    pub fn start(engine: &Arc<Engine>) -> Result<Threads, Error> {
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            stopping: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let threads = Threads { shared, handles: Mutex::default() };
        let mut bodies = vec![
            ("firn-cleaner", Shared::clean as fn(&Shared)),
            ("firn-checkpoint", Shared::checkpoint),
            ("firn-maintain", Shared::maintain),
        ];
        let others = 1..engine.pool.cleaners_max();
        bodies.extend(others.map(|_| ("firn-cleaners", Shared::clean_beside as fn(&Shared))));
        let helpers = 0..engine.txns.shadow_helpers();
        bodies.extend(helpers.map(|_| ("firn-shadows", Shared::help_with_shadows as fn(&Shared))));
        if engine.pool.begin_read_ahead() {
            let readers = 0..engine.pool.readers();
            bodies.extend(readers.map(|_| ("firn-reader", Shared::read_ahead as fn(&Shared))));
        }
        if !engine.recovery.is_complete() {
            bodies.push(("firn-recovery", Shared::recover));
        }
        if engine.archive.is_some() {
            bodies.push((ARCHIVE_THREAD, Shared::archive));
        }
        for (name, body) in bodies {
            let shared = threads.shared.clone();
            let handle = thread::spawn(name, move || {
                let guard = PoisonOnPanic(&shared.engine);
                body(&shared);
                drop(guard);
            });
            match handle {
                Ok(handle) => threads.handles.lock().push((name, handle)),
                Err(error) => {
                    threads.stop();
                    return Err(Error::failed(format!("could not start a thread: {error}")).caused_by(error));
                }
            }
        }
        Ok(threads)
    }

    /// Ends the threads and waits for them.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.engine.checkpointer.stop();
        self.shared.engine.log.stop_waiting_for_log();
        self.shared.engine.pool.end_read_ahead();
        self.shared.engine.pool.end_cleaning();
        self.shared.engine.txns.end_shadow_help();
        if let Some(archive) = &self.shared.engine.archive {
            archive.stop_waiting();
        }
        {
            let _guard = self.shared.sleep.lock();
            self.shared.wake.notify_all();
        }
        for (name, handle) in self.handles.lock().drain(..) {
            if name == ARCHIVE_THREAD && !self.shared.leaves_the_archive(&handle) {
                // It is caught in a write. Closing must not hang for an archive; the thread ends
                // after it.
                continue;
            }
            // A panic has poisoned the database already.
            let _ = handle.join();
        }
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Sleeps, unless or until the threads are stopped.
    fn nap(&self, time: Duration) {
        let mut guard = self.sleep.lock();
        if !self.is_stopping() {
            self.wake.wait_for(&mut guard, time);
        }
    }

    fn clean(&self) {
        self.clean_and_nap(CLEANER_NAP);
    }
    fn clean_beside(&self) {
        self.clean_and_nap(OTHER_CLEANERS_NAP);
    }
    fn clean_and_nap(&self, nap: Duration) {
        let mut cleaner = self.engine.pool.cleaner();
        while !self.is_stopping() {
            match cleaner.step() {
                Ok(Progress::Worked) => {}
                Ok(Progress::Idle) => cleaner.wait(nap),
                Err(error) => {
                    self.engine.background_failed("writing pages", &error.into());
                    self.nap(FAILURE_NAP);
                }
            }
        }
    }

    fn help_with_shadows(&self) {
        self.engine.txns.help_with_shadows();
    }

    fn read_ahead(&self) {
        while !self.is_stopping() {
            match self.engine.pool.read_ahead_step() {
                Progress::Worked => {}
                Progress::Idle => self.engine.pool.wait_for_read_ahead(READER_NAP),
            }
        }
    }

    fn archive(&self) {
        while !self.is_stopping() {
            match self.engine.archive_step() {
                Progress::Worked => {}
                Progress::Idle => self.engine.wait_for_archivable_log(),
            }
        }
    }

    /// Whether the archiver thread ends in time.
    fn leaves_the_archive(&self, handle: &JoinHandle<()>) -> bool {
        let begun = clock::now();
        while !handle.is_finished() {
            if begun.elapsed() > ARCHIVE_STOP_MAX {
                return false;
            }
            clock::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends with recovery, or with the database.
    fn recover(&self) {
        while !self.is_stopping() {
            match self.engine.recovery_step() {
                Ok(Progress::Worked) => thread::yield_now(),
                Ok(Progress::Idle) => return,
                Err(error) => {
                    self.engine.background_failed("recovering", &error);
                    if self.engine.txns.check_usable().is_err() {
                        return;
                    }
                    self.nap(FAILURE_NAP);
                }
            }
        }
    }

    fn checkpoint(&self) {
        while let Some(request) = self.engine.checkpointer.wait_for_request() {
            let outcome = match request {
                Request::Due => self.engine.checkpoint_if_due(),
                Request::Demanded => self.engine.checkpoint(),
            };
            if let Err(error) = outcome {
                self.engine.background_failed("taking a checkpoint", &error);
                self.nap(FAILURE_NAP);
            }
        }
    }

    fn maintain(&self) {
        let (mut empties_from, mut sweeps_from, mut commits) = (None, None, 0);
        while !self.is_stopping() {
            let begun = clock::now();
            let empties = empties_from.is_none_or(|from| begun >= from);
            let sweeps = sweeps_from.is_none_or(|from| begun >= from);
            match self.engine.maintenance_step(empties, sweeps) {
                // A sweep of leaves that may not be in memory leaves the devices to transactions
                // half of the time.
                Ok(Progress::Worked) if sweeps && self.engine.txns.sweeps() != Sweeps::No => {
                    let worked = begun.elapsed();
                    let is_vain = self.engine.txns.sweeps() == Sweeps::InVain;
                    let rest = (worked * VAIN_SWEEP_REST).min(VAIN_SWEEP_REST_MAX);
                    sweeps_from = clock::now().after(rest).filter(|_| is_vain);
                    self.nap(worked.clamp(SWEEP_NAP_MIN, MAINTENANCE_NAP));
                }
                Ok(Progress::Worked)
                    if empties && self.engine.store.is_vacating() && self.engine.may_vacate() =>
                {
                    let transactions = self.engine.txns.statistics();
                    if transactions.active > 0 || transactions.commits != commits {
                        commits = transactions.commits;
                        empties_from = clock::now().after(begun.elapsed() * EMPTYING_REST);
                    }
                    thread::yield_now();
                }
                Ok(Progress::Worked) => thread::yield_now(),
                Ok(Progress::Idle) => self.nap(MAINTENANCE_NAP),
                Err(error) => {
                    self.engine.background_failed("maintenance", &error);
                    self.nap(FAILURE_NAP);
                }
            }
        }
    }
}

/// Poisons the database if a worker panics.
struct PoisonOnPanic<'a>(&'a Engine);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.txns.poison(TxnError::new(TxnErrorKind::Failed, "a background thread panicked"));
            self.0.checkpointer.stop();
        }
    }
}
