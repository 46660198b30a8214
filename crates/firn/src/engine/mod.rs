//! The engine: the layers of one open database, and what moves between them.
//!
//! Place in the stack: below `backup` and the facade, above all other crates. It imports neither;
//! errors and options, which all three share, are leaves beside it.
//!
//! * opening: `directory` (with `files`, `names`, `creation`), `creation_mark`, `claim`,
//!   `separate_directories`, `assembly`, `devices`, `superblock` (with `copies` and `encoding`),
//!   `superblock_fields`, `log_width`, `spill`, `queries`;
//! * recovery: `recovery`, `log_source`, `scan_cache`, `archive_needed`, `analysis`,
//!   `pending_collector`, `page_changes`, `pending`, `pending_log`, `redo`, `background_recovery`,
//!   `recovery_report`;
//! * while it is open: `checkpoint`, `checkpointer`, `recovery_time`, `log_space`, `log_holds`,
//!   `shadow_holds`, `maintenance`, `threads`, `closing`, `archiver`;
//! * devices that come, go and fail: `log_array`, `log_array_state`, `log_device_failure`, `cache`,
//!   `cache_changes`.

mod analyses;
pub(crate) mod analysis;
mod analysis_state;
pub(crate) mod archive_needed;
pub(crate) mod archiver;
pub(crate) mod assembly;
pub(crate) mod auto_layouts;
pub(crate) mod background_recovery;
pub(crate) mod cache;
pub(crate) mod cache_changes;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_record;
pub(crate) mod checkpointer;
pub(crate) mod claim;
pub(crate) mod closing;
pub(crate) mod creation_mark;
pub(crate) mod devices;
pub(crate) mod directory;
pub(crate) mod layout_loads;
pub(crate) mod layout_state;
pub(crate) mod log_array;
pub(crate) mod log_array_state;
pub(crate) mod log_device_failure;
pub(crate) mod log_holds;
pub(crate) mod log_source;
pub(crate) mod log_space;
pub(crate) mod log_truncation;
pub(crate) mod log_width;
pub(crate) mod maintenance;
pub(crate) mod page_changes;
pub(crate) mod pending;
pub(crate) mod pending_collector;
pub(crate) mod pending_log;
pub(crate) mod queries;
pub(crate) mod recovery;
pub(crate) mod recovery_report;
pub(crate) mod recovery_time;
pub(crate) mod redo;
pub(crate) mod scan_cache;
pub(crate) mod separate_directories;
pub(crate) mod shadow_holds;
pub(crate) mod spill;
pub(crate) mod store_array;
pub(crate) mod store_array_field;
mod store_changes;
pub(crate) mod store_keeper;
pub(crate) mod superblock;
pub(crate) mod superblock_fields;
mod table_walk;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod threads;

use crate::engine::analysis_state::Analyses;
use crate::engine::archive_needed::ArchiveNeed;
use crate::engine::archiver::Archiver;
use crate::engine::background_recovery::BackgroundRecovery;
use crate::engine::checkpointer::{Asked, Checkpointer, Interval};
use crate::engine::devices::Counted;
use crate::engine::log_array_state::LogArray;
use crate::engine::log_device_failure::Losses;
use crate::engine::log_holds::LogHolds;
use crate::engine::maintenance::Upkeep;
use crate::engine::queries::Queries;
use crate::engine::recovery_time::{Opened, RecoveryTime};
use crate::engine::superblock::Superblock;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::ranks;
use firndb_base::Progress;
use firndb_base::clock::Moment;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use firndb_buffer::BufferPool;
use firndb_log::Log;
use firndb_table::Catalog;
use firndb_tier::CacheSwitch;
use firndb_tier::store::Store;
use firndb_txn::{TxnError, TxnErrorKind, TxnManager};
use std::time::Duration;

/// The layers, assembled.
pub(crate) struct Parts {
    /// Has the superblock and the devices, too.
    pub losses: Arc<Losses>,
    pub log: Arc<Log>,
    pub store: Arc<Store>,
    pub tier: Arc<CacheSwitch>,
    pub pool: Arc<BufferPool>,
    pub txns: Arc<TxnManager>,
    pub catalog: Arc<Catalog>,
    pub retention: LogHolds,
    pub archive: Option<Box<dyn Archiver>>,
    pub archive_need: ArchiveNeed,
    pub recovery: BackgroundRecovery,
}

