//! The engine: the floors of one open database, and what moves between them.

use crate::checkpointer::Checkpointer;
use crate::devices::Counted;
use crate::superblock::Superblock;
use crate::{Error, ErrorKind, Options};
use firn_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firn_base::sync::{Arc, Mutex};
use firn_base::{Lsn, Progress};
use firn_buffer::BufferPool;
use firn_log::Log;
use firn_table::Catalog;
use firn_tier::store::Store;
use firn_txn::{TxnError, TxnErrorKind, TxnManager};
use std::time::Duration;

/// The floors, assembled.
pub(crate) struct Parts {
    pub superblock: Superblock,
    pub devices: Counted,
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub pool: Arc<BufferPool>,
    pub txns: Arc<TxnManager>,
    pub catalog: Arc<Catalog>,
}

/// One open database. Shared by the handles that users hold and by the background threads.
///
/// Lock order: `checkpointer`'s own → `superblock` → everything in the floors.
pub(crate) struct Engine {
    /// As on the device.
    pub superblock: Mutex<Superblock>,
    pub devices: Counted,
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub pool: Arc<BufferPool>,
    pub txns: Arc<TxnManager>,
    pub catalog: Arc<Catalog>,
    pub checkpointer: Checkpointer,
    pub options: Options,
    closed: AtomicBool,
    /// Log end at which the log's space is looked at again before a write.
    look_again_at: AtomicU64,
}

/// How often, in bytes of log, writers look at the log's space; more often if the log is small.
const LOOK_EVERY: u64 = 64 << 10;

impl Engine {
    pub fn new(parts: Parts, options: &Options) -> Arc<Engine> {
        let Parts { superblock, devices, log, store, pool, txns, catalog } = parts;
        let interval = options.checkpoint_log_bytes.unwrap_or(superblock.log_bytes() / 8);
        let checkpointer = Checkpointer::new(interval, superblock.checkpoint);
        let engine = Arc::new(Engine {
            superblock: Mutex::new(superblock),
            devices,
            log,
            store,
            pool,
            txns,
            catalog,
            checkpointer,
            options: options.clone(),
            closed: AtomicBool::new(false),
            look_again_at: AtomicU64::new(0),
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
        if space.used_bytes > space.capacity_bytes / 2 {
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

    /// Waits for (or performs) checkpoints; fails if they did not free any log.
    pub fn make_log_space(&self) -> Result<(), Error> {
        let before = self.log.space();
        let mut after = before;
        // A checkpoint writes what was dirty at the one before it: the second frees what the first, after
        // a long time without any, could not.
        for _ in 0..2 {
            self.wait_for_checkpoint()?;
            after = self.log.space();
            if after.normal_bytes > before.normal_bytes || after.normal_bytes >= after.capacity_bytes / 16 {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorKind::Full,
            format!(
                "the log is full ({} of {} bytes) and a checkpoint could not free any of it: {}; roll back, or make the log larger",
                after.used_bytes,
                after.capacity_bytes,
                self.log_pinned_by(after.oldest)
            ),
        ))
    }

    fn wait_for_checkpoint(&self) -> Result<(), Error> {
        // During recovery the thread that takes checkpoints has not started yet.
        if self.checkpointer.is_served() {
            self.checkpointer.wait_for_next(Duration::from_secs(60))
        } else {
            self.checkpoint()
        }
    }

    fn log_pinned_by(&self, oldest: Lsn) -> String {
        let mut holders = Vec::new();
        if self.pool.oldest_recovery_lsn().is_some_and(|lsn| lsn <= oldest) {
            holders.push("pages that are not written yet");
        }
        if self.txns.oldest_needed_lsn().is_some_and(|lsn| lsn <= oldest) {
            holders.push("open transactions");
        }
        if holders.is_empty() {
            "nothing holds it".to_owned()
        } else {
            format!("{} hold it", holders.join(" and "))
        }
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
        let mut progress = self.pool.clean_step()?;
        progress = progress.or(self.maintenance_step()?);
        if self.checkpointer.is_due(self.log.end()) {
            self.checkpoint()?;
            progress = Progress::Worked;
        }
        if progress == Progress::Idle {
            // Without threads the log has no workers to seal it when it falls idle.
            progress = self.log.step();
        }
        Ok(progress)
    }

    /// Purges versions and ghosts, frees dropped tables, learns free space and gives some back.
    pub fn maintenance_step(&self) -> Result<Progress, Error> {
        // Every step is taken, whatever those before it found.
        let purged = self.txns.maintenance_step()?;
        let dropped = self.catalog.drop_step()?;
        let learned = self.store.learn_step()?;
        let given_back = self.store.give_back_step()?;
        Ok(purged.or(dropped).or(learned).or(given_back))
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

    /// Writes everything and seals the log. Open transactions are left to recovery.
    pub fn finish_close(&self) -> Result<(), Error> {
        let usable = self.txns.check_usable().map_err(Error::from);
        let idle = self.txns.checkpoint_state().active.is_empty();
        self.txns.abandon();
        let written = usable.and_then(|()| self.checkpoint_clean(idle));
        let sealed = self.log.close().map_err(Error::from);
        written.and(sealed)
    }
}
