//! How a database is opened.

pub(crate) mod archive;
pub(crate) mod cache;
pub(crate) mod callbacks;
pub(crate) mod drive_times;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod page_writes;
pub(crate) mod profiled;
pub(crate) mod testing;
pub(crate) mod tuning;
pub(crate) mod write_costs;

use crate::error::Error;
use crate::layout::Layout;
use crate::options::archive::ArchiveSettings;
use crate::options::cache::CacheSettings;
use crate::options::callbacks::{ProgressFn, RecoveryProgress, StoreEvent, StoreEventFn};
use crate::options::kept::KeptSettings;
use crate::options::limits::{PAGE_SIZES, SPILL_BYTES_MIN, refuse};
use crate::options::log::LogSettings;
use crate::options::profiled::DeviceProfiles;
use crate::options::testing::Testing;
use crate::options::tuning::Tuning;
use firndb_array::{Code, MEMBERS_MAX};
use firndb_base::machine;
use firndb_base::sync::Arc;
use firndb_device::OverlaySpace;
use firndb_table::BuildLimits;
use firndb_txn::{SetAside, SetAsideFn};
use std::path::PathBuf;
use std::time::Duration;

/// How to open or create a database. The defaults suit one SSD (deployment shape 1).
///
/// What most programs choose is set here; the rest is in four groups, each changed by a closure, so
/// that options compose. Messages and [`crate::Statistics::settings`] name a setting with its
/// group: `log.copies`.
///
/// A setting is *fixed* when the database is created, and has no effect later; or *kept* with the
/// database: a value named at one opening holds at every later one until it is named anew; or it
/// holds *for one opening*.
///
/// | settings | fixed | kept |
/// |---|---|---|
/// | here | `page_size`, `store_paths`, `store_survives`, `store_code`, `store_widest` | |
/// | [`LogSettings`] | `bytes`, `devices`, `paths` | `copies`, `copies_required` |
/// | [`CacheSettings`] | `bytes`, `path`, `group_pages`, `write_through` | `rebuildable` |
/// | [`ArchiveSettings`] | | all but `lost`, `profile` |
/// | [`Tuning`] | | |
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let options = firndb::Options::new().buffer_bytes(8 << 20).log(|log| log.bytes(16 << 20));
/// let db = options.open(dir.path().join("db"))?;
/// # drop(db);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) page_size: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) store_paths: Vec<PathBuf>,
    pub(crate) store_survives: usize,
    pub(crate) store_code: Option<(usize, usize)>,
    pub(crate) store_widest: Option<(usize, usize)>,
    pub(crate) table_layout: Layout,
    pub(crate) store_listener: Option<StoreEventFn>,
    pub(crate) spill_path: Option<PathBuf>,
    pub(crate) spill_bytes: u64,
    pub(crate) index_build_bytes: usize,
    pub(crate) lock_deadline: Option<Duration>,
    pub(crate) close_patience: Duration,
    pub(crate) recovery_time: Duration,
    pub(crate) recovery_time_limit: Option<Duration>,
    pub(crate) background: bool,
    pub(crate) progress: Option<ProgressFn>,
    pub(crate) set_aside_listener: Option<Arc<SetAsideFn>>,
    pub(crate) log: LogSettings,
    pub(crate) cache: CacheSettings,
    pub(crate) archive: ArchiveSettings,
    pub(crate) tuning: Tuning,
    pub(crate) profiles: DeviceProfiles,
    pub(crate) testing: Testing,
    /// Where a database that is opened read-only keeps its writes; `None` if it is opened for
    /// writing.
    pub(crate) overlay: Option<Arc<OverlaySpace>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create: true,
            page_size: 4096,
            buffer_bytes: 128 << 20,
            store_paths: Vec::new(),
            store_survives: 0,
            store_code: None,
            store_widest: None,
            table_layout: Layout::AsStore,
            store_listener: None,
            spill_path: None,
            spill_bytes: 8 << 30,
            index_build_bytes: BuildLimits::MEMORY,
            lock_deadline: None,
            close_patience: Duration::from_secs(30),
            recovery_time: Duration::from_millis(500),
            recovery_time_limit: None,
            background: true,
            progress: None,
            set_aside_listener: None,
            log: LogSettings::default(),
            cache: CacheSettings::default(),
            archive: ArchiveSettings::default(),
            tuning: Tuning::default(),
            profiles: DeviceProfiles::default(),
            testing: Testing::default(),
            overlay: None,
        }
    }
}