/// One open database. Shared by the handles that users hold and by the background threads.
///
/// Lock order: `compacting` → the archive's `work` → `checkpointer`'s own → those of the layers
/// below, except for the log's → `superblock` → `retention` → the log's (`ranks.rs`). So nothing
/// below DRAM is called under `superblock`: a thread that finds, during such a call, that a log
/// device failed takes that lock.
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
    /// The holds on the log besides recovery's needs.
    pub retention: LogHolds,
    pub archive: Option<Box<dyn Archiver>>,
    /// Log that only the archive has.
    pub archive_need: ArchiveNeed,
    /// Recovery's background part.
    pub recovery: BackgroundRecovery,
    pub checkpointer: Arc<Checkpointer>,
    /// Events and pending work of the log's devices.
    pub array: Arc<LogArray>,
    /// Held while the cache is attached or detached.
    pub cache_changing: Mutex<()>,
    /// Protects the order in which threads set from which LSN the store holds shadows.
    settling_shadows: Mutex<()>,
    /// Held during a step of maintenance: tables are freed by one thread at a time, which removes
    /// no ghost records meanwhile.
    pub maintaining: Mutex<()>,
    /// Held by the compaction that runs.
    pub compacting: Mutex<()>,
    pub options: Options,
    /// Analyses in the background.
    analyses: Analyses,
    /// What queries share.
    pub queries: Queries,
    closed: AtomicBool,
    /// The log's end at which the next write checks the log's space again.
    look_again_at: AtomicU64,
    /// The log's end right after an opening that found the database as its last checkpoint left it;
    /// 0 after any other.
    opened_at: AtomicU64,
    /// The LSN that others held when a checkpoint was last requested to undo what was put off.
    pub put_off_at: AtomicU64,
    /// The state of the log when a checkpoint was last requested for housekeeping. Locked alone.
    pub asked: Mutex<Asked>,
    /// Until when each kind of upkeep that met damage rests. Locked alone.
    pub resting: Mutex<[Option<Moment>; Upkeep::KINDS]>,
}

