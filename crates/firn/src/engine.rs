//! The engine: the floors of one open database, and what moves between them.

use crate::archive::Archive;
use crate::checkpointer::Checkpointer;
use crate::devices::Counted;
use crate::early_log::EarlyLog;
use crate::keep::LogKeep;
use crate::log_array::LogArray;
use crate::log_loss::Losses;
use crate::log_space::{Asked, Pressure};
use crate::ranks;
use crate::rest::Rest;
use crate::superblock::Superblock;
use crate::{Error, ErrorKind, Options};
use firn_base::Progress;
use firn_base::clock::{self, Moment};
use firn_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firn_base::sync::{Arc, Mutex};
use firn_buffer::BufferPool;
use firn_log::Log;
use firn_table::Catalog;
use firn_tier::CacheSwitch;
use firn_tier::store::Store;
use firn_txn::{TxnError, TxnErrorKind, TxnManager};
use std::time::Duration;

/// The floors, assembled.
pub(crate) struct Parts {
    /// With the superblock and the devices.
    pub losses: Arc<Losses>,
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub tier: Arc<CacheSwitch>,
    pub pool: Arc<BufferPool>,
    pub txns: Arc<TxnManager>,
    pub catalog: Arc<Catalog>,
    pub keep: LogKeep,
    pub archive: Option<Archive>,
    pub early: EarlyLog,
    pub rest: Rest,
}

/// What maintenance does.
#[derive(Clone, Copy)]
enum Upkeep {
    Versions,
    Drops,
    FreeSpace,
    GivingBack,
    Cache,
}

impl Upkeep {
    const KINDS: usize = Upkeep::Cache as usize + 1;

    /// For people.
    fn name(self) -> &'static str {
        match self {
            Upkeep::Versions => "removing versions and deleted rows that nobody sees",
            Upkeep::Drops => "freeing dropped tables and large values",
            Upkeep::FreeSpace => "looking for free space in the store",
            Upkeep::GivingBack => "giving free space of the store back",
            Upkeep::Cache => "upkeep of the flash cache",
        }
    }
}

/// One open database. Shared by the handles that users hold and by the background threads.
///
/// Lock order: the archive's `work` → `checkpointer`'s own → the floors', but for the log's → `superblock` → `keep` → the
/// log's (`ranks.rs`). So nothing below DRAM is called under `superblock`: who finds in the midst of it that a log device
/// failed takes that lock.
pub(crate) struct Engine {
    /// As on the device.
    pub superblock: Arc<Mutex<Superblock>>,
    pub devices: Arc<Counted>,
    pub losses: Arc<Losses>,
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub tier: Arc<CacheSwitch>,
    pub pool: Arc<BufferPool>,
    pub txns: Arc<TxnManager>,
    pub catalog: Arc<Catalog>,
    /// Who else needs log to be kept.
    pub keep: LogKeep,
    pub archive: Option<Archive>,
    /// Log that only the archive has.
    pub early: EarlyLog,
    /// What recovery left for later.
    pub rest: Rest,
    pub checkpointer: Checkpointer,
    /// What is going on among the log's devices.
    pub array: Arc<LogArray>,
    /// Held while the cache is attached or detached.
    pub cache_changing: Mutex<()>,
    /// Held during a step of maintenance: tables are freed by one thread at a time, which removes no ghosts meanwhile.
    maintaining: Mutex<()>,
    pub options: Options,
    closed: AtomicBool,
    /// Log end at which the log's space is looked at again before a write.
    look_again_at: AtomicU64,
    /// The log's end right after an opening that found the database as its last checkpoint left it; 0 after any other.
    opened_at: AtomicU64,
    /// Where others held the log when a checkpoint was last asked for to undo what was put off.
    pub put_off_at: AtomicU64,
    /// When a checkpoint was last asked for to make room for housekeeping. Locked alone.
    pub asked: Mutex<Asked>,
    /// Until when each kind of upkeep rests that met damage. Locked alone.
    resting: Mutex<[Option<Moment>; Upkeep::KINDS]>,
}