impl Options {
    /// The defaults: creates the database if there is none, 128 MiB of buffer, 256 MiB of log,
    /// pages of 4 KiB.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }
    /// Whether a database is created where there is none. Default: yes.
    #[must_use]
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }
    /// Bytes of a page: a power of two from 1024 to 65536, fixed when the database is created.
    /// Default: 4096, the unit in which most SSDs map their flash.
    ///
    /// A page holds three rows of any length, with what their undo needs: so it limits the length
    /// of keys (see [`crate::Database::max_key_len`]) and of index entries. Longer values are
    /// stored apart from their rows.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Options {
        self.page_size = bytes;
        self
    }
    /// Bytes of DRAM for pages. Default: 128 MiB, whatever the machine has.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.buffer_bytes = bytes;
        self
    }
    /// Where the page store's file (or raw device) is, fixed when the database is created. Default:
    /// in the database's directory.
    #[must_use]
    pub fn store_path(mut self, path: impl Into<PathBuf>) -> Options {
        self.store_paths = vec![path.into()];
        self
    }
    /// Where the devices of the page store are, if it is to be over several, at most 16: files (or
    /// raw devices) of about the same size, fixed when the database is created. See the guide,
    /// chapter "Several devices". Default: one, in the database's directory.
    #[must_use]
    pub fn store_paths(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Options {
        self.store_paths = paths.into_iter().map(Into::into).collect();
        self
    }
    /// How many of the store's devices may be lost at once without losing anything: each page is on
    /// one device more than that, whole. Fixed when the database is created. Default: none.
    #[must_use]
    pub fn store_survives(mut self, devices: usize) -> Options {
        self.store_survives = devices;
        self
    }
    /// Instead of [`Options::store_survives`]: each page becomes `written` fragments on as many
    /// devices of the store, and any `needed` of them give it back. 1 of 2 is two copies; 3 of 4
    /// has one fragment of parity, and takes a third more space instead of twice as much; each
    /// read then takes three devices. Fixed when the database is created.
    #[must_use]
    pub fn store_code(mut self, needed: usize, written: usize) -> Options {
        self.store_code = Some((needed, written));
        self
    }
    /// Tables may have layouts ([`Layout`]) that take as much space as `needed` of `written`
    /// fragments. All devices are as long as if all pages did; in files that is length, not space.
    /// Fixed when the database is created. Default: as much as the store's own.
    ///
    /// [`Layout`]: crate::Layout
    #[must_use]
    pub fn store_widest(mut self, needed: usize, written: usize) -> Options {
        self.store_widest = Some((needed, written));
        self
    }
    /// The layout of tables that are created without one of their own, where the store has several
    /// devices: with [`Layout::Auto`] each table's follows its load. Tables that there are keep
    /// theirs. Default: as the store's.
    ///
    /// [`Layout::Auto`]: crate::Layout::Auto
    #[must_use]
    pub fn table_layout(mut self, layout: Layout) -> Options {
        self.table_layout = layout;
        self
    }
    /// Called when something happens to one of the store's devices, where there are several: by
    /// the thread that met it. It must not use the database. Default: none.
    #[must_use]
    pub fn on_store_event(mut self, listener: impl Fn(&StoreEvent) + Send + Sync + 'static) -> Options {
        self.store_listener = Some(Arc::new(listener));
        self
    }
    /// A file (or raw device) for rows of queries and index builds that do not fit in memory:
    /// empty, or used for this before. It is emptied at each opening, holds nothing that outlives
    /// one, and may be lost at any time. Default: none; such queries fail with `Full`.
    #[must_use]
    pub fn spill_path(mut self, path: impl Into<PathBuf>) -> Options {
        self.spill_path = Some(path.into());
        self
    }
    /// The most that they have there together; one that needs more fails with `Full`. The file
    /// grows and shrinks with what they need. Default: 8 GiB.
    #[must_use]
    pub fn spill_bytes(mut self, bytes: u64) -> Options {
        self.spill_bytes = bytes;
        self
    }
    /// Memory in which an index build sorts entries, beside as much while it merges them; at least
    /// 64 KiB. Default: 64 MiB.
    #[must_use]
    pub fn index_build_bytes(mut self, bytes: usize) -> Options {
        self.index_build_bytes = bytes;
        self
    }
    /// Longest wait for one lock. Default: unlimited; deadlocks are found at once.
    #[must_use]
    pub fn lock_deadline(mut self, limit: Duration) -> Options {
        self.lock_deadline = Some(limit);
        self
    }
    /// How long closing waits for a device that does not complete a call:
    /// [`crate::Database::close`] fails then, and names it. Default: 30 s, as long as Linux waits
    /// for one command of a disk.
    #[must_use]
    pub fn close_patience(mut self, patience: Duration) -> Options {
        self.close_patience = patience;
        self
    }
    /// How long reading the log may take when the database is opened after a crash, until
    /// transactions run. Automatic checkpoints come as often as that needs, at the rate at which
    /// the log's devices are read; [`Tuning::checkpoint_log_bytes`] bounds the log as well.
    /// [`crate::Statistics::restart`] has the time that a restart would take now, and what limits.
    /// Default: 0.5 s; [`Duration::MAX`] leaves it to the log's size.
    #[must_use]
    pub fn recovery_time(mut self, goal: Duration) -> Options {
        self.recovery_time = goal;
        self
    }
    /// Transactions wait before their first write while reading the log after a crash would take
    /// longer than this: the goal ([`Options::recovery_time`]) only makes checkpoints come sooner,
    /// and is missed where the devices take pages more slowly than they become dirty. Each waits
    /// for a second at most; none does while recovery goes on in the background, nor when
    /// checkpoints free no log, nor without [`Options::background_threads`]. At least the goal.
    /// Default: half as much again, so that a restart takes twice the goal at most with all else
    /// that it does; [`Duration::MAX`]: none waits for this.
    #[must_use]
    pub fn recovery_time_limit(mut self, limit: Duration) -> Options {
        self.recovery_time_limit = Some(limit);
        self
    }
    /// Whether the database runs threads of its own for cleaning, checkpoints and maintenance.
    /// Without them, the program calls [`crate::Database::step`]. Default: yes; a database that is
    /// opened read-only has none.
    #[must_use]
    pub fn background_threads(mut self, run: bool) -> Options {
        self.background = run;
        self
    }
    /// Called with the progress of recovery, before and after the opening returns, by the thread
    /// that recovers. Default: none.
    #[must_use]
    pub fn on_recovery(mut self, progress: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Options {
        self.progress = Some(Arc::new(progress));
        self
    }
    /// Called when background work meets damage and is set aside until the next opening, by the
    /// thread that met the damage, so the listener must not use the database.
    /// [`crate::Database::work_set_aside`] returns the same later. Default: none.
    #[must_use]
    pub fn on_set_aside(mut self, listener: impl Fn(&SetAside) + Send + Sync + 'static) -> Options {
        self.set_aside_listener = Some(Arc::new(listener));
        self
    }
    /// The profile (`firn characterize`) of the device that log and store, and the flash cache if
    /// none is named for it, are on. It counts unless an option says otherwise;
    /// `docs/lab/tools/characterize.md` lists what is taken from it. The groups name the profiles
    /// of single devices. Default: the one that the directory's `firn.toml` names, else the one
    /// measured at creation ([`Tuning::measure_at_creation`]), else none.
    #[must_use]
    pub fn profile(self, path: impl Into<PathBuf>) -> Options {
        let path = path.into();
        self.log(|log| log.profile(path.clone())).tuning(|tuning| tuning.store_profile(path))
    }
    /// Changes the settings of the log: devices, size, copies.
    #[must_use]
    pub fn log(mut self, change: impl FnOnce(LogSettings) -> LogSettings) -> Options {
        self.log = change(self.log);
        self
    }
    /// Changes the settings of the flash cache. Default: no cache.
    #[must_use]
    pub fn cache(mut self, change: impl FnOnce(CacheSettings) -> CacheSettings) -> Options {
        self.cache = change(self.cache);
        self
    }
    /// Changes the settings of the log's archive. Default: none.
    #[must_use]
    pub fn archive(mut self, change: impl FnOnce(ArchiveSettings) -> ArchiveSettings) -> Options {
        self.archive = change(self.archive);
        self
    }
    /// Changes the settings that few users change.
    #[must_use]
    pub fn tuning(mut self, change: impl FnOnce(Tuning) -> Tuning) -> Options {
        self.tuning = change(self.tuning);
        self
    }

    /// For a database that is opened read-only: its writes go to an overlay, no thread works in the
    /// background, and nothing is created.
    pub(crate) fn for_looking(mut self) -> Options {
        self.overlay = Some(Arc::new(OverlaySpace::new(self.tuning.overlay_bytes)));
        self.background = false;
        (self.cache.bytes, self.cache.path) = (None, None);
        self
    }

    /// Completes the options with what the database keeps, where the caller named nothing else.
    pub(crate) fn with_kept(mut self, kept: KeptSettings) -> Options {
        let archive = &mut self.archive;
        self.cache.rebuildable.complete(kept.cache_rebuildable);
        self.log.copies_required.complete(kept.log_copies_required.map(|devices| devices as usize));
        archive.completes.complete(kept.archive_completes);
        archive.when_full.complete(kept.archive_when_full);
        archive.patience.complete(kept.archive_patience);
        archive.delay.complete(kept.archive_delay);
        archive.eager_bytes.complete(kept.archive_eager_bytes);
        archive.segment_bytes.complete(kept.archive_segment_bytes);
        self
    }

    /// The kept settings that were named, at this opening or, after [`Options::with_kept`], ever.
    pub(crate) fn kept(&self) -> KeptSettings {
        let archive = &self.archive;
        KeptSettings {
            cache_rebuildable: self.cache.rebuildable.named(),
            log_copies_required: self.log.copies_required.named().map(|devices| devices as u64),
            archive_completes: archive.completes.named(),
            archive_when_full: archive.when_full.named(),
            archive_patience: archive.patience.named(),
            archive_delay: archive.delay.named(),
            archive_eager_bytes: archive.eager_bytes.named(),
            archive_segment_bytes: archive.segment_bytes.named(),
        }
    }

    /// Checks every option against its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let page_size = self.page_size;
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return refuse(format!("page_size is {page_size}; it must be a power of two from 1024 to 65536"));
        }
        let least = 64 * page_size;
        if self.buffer_bytes < least {
            return refuse(format!(
                "buffer_bytes is {}; at least {least} are needed with pages of {page_size}",
                self.buffer_bytes
            ));
        }
        // A request for more memory than there is would make the allocator end the process.
        let (most, map_bytes) = (machine::memory_bytes(), self.tuning.map_bytes.unwrap_or(0));
        if self.buffer_bytes.saturating_add(map_bytes) as u64 > most {
            return refuse(format!(
                "buffer_bytes is {} and tuning.map_bytes {map_bytes}; this machine has {most} bytes of memory",
                self.buffer_bytes
            ));
        }
        let delta_bytes = self.tuning.delta_bytes.unwrap_or(0);
        if delta_bytes > self.buffer_bytes / 2 {
            return refuse(format!(
                "tuning.delta_bytes is {delta_bytes}; it must be at most half of buffer_bytes ({})",
                self.buffer_bytes
            ));
        }
        let mut paths = self.log.paths.iter().chain(&self.store_paths).chain(&self.cache.path);
        if let Some(path) = paths.find(|path| path.to_str().is_none()) {
            return refuse(format!("{} is no text in UTF-8; give the file another name", path.display()));
        }
        if self.spill_bytes < SPILL_BYTES_MIN {
            return refuse(format!(
                "spill_bytes is {}; it must be at least {SPILL_BYTES_MIN}",
                self.spill_bytes
            ));
        }
        if let Some(limit) = self.recovery_time_limit.filter(|limit| *limit < self.recovery_time) {
            return refuse(format!(
                "recovery_time_limit is {limit:?}; it must be at least recovery_time ({:?}): below that no checkpoint is \
                 due yet, and writes would wait",
                self.recovery_time
            ));
        }
        if self.index_build_bytes < BuildLimits::MEMORY_MIN {
            return refuse(format!(
                "index_build_bytes is {}; it must be at least {}",
                self.index_build_bytes,
                BuildLimits::MEMORY_MIN
            ));
        }
        self.log.check(page_size)?;
        self.cache.check()?;
        self.tuning.check(least, self.log.bytes)?;
        self.archive.check()
    }
}