/// How often, in bytes of log, writers check the log's space; more often if the log is small.
const LOOK_EVERY: u64 = 64 << 10;
/// The longest that closing waits for the archive: log that it lacks then is archived after the
/// next opening.
pub(crate) const ARCHIVE_CLOSE_MAX: Duration = Duration::from_secs(5);
impl Engine {
    pub fn new(parts: Parts, options: &Options) -> Arc<Engine> {
        let Parts {
            losses,
            log,
            store,
            tier,
            pool,
            txns,
            catalog,
            retention,
            archive,
            archive_need,
            recovery,
        } = parts;
        let opened = recovery.opened().unwrap_or_else(|| Opened::created(&log));
        let checkpointer = Arc::new(checkpointer(options, &losses.superblock.lock(), &opened));
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
            retention,
            archive,
            archive_need,
            recovery,
            checkpointer,
            cache_changing: ranks::CACHE_CHANGING.mutex(()),
            settling_shadows: ranks::SHADOW_HOLDS.mutex(()),
            maintaining: Mutex::default(),
            compacting: ranks::COMPACTING.mutex(()),
            analyses: Analyses::new(options),
            queries: Queries::new(options),
            options: options.clone(),
            closed: AtomicBool::new(false),
            look_again_at: AtomicU64::new(0),
            opened_at: AtomicU64::new(0),
            put_off_at: AtomicU64::new(0),
            asked: Mutex::default(),
            resting: Mutex::default(),
        });
        if options.testing.reuse_held_places {
            engine.store.reuse_held_places();
        }
        engine.settle_shadow_holds();
        engine.losses.serve(&engine.checkpointer);
        let weak = Arc::downgrade(&engine);
        engine.log.on_failed(move |error| {
            // Transactions that wait for a row of one that cannot end any more would wait for ever.
            if let Some(engine) = weak.upgrade() {
                engine.txns.poison(TxnError::new(TxnErrorKind::Failed, error.to_string()));
            }
        });
        engine.report_what_is_set_aside();
        // Weak: the layers do not keep the engine that keeps them.
        let weak = Arc::downgrade(&engine);
        engine.txns.make_log_space_with(move |refused| {
            let Some(engine) = weak.upgrade() else { return Ok(()) };
            let made = if refused { engine.make_log_space() } else { engine.admit() };
            made.map_err(|error| TxnError::new(TxnErrorKind::LogFull, error.to_string()))
        });
        engine
    }

    /// Has the listener called for what recovery has set aside, and what will be.
    fn report_what_is_set_aside(&self) {
        if let Some(listener) = self.options.set_aside_listener.clone() {
            self.txns.on_set_aside(move |work| listener(work));
            self.recovery.set_aside().iter().for_each(|page| self.txns.report_set_aside(page));
        }
    }

    /// Notes that the opening found the database as its last checkpoint left it.
    pub fn note_unchanged(&self) {
        self.opened_at.store(self.log.end().0, Ordering::Relaxed);
    }

    /// Whether recovery has nothing to do, not even a checkpoint.
    pub fn is_as_at_its_checkpoint(&self) -> bool {
        self.opened_at.load(Ordering::Relaxed) == self.log.end().0
            && self.has_nothing_to_recover()
            && self.recovery.unredone().is_none()
            // Redone pages are not written yet.
            && self.pool.oldest_recovery_lsn().is_none()
            && self.pool.tier().oldest_needed_lsn().is_none()
    }

    /// Whether a checkpoint on closing would equal the last one: no log was appended since the
    /// opening found that, so that nothing is dirty; and nothing else changed that a checkpoint
    /// notes.
    fn needs_no_last_checkpoint(&self) -> bool {
        let log_start = self.superblock.lock().log_start();
        self.is_as_at_its_checkpoint()
            && self.retention.oldest().is_none_or(|held| held <= log_start)
            && self.tier.cache().is_none_or(|cache| !cache.state().lost)
    }

    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the database has been closed"));
        }
        Ok(())
    }

    /// Whether it was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.overlay.is_some()
    }

    /// Called before a change of the database, except for a transaction's statements: those are
    /// refused by the transaction.
    pub fn check_writable(&self) -> Result<(), Error> {
        self.check_open()?;
        if self.is_read_only() { Err(opened_read_only()) } else { Ok(()) }
    }

    /// Called before every write: keeps transactions from filling the log faster than checkpoints
    /// empty it (back-pressure).
    pub fn admit(&self) -> Result<(), Error> {
        let end = self.log.end();
        if end.0 < self.look_again_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.refuse_too_many_epochs()?;
        let space = self.log.space();
        let look_again = LOOK_EVERY.min(space.capacity_bytes / 64);
        self.look_again_at.store(end.advance(look_again).0, Ordering::Relaxed);
        self.checkpointer.time.look_at_limit(self.log.written());
        if self.checkpointer.is_served() {
            self.checkpointer.consider(&self.log);
        } else {
            // No thread takes checkpoints, and without them a transaction's before-images stay in
            // the log until there is too little space left to move or undo them.
            if let Err(error) = self.checkpoint_if_due() {
                self.background_failed("taking a checkpoint", &error);
            }
        }
        // Where the archive or a backup retains the oldest log, a checkpoint would free none.
        let held = self.retention.oldest().is_some_and(|held| held <= space.oldest);
        if space.is_filling() && !held {
            self.checkpointer.hurry();
        }
        // The log keeps a reserve of its own; writers wait earlier, so that they do not reach it in
        // normal work.
        if !space.is_tight() {
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

    /// Whether the database's own threads have started.
    pub fn threads_run(&self) -> bool {
        self.checkpointer.is_served()
    }

    /// Handles a failed background step; `work` names it in reports. A failure that may pass (no
    /// space) is tried again later; damage concerns its page, and is reported; after anything else
    /// the database refuses work until it is opened again.
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

    /// Finishes recovery, writes everything and seals the log. Open transactions are left to
    /// recovery.
    pub fn finish_close(&self, panicking: bool) -> Result<(), Error> {
        if self.is_read_only() {
            // Everything that was written is in the overlay, and about to be dropped.
            self.txns.abandon();
            return Ok(());
        }
        if !self.recovery.is_complete() {
            // Undoing may need a checkpoint, and the checkpoint thread has ended.
            self.checkpointer.run_inline();
        }
        // In a panic only work that cannot panic again is done, since that would end the process;
        // recovery does the rest.
        let usable = match panicking {
            true => Err(Error::new(ErrorKind::Closed, "the database was dropped in a panic")),
            false => self.txns.check_usable().map_err(Error::from).and_then(|()| self.finish_recovery()),
        };
        // Work that damage prevents is left to the next opening.
        let idle = self.txns.checkpoint_state().active.is_empty() && self.recovery.unredone().is_none();
        self.txns.abandon();
        // Opened and closed without a change, a database writes no log: it takes none of the log's
        // space, and the next opening forgets this one's epoch.
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
        written.and(sealed)?;
        self.amend(|superblock| {
            self.archive_need.note_archived(&self.retention, superblock);
            Ok(())
        })
    }
}

fn checkpointer(options: &Options, superblock: &Superblock, opened: &Opened) -> Checkpointer {
    let interval = Interval::chosen(options, superblock);
    let time = RecoveryTime::new(options.recovery_time, interval.most, opened);
    let time = options.recovery_time_limit.into_iter().fold(time, RecoveryTime::limited_to);
    Checkpointer::new(interval, time, superblock.checkpoint)
}

fn opened_read_only() -> Error {
    let message = "the database was opened read-only: close it and open it for writing to change it";
    Error::new(ErrorKind::ReadOnly, message)
}
