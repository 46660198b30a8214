//! The engine: the floors of one open database, and what moves between them.

use crate::archive::Archive;
use crate::checkpointer::Checkpointer;
use crate::devices::Counted;
use crate::early_log::EarlyLog;
use crate::keep::LogKeep;
use crate::log_array::LogArray;
use crate::ranks;
use crate::rest::Rest;
use crate::superblock::Superblock;
use crate::{Error, ErrorKind, Options};
use firn_base::Progress;
use firn_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firn_base::sync::{Arc, Mutex, thread};
use firn_buffer::BufferPool;
use firn_log::{Log, LogError, LogErrorKind};
use firn_table::Catalog;
use firn_tier::CacheSwitch;
use firn_tier::store::Store;
use firn_txn::{TxnError, TxnErrorKind, TxnManager};
use std::time::Duration;

/// The floors, assembled.
pub(crate) struct Parts {
    pub superblock: Superblock,
    pub devices: Counted,
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

/// One open database. Shared by the handles that users hold and by the background threads.
///
/// Lock order: the archive's `work` → `checkpointer`'s own → the floors', but for the log's → `superblock` → `keep` → the
/// log's (`ranks.rs`). So nothing below DRAM is called under `superblock`: who finds in the midst of it that a log device
/// failed takes that lock.
pub(crate) struct Engine {
    /// As on the device.
    pub superblock: Mutex<Superblock>,
    pub devices: Counted,
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
    pub array: LogArray,
    /// Held while the cache is attached or detached.
    pub cache_changing: Mutex<()>,
    pub options: Options,
    closed: AtomicBool,
    /// Log end at which the log's space is looked at again before a write.
    look_again_at: AtomicU64,
    /// Where others held the log when a checkpoint was last asked for to undo what was put off.
    pub put_off_at: AtomicU64,
}

/// How often, in bytes of log, writers look at the log's space; more often if the log is small.
const LOOK_EVERY: u64 = 64 << 10;
/// The longest that closing waits for the archive: what it lacks then, the next opening gives it.
const ARCHIVE_CLOSE_MAX: Duration = Duration::from_secs(5);

impl Engine {
    pub fn new(parts: Parts, options: &Options) -> Arc<Engine> {
        let Parts { superblock, devices, log, store, tier, pool, txns, catalog, keep, archive, early, rest } =
            parts;
        let interval = options
            .checkpoint_log_bytes
            .unwrap_or(superblock.log_bytes() / u64::from(superblock.copies()) / 8);
        let checkpointer = Checkpointer::new(interval, superblock.checkpoint);
        let engine = Arc::new(Engine {
            superblock: ranks::SUPERBLOCK.mutex(superblock),
            devices,
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
            array: LogArray::default(),
            cache_changing: ranks::CACHE_CHANGING.mutex(()),
            options: options.clone(),
            closed: AtomicBool::new(false),
            look_again_at: AtomicU64::new(0),
            put_off_at: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&engine);
        engine.log.on_device_lost(move |lost| match weak.upgrade() {
            Some(engine) => engine.log_device_lost(lost),
            None => Err(LogError::new(LogErrorKind::Closed, "the database has been closed")),
        });
        let weak = Arc::downgrade(&engine);
        engine.log.on_failed(move |error| {
            // Who waits for a row of a transaction that cannot end any more would wait for ever.
            if let Some(engine) = weak.upgrade() {
                engine.txns.poison(TxnError::new(TxnErrorKind::Failed, error.to_string()));
            }
        });
        // Weak: the floors do not keep the engine that keeps them.
        let weak = Arc::downgrade(&engine);
        engine.txns.make_room_with(move |refused| {
            let Some(engine) = weak.upgrade() else { return Ok(()) };
            let made = if refused { engine.make_log_space() } else { engine.admit() };
            made.map_err(|error| TxnError::new(TxnErrorKind::LogFull, error.to_string()))
        });
        engine
    }

    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the database has been closed"));
        }
        Ok(())
    }

    /// Before every write: keeps transactions from filling the log faster than checkpoints empty it.
    pub fn admit(&self) -> Result<(), Error> {
        let end = self.log.end();
        if end.0 < self.look_again_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let space = self.log.space();
        let look_again = LOOK_EVERY.min(space.capacity_bytes / 64);
        self.look_again_at.store(end.advance(look_again).0, Ordering::Relaxed);
        if self.checkpointer.is_served() {
            self.checkpointer.consider(end);
        } else if self.checkpointer.is_due(end) {
            // Nobody else does it, and without checkpoints a transaction's before-images stay in the log
            // until there is too little room left to move or undo them.
            if let Err(error) = self.checkpoint() {
                self.background_failed(&error);
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
                other => return other,
            }
        }
        work()
    }

    /// One small piece of each kind of background work; for databases without threads of their own.
    pub fn step(&self) -> Result<Progress, Error> {
        self.check_open()?;
        let mut progress = self.recovery_step()?;
        progress = progress.or(self.pool.clean_step()?);
        progress = progress.or(self.maintenance_step()?);
        if self.checkpointer.is_due(self.log.end()) {
            self.checkpoint()?;
            progress = Progress::Worked;
        }
        progress = progress.or(self.archive_step());
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

    /// Purges versions and ghosts, frees dropped tables, learns free space and gives some back.
    pub fn maintenance_step(&self) -> Result<Progress, Error> {
        // Every step is taken, whatever those before it found.
        let purged = self.txns.maintenance_step()?.or(self.undo_put_off()?);
        // A loser may have to undo what it did in a tree that has been dropped.
        let dropped = if self.txns.losers_left() == 0 { self.catalog.drop_step()? } else { Progress::Idle };
        let learned = self.store.learn_step()?;
        let given_back = self.store.give_back_step()?;
        let cached = self.tier.step()?;
        Ok(purged.or(dropped).or(learned).or(given_back).or(cached))
    }

    /// A background step failed. What may pass (no space) is tried again later; after anything else the
    /// database refuses work until it is opened again.
    pub fn background_failed(&self, error: &Error) {
        match error.kind() {
            ErrorKind::Full | ErrorKind::OutOfMemory | ErrorKind::Closed => {}
            _ => self.txns.poison(TxnError::new(TxnErrorKind::Failed, error.to_string())),
        }
    }

    /// Marks the database closed; false if it was already.
    pub fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Finishes recovery, writes everything and seals the log. Open transactions are left to recovery.
    pub fn finish_close(&self) -> Result<(), Error> {
        if !self.rest.is_complete() {
            // Undoing may need a checkpoint, and the thread that took them has ended.
            self.checkpointer.take_your_own();
        }
        // In a panic only what cannot panic again is done, which would end the process; recovery does the rest.
        let usable = match thread::panicking() {
            true => Err(Error::new(ErrorKind::Closed, "the database was dropped in a panic")),
            false => self.txns.check_usable().map_err(Error::from).and_then(|()| self.finish_recovery()),
        };
        let idle = self.txns.checkpoint_state().active.is_empty();
        self.txns.abandon();
        let written = usable.and_then(|()| self.checkpoint_clean(idle));
        let sealed = self.log.close().map_err(Error::from);
        if let Some(archive) = &self.archive {
            archive.finish(self, ARCHIVE_CLOSE_MAX);
        }
        written.and(sealed)
    }
}