/// How often, in bytes of log, writers look at the log's space; more often if the log is small.
const LOOK_EVERY: u64 = 64 << 10;
/// Groups of pages of dropped tables freed by one step of maintenance, each of some 32 pages and half a kilobyte of log: the other
/// pieces may wait for devices, these hardly do.
const DROP_STEPS: u32 = 16;
/// The longest that closing waits for the archive: what it lacks then, the next opening gives it.
pub(crate) const ARCHIVE_CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long upkeep that met damage rests before it is tried again.
const DAMAGE_REST: Duration = Duration::from_secs(5);

impl Engine {
    pub fn new(parts: Parts, options: &Options) -> Arc<Engine> {
        let Parts { losses, log, store, tier, pool, txns, catalog, keep, archive, early, rest } = parts;
        let checkpointer = {
            let superblock = losses.superblock.lock();
            let interval = options
                .checkpoint_log_bytes
                .unwrap_or(superblock.log_bytes() / u64::from(superblock.copies()) / 8);
            Checkpointer::new(interval, superblock.checkpoint)
        };
        let engine = Arc::new(Engine {
            superblock: losses.superblock.clone(),
            devices: losses.devices.clone(),
            array: losses.array.clone(),
            losses,
            log,
            store,
            tier,
            pool,
            txns,
            catalog,
            keep,
            archive,
            early,
            rest,
            checkpointer,
            cache_changing: ranks::CACHE_CHANGING.mutex(()),
            maintaining: Mutex::default(),
            options: options.clone(),
            closed: AtomicBool::new(false),
            look_again_at: AtomicU64::new(0),
            opened_at: AtomicU64::new(0),
            put_off_at: AtomicU64::new(0),
            asked: Mutex::default(),
            resting: Mutex::default(),
        });
        engine.losses.serve(&engine);
        let weak = Arc::downgrade(&engine);
        engine.log.on_failed(move |error| {
            // Who waits for a row of a transaction that cannot end any more would wait for ever.
            if let Some(engine) = weak.upgrade() {
                engine.txns.poison(TxnError::new(TxnErrorKind::Failed, error.to_string()));
            }
        });
        if let Some(listener) = options.set_aside_listener.clone() {
            engine.txns.on_set_aside(move |work| listener(work));
        }
        // Weak: the floors do not keep the engine that keeps them.
        let weak = Arc::downgrade(&engine);
        engine.txns.make_log_space_with(move |refused| {
            let Some(engine) = weak.upgrade() else { return Ok(()) };
            let made = if refused { engine.make_log_space() } else { engine.admit() };
            made.map_err(|error| TxnError::new(TxnErrorKind::LogFull, error.to_string()))
        });
        engine
    }

    /// The opening found the database as its last checkpoint left it.
    pub fn note_unchanged(&self) {
        self.opened_at.store(self.log.end().0, Ordering::Relaxed);
    }

    /// Whether recovery has nothing to do, and not even a checkpoint to take.
    pub fn is_as_at_its_checkpoint(&self) -> bool {
        self.opened_at.load(Ordering::Relaxed) == self.log.end().0
            && self.has_nothing_to_recover()
            && self.rest.unredone().is_none()
            // What was redone before the answer is not written yet.
            && self.pool.oldest_recovery_lsn().is_none()
            && self.pool.tier().oldest_needed_lsn().is_none()
    }