impl Options {
    /// What creating a database checks, and opening one does not, as these settings are fixed.
    pub(crate) fn check_new(&self) -> Result<(), Error> {
        self.check()?;
        if let Some(bytes) = self.cache.bytes {
            // Files and most raw devices have such blocks; that of others is looked at later.
            self.check_cache(bytes, self.page_size, 512)?;
        }
        let devices = self.store_paths.len().max(1);
        self.widest_over(self.code_over(devices)?, devices).map(drop)
    }

    /// The code that takes the most space of those that tables of a new store may have, whose own
    /// is `code`.
    pub(crate) fn widest_over(&self, code: Code, devices: usize) -> Result<Code, Error> {
        let Some((needed, written)) = self.store_widest else { return Ok(code) };
        let widest = Code::new(needed, written).filter(|widest| widest.written() <= devices);
        widest.filter(|widest| widest.spare() >= code.spare()).ok_or_else(|| {
            Error::bad_argument(format!(
                "store_widest is {needed} of {written} over {devices} devices: it must survive as many lost devices \
                 as the store's own code does, which is {code}"
            ))
        })
    }

    /// How pages are fragmented over this many devices of a new store.
    pub(crate) fn code_over(&self, devices: usize) -> Result<Code, Error> {
        let (needed, written) = self.store_code.unwrap_or((1, self.store_survives + 1));
        let code = Code::new(needed, written).filter(|code| code.written() <= devices);
        code.filter(|_| devices <= MEMBERS_MAX).ok_or_else(|| {
            Error::bad_argument(format!(
                "the store is to have {devices} devices, and pages {written} fragments of which {needed} give them back: \
                 name 1 to {MEMBERS_MAX} devices (store_paths), at least as many as there are fragments"
            ))
        })
    }
}

impl std::fmt::Debug for Options {
    /// The values of the options, under their names; listeners are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("page_size", &self.page_size)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("store_paths", &self.store_paths)
            .field("store_survives", &self.store_survives)
            .field("store_code", &self.store_code)
            .field("store_widest", &self.store_widest)
            .field("spill_path", &self.spill_path)
            .field("spill_bytes", &self.spill_bytes)
            .field("index_build_bytes", &self.index_build_bytes)
            .field("lock_deadline", &self.lock_deadline)
            .field("close_patience", &self.close_patience)
            .field("recovery_time", &self.recovery_time)
            .field("recovery_time_limit", &self.recovery_time_limit)
            .field("background_threads", &self.background)
            .field("log", &self.log)
            .field("cache", &self.cache)
            .field("archive", &self.archive)
            .field("tuning", &self.tuning)
            .finish_non_exhaustive()
    }
}