    /// Whether a checkpoint on closing would say nothing that the last one does not: no log was appended since the opening
    /// found that, so that nothing is dirty; and nothing else changed that a checkpoint notes.
    fn needs_no_last_checkpoint(&self) -> bool {
        let log_start = self.superblock.lock().log_start();
        self.is_as_at_its_checkpoint()
            && self.keep.oldest().is_none_or(|held| held <= log_start)
            && self.tier.cache().is_none_or(|cache| !cache.state().lost)
    }

    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the database has been closed"));
        }
        Ok(())
    }

    /// Whether it was opened to be looked into.
    pub fn is_read_only(&self) -> bool {
        self.options.overlay.is_some()
    }

    /// Before what changes the database, but for a transaction's statements: those are refused by the transaction.
    pub fn check_writable(&self) -> Result<(), Error> {
        self.check_open()?;
        if self.is_read_only() { Err(opened_read_only()) } else { Ok(()) }
    }

    /// Before every write: keeps transactions from filling the log faster than checkpoints empty it.
    pub fn admit(&self) -> Result<(), Error> {
        let end = self.log.end();
        if end.0 < self.look_again_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.refuse_too_many_epochs()?;
        let space = self.log.space();
        let look_again = LOOK_EVERY.min(space.capacity_bytes / 64);
        self.look_again_at.store(end.advance(look_again).0, Ordering::Relaxed);
        if self.checkpointer.is_served() {
            self.checkpointer.consider(end);
        } else if self.checkpointer.is_due(end) {
            // Nobody else does it, and without checkpoints a transaction's before-images stay in the log
            // until there is too little room left to move or undo them.
            if let Err(error) = self.checkpoint() {
                self.background_failed("taking a checkpoint", &error);
            }
        }
        // Where the archive or a backup holds the oldest log, a checkpoint would free none.
        let held = self.keep.oldest().is_some_and(|held| held <= space.oldest);
        if space.used_bytes > space.capacity_bytes / 2 && !held {
            self.checkpointer.request();
        }
        // The log keeps a reserve of its own; waiting begins earlier, so that it is not met in normal work.
        let tight = space.capacity_bytes / 16;
        if space.normal_bytes >= tight {
            return Ok(());
        }
        self.look_again_at.store(0, Ordering::Relaxed);
        self.make_log_space()
    }

    /// Runs a write; if the log is full, makes space and runs it again.
    pub fn write<T>(&self, mut work: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        self.admit()?;
        for _ in 0..8 {
            match work() {
                Err(error) if error.is_log_full() => self.make_log_space()?,
                Err(error) if error.kind() == ErrorKind::ReadOnly && self.is_read_only() => {
                    return Err(opened_read_only());
                }
                other => return other,
            }
        }
        work()
    }

    /// One small piece of each kind of background work; for databases without threads of their own.
    ///
    /// Errors: of the first piece that failed, after the others had their turn: checkpoints and the archive may be what
    /// helps. A full log is none: what it delays is tried again by a later step.
    pub fn step(&self) -> Result<Progress, Error> {
        self.check_open()?;
        let recovered = self.recovery_step()?;
        if self.is_read_only() {
            // What recovery does not need to write would only take space aside.
            return Ok(recovered);
        }
        let cleaned = self.pool.clean_step().map_err(Error::from);
        let maintained = self.maintenance_step();
        let checkpointed = match self.checkpointer.is_due(self.log.end()) {
            true => self.checkpoint().map(|()| Progress::Worked),
            false => Ok(Progress::Idle),
        };
        let mut progress = recovered.or(self.archive_step());
        for outcome in [cleaned, maintained, checkpointed] {
            match outcome {
                Err(error) if error.is_log_full() => {}
                outcome => progress = progress.or(outcome?),
            }
        }
        if progress == Progress::Idle {
            // Without threads the log has no workers to seal it when it falls idle.
            progress = self.log.step();
        }
        Ok(progress)
    }

    /// Archives a piece of log if there is enough of it.
    pub fn archive_step(&self) -> Progress {
        self.archive.as_ref().map_or(Progress::Idle, |archive| archive.step(self, false))
    }

    /// Waits until there may be something to archive.
    pub fn wait_for_archivable_log(&self) {
        if let Some(archive) = &self.archive {
            archive.wait(self);
        }
    }

    /// Whether the database runs threads of its own, and they have started.
    pub fn threads_run(&self) -> bool {
        self.checkpointer.is_served()
    }

    /// Purges versions and ghosts, frees dropped tables, learns free space and gives some back. Nothing if another thread is
    /// at it.
    pub fn maintenance_step(&self) -> Result<Progress, Error> {
        self.txns.check_usable()?;
        let Some(_maintaining) = self.maintaining.try_lock() else { return Ok(Progress::Idle) };
        // Every step is taken, whatever those before it found.
        let outcomes = [
            self.upkeep(Upkeep::Versions, || Ok(self.txns.maintenance_step()?)),
            self.undo_put_off(),
            self.upkeep(Upkeep::Drops, || self.drop_steps()),
            self.upkeep(Upkeep::FreeSpace, || Ok(self.store.learn_step()?)),
            self.upkeep(Upkeep::GivingBack, || Ok(self.store.give_back_step()?)),
            self.upkeep(Upkeep::Cache, || Ok(self.tier.step()?)),
        ];
        self.consider_checkpoint();
        outcomes.into_iter().try_fold(Progress::Idle, |all, outcome| Ok(all.or(outcome?)))
    }

    /// Some steps of freeing what was dropped, while there is enough log.
    fn drop_steps(&self) -> Result<Progress, Error> {
        let mut progress = Progress::Idle;
        // A loser may have to undo what it did in a tree that has been dropped.
        if self.losers_to_undo() {
            return Ok(progress);
        }
        for _ in 0..DROP_STEPS {
            if !self.has_log_for_housekeeping() {
                break;
            }
            match self.catalog.drop_step().map_err(Error::from) {
                Ok(Progress::Worked) => progress = Progress::Worked,
                Ok(Progress::Idle) => break,
                Err(error) if error.is_log_full() => {
                    self.ask_for_log_space(Pressure::Short);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    /// Whether transactions are to be rolled back in this incarnation that are not their owners' any more.
    fn losers_to_undo(&self) -> bool {
        self.txns.losers_left() > self.txns.losers_set_aside()
    }

    /// A piece of one kind of upkeep. What meets damage that it could not pass over by itself rests for a while, so that
    /// the same page is not read over and over; the others go on.
    fn upkeep(
        &self,
        kind: Upkeep,
        step: impl FnOnce() -> Result<Progress, Error>,
    ) -> Result<Progress, Error> {
        let resting = self.resting.lock()[kind as usize];
        if resting.is_some_and(|until| clock::now() < until) {
            return Ok(Progress::Idle);
        }
        match step() {
            Err(error) if error.concerns_a_page() => {
                self.resting.lock()[kind as usize] = clock::now().after(DAMAGE_REST);
                self.background_failed(kind.name(), &error);
                Ok(Progress::Idle)
            }
            outcome => outcome,
        }
    }

    /// A background step failed: `work`, for people. What may pass (no space) is tried again later; damage concerns the page
    /// that has it, and is reported; after anything else the database refuses work until it is opened again.
    pub fn background_failed(&self, work: &str, error: &Error) {
        match error.kind() {
            ErrorKind::Full | ErrorKind::OutOfMemory | ErrorKind::Closed => {}
            _ if error.concerns_a_page() => {
                self.txns.set_aside(work, &TxnError::new(TxnErrorKind::Damaged, error.to_string()));
            }
            _ => self.txns.poison(TxnError::new(TxnErrorKind::Failed, error.to_string())),
        }
    }

    /// Marks the database closed; false if it was already.
    pub fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Finishes recovery, writes everything and seals the log. Open transactions are left to recovery.
    pub fn finish_close(&self, panicking: bool) -> Result<(), Error> {
        if self.is_read_only() {
            // All that was written is kept aside, and about to be forgotten.
            self.txns.abandon();
            return Ok(());
        }
        if !self.rest.is_complete() {
            // Undoing may need a checkpoint, and the thread that took them has ended.
            self.checkpointer.take_your_own();
        }
        // In a panic only what cannot panic again is done, which would end the process; recovery does the rest.
        let usable = match panicking {
            true => Err(Error::new(ErrorKind::Closed, "the database was dropped in a panic")),
            false => self.txns.check_usable().map_err(Error::from).and_then(|()| self.finish_recovery()),
        };
        // What damage keeps from being undone or redone is left to the next opening.
        let idle = self.txns.checkpoint_state().active.is_empty() && self.rest.unredone().is_none();
        self.txns.abandon();
        // Opened and closed without a change, a database writes no log: it takes none of the log's space, and the next
        // opening forgets this one's epoch.
        let unchanged = usable.is_ok() && self.needs_no_last_checkpoint();
        let written = usable.and_then(|()| match unchanged {
            true => self.amend(|superblock| {
                superblock.clean = idle;
                Ok(())
            }),
            false => self.checkpoint_clean(idle),
        });
        let sealed = match unchanged && written.is_ok() {
            true => self.log.close_unused(),
            false => self.log.close(),
        };
        let sealed = sealed.map_err(Error::from);
        if let Some(archive) = &self.archive {
            archive.finish(self, ARCHIVE_CLOSE_MAX);
        }
        written.and(sealed)
    }
}

fn opened_read_only() -> Error {
    let message = "the database was opened read-only: close it and open it for writing to change it";
    Error::new(ErrorKind::ReadOnly, message)
}
