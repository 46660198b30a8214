//! How a database is opened.

pub(crate) mod archive;
pub(crate) mod cache;
pub(crate) mod callbacks;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod profiled;

use crate::error::{Error, ErrorKind};
use crate::options::archive::ArchiveOptions;
use crate::options::callbacks::ProgressFn;
use crate::options::callbacks::RecoveryProgress;
use crate::options::callbacks::WrapDeviceFn;
use crate::options::callbacks::WrapTierFn;
use crate::options::callbacks::{LogEvent, LogEventFn};
use crate::options::kept::KeptSettings;
use crate::options::limits::MAP_SHARE;
use crate::options::limits::PAGE_SIZES;
use crate::options::profiled::Tuning;
use firndb_base::machine;
use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError, OverlaySpace};
use firndb_log::{Hiding, LogLayout};
use firndb_tier::cache::Face;
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::store::Layout;
use firndb_tier::{CacheKind, PageTier};
use firndb_txn::{SetAside, SetAsideFn};
use std::path::PathBuf;
use std::time::Duration;

/// How to open or create a database. The defaults suit one SSD (deployment shape 1).
///
/// An option is *fixed* when the database is created, and has no effect later; or *kept* with the
/// database: a value named at one opening holds at every later one until it is named anew; or it
/// holds *for one opening*.
///
/// * Fixed: `page_size`, `log_bytes`, and of the log's first devices `log_devices`, `log_paths`;
///   `store_path`; of a new flash cache `cache_bytes`, `cache_path`, `cache_group_pages`,
///   `cache_write_through`.
/// * Kept: `log_copies`, `log_copies_required`, `cache_rebuildable`, `archive`,
///   `archive_completes`, `archive_when_full`, `archive_patience`, `archive_delay`,
///   `archive_eager_bytes`, `archive_segment_bytes`. [`crate::Statistics::settings`] lists those
///   that were named.
/// * For one opening: all others, sizes of memory and listeners among them.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let db = firndb::Options::new().buffer_bytes(8 << 20).open(dir.path().join("db"))?;
/// # drop(db);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) create: bool,
    pub(crate) page_size: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) map_bytes: Option<usize>,
    pub(crate) version_bytes: usize,
    pub(crate) log_devices: usize,
    /// The device's latency decides the number; `log_devices` is the most.
    pub(crate) probe_log_devices: bool,
    pub(crate) log_bytes: u64,
    pub(crate) log_paths: Vec<PathBuf>,
    pub(crate) log_hiding: Hiding,
    pub(crate) log_layout: Option<Arc<dyn LogLayout>>,
    /// `None`: as the database has it, or one.
    pub(crate) log_copies: Option<usize>,
    pub(crate) log_copies_required: usize,
    pub(crate) log_events: Option<LogEventFn>,
    pub(crate) set_aside_listener: Option<Arc<SetAsideFn>>,
    pub(crate) store_path: Option<PathBuf>,
    pub(crate) cache_path: Option<PathBuf>,
    pub(crate) cache_bytes: Option<u64>,
    /// The kinds of flash cache that can be opened; a new cache is of the last.
    pub(crate) cache_kinds: Vec<Arc<dyn CacheKind>>,
    pub(crate) cache_policy: CachePolicy,
    pub(crate) cache_group_pages: Option<usize>,
    pub(crate) cache_write_through: bool,
    pub(crate) cache_rebuildable: bool,
    pub(crate) without_cache: bool,
    pub(crate) checkpoint_log_bytes: Option<u64>,
    pub(crate) background: bool,
    pub(crate) lock_deadline: Option<Duration>,
    pub(crate) close_patience: Duration,
    pub(crate) progress: Option<ProgressFn>,
    pub(crate) eager_recovery: bool,
    pub(crate) recovery_bytes: usize,
    pub(crate) wrap_device: Option<WrapDeviceFn>,
    pub(crate) tuning: Tuning,
    pub(crate) wrap_tier: Option<WrapTierFn>,
    pub(crate) store_layout: Layout,
    pub(crate) skip_wal_rule: bool,
    pub(crate) break_cache_restore: bool,
    pub(crate) break_cache_rebuild: bool,
    pub(crate) archive: ArchiveOptions,
    pub(crate) overlay_bytes: u64,
    /// Where a database that is opened read-only keeps its writes; `None` if it is opened for
    /// writing.
    pub(crate) overlay: Option<Arc<OverlaySpace>>,
    /// The kept settings that the caller named.
    pub(crate) kept: KeptSettings,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create: true,
            page_size: 4096,
            buffer_bytes: 128 << 20,
            map_bytes: None,
            version_bytes: 16 << 20,
            log_devices: 4,
            probe_log_devices: true,
            log_bytes: 256 << 20,
            log_paths: Vec::new(),
            log_hiding: Hiding::default(),
            log_layout: None,
            log_copies: None,
            log_copies_required: 1,
            log_events: None,
            set_aside_listener: None,
            store_path: None,
            cache_path: None,
            cache_bytes: None,
            cache_kinds: vec![Arc::new(Face)],
            cache_policy: CachePolicy::default(),
            cache_group_pages: None,
            cache_write_through: false,
            cache_rebuildable: false,
            without_cache: false,
            checkpoint_log_bytes: None,
            background: true,
            lock_deadline: None,
            close_patience: Duration::from_secs(30),
            progress: None,
            eager_recovery: false,
            recovery_bytes: 64 << 20,
            wrap_device: None,
            tuning: Tuning::default(),
            wrap_tier: None,
            store_layout: Layout::default(),
            skip_wal_rule: false,
            break_cache_restore: false,
            break_cache_rebuild: false,
            archive: ArchiveOptions::default(),
            overlay_bytes: 64 << 20,
            overlay: None,
            kept: KeptSettings::default(),
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
    /// Bytes of DRAM for pages. Default: 128 MiB.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Options {
        self.buffer_bytes = bytes;
        self
    }
    /// DRAM for the page map, beside [`Options::buffer_bytes`]. Default: a sixteenth of the
    /// buffer's, taken from it.
    ///
    /// The whole map takes 25 bytes a page, 0.6 % of the store with pages of 4 KiB. If the database
    /// is so much larger than DRAM that less of the map is in memory than is used, every page read
    /// from the store or written to it costs a read of the map, too.
    #[must_use]
    pub fn map_bytes(mut self, bytes: usize) -> Options {
        self.map_bytes = Some(bytes);
        self
    }
    /// Bytes of DRAM for before-images of rows, and for the ended transactions that a snapshot may
    /// still need; beyond it they go to undo pages. The 32 KiB of each running transaction are not
    /// counted. At most a sixteenth of the log. Default: 16 MiB.
    #[must_use]
    pub fn version_bytes(mut self, bytes: usize) -> Options {
        self.version_bytes = bytes;
        self
    }
    /// Bytes of a page: a power of two from 1024 to 65536, fixed when the database is created.
    /// Default: 4096.
    ///
    /// A page holds three rows of any length, with what their undo needs: so it limits the length
    /// of keys (see [`crate::Database::max_key_len`]) and of index entries. Longer values are
    /// stored apart from their rows.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Options {
        self.page_size = bytes;
        self
    }
    /// How many files the log is spread over when the database is created. Default: one if the
    /// device's synchronous writes are fast (under 300 µs, timed at creation), else four, so that
    /// several in flight hide their latency.
    #[must_use]
    pub fn log_devices(mut self, count: usize) -> Options {
        self.log_devices = count;
        self.probe_log_devices = false;
        self
    }
    /// Bytes of online log in all, fixed when the database is created. Default: 256 MiB.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Options {
        self.log_bytes = bytes;
        self
    }
    /// Where the log's files (or raw devices) are, instead of the database's directory; one log
    /// device each.
    #[must_use]
    pub fn log_paths(mut self, paths: Vec<PathBuf>) -> Options {
        self.log_devices = paths.len();
        self.probe_log_devices = false;
        self.log_paths = paths;
        self
    }
    /// How log writes that take much too long are hedged, if the log has two devices or more.
    /// Default: [`Hiding::Adaptive`]. A database created with `Off` reserves no area for that on
    /// its log devices.
    #[must_use]
    pub fn log_hiding(mut self, hiding: Hiding) -> Options {
        self.log_hiding = hiding;
        self
    }
    /// How the log's requests are composed and placed, if not as in its array: for the comparators
    /// of the laboratory, see `docs/papers/flashlogging.md`. A database may be opened with another
    /// layout than it was written with.
    #[must_use]
    pub fn log_layout(mut self, layout: Option<Arc<dyn LogLayout>>) -> Options {
        self.log_layout = layout;
        self
    }
    /// Number of log devices that each commit is written to before it is acknowledged, 1 to 8: with
    /// `copies`, the loss of any `copies` − 1 log devices loses nothing. The log's capacity shrinks
    /// accordingly. Kept with the database; default: as it was, and 1 for a new one.
    #[must_use]
    pub fn log_copies(mut self, copies: usize) -> Options {
        self.log_copies = Some(copies);
        self
    }
    /// Refuses commits, and opening, with fewer log devices than this. Kept with the database;
    /// default: as it was, and 1 for a new one, so that with fewer devices than
    /// [`Options::log_copies`] it works on, and reports it.
    #[must_use]
    pub fn log_copies_required(self, devices: usize) -> Options {
        self.naming(|kept| kept.log_copies_required = Some(devices as u64))
    }
    /// Called when a log device fails, is added or removed, and when the log is redundant again, by
    /// the thread that found out, so the listener must not use the database;
    /// [`crate::Database::log_events`] returns the same later.
    #[must_use]
    pub fn on_log_event(mut self, listener: impl Fn(&LogEvent) + Send + Sync + 'static) -> Options {
        self.log_events = Some(Arc::new(listener));
        self
    }
    /// Called when background work meets damage and is set aside until the next opening, by the
    /// thread that met the damage, so the listener must not use the database.
    /// [`crate::Database::work_set_aside`] returns the same later.
    #[must_use]
    pub fn on_set_aside(mut self, listener: impl Fn(&SetAside) + Send + Sync + 'static) -> Options {
        self.set_aside_listener = Some(Arc::new(listener));
        self
    }
    /// Where the page store's file (or raw device) is, instead of the database's directory.
    #[must_use]
    pub fn store_path(mut self, path: impl Into<PathBuf>) -> Options {
        self.store_path = Some(path.into());
        self
    }
    /// Keeps pages that are evicted from DRAM in a flash cache of `bytes` bytes, over a store on
    /// something slower; see `docs/guide/cache.md`. Given at creation or at any opening: a database
    /// that has no cache gets one, one that has one keeps it. Default: no cache.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Options {
        self.cache_bytes = Some(bytes);
        self
    }
    /// Where a new flash cache is, instead of the database's directory. Needs
    /// [`Options::cache_bytes`].
    #[must_use]
    pub fn cache_path(mut self, path: impl Into<PathBuf>) -> Options {
        self.cache_path = Some(path.into());
        self
    }
    /// The replacement policy of Firn's own flash cache. Default: [`CachePolicy::Keeping`].
    #[must_use]
    pub fn cache_policy(mut self, policy: CachePolicy) -> Options {
        self.cache_policy = policy;
        self
    }
    /// Pages that a new flash cache writes and replaces at a time, 1 to 1024: about an erase block
    /// of its device. Default: what the flash's profile says ([`Options::profile_cache`]), else 64.
    #[must_use]
    pub fn cache_group_pages(mut self, pages: usize) -> Options {
        self.cache_group_pages = Some(pages);
        self
    }
    /// Whether a new flash cache also writes dirty pages to the store at once. It then speeds up
    /// reads only, and if its device fails or is missing the database goes on without it. Default:
    /// no, and the device is as precious as the store.
    #[must_use]
    pub fn cache_write_through(mut self, write_through: bool) -> Options {
        self.cache_write_through = write_through;
        self
    }
    /// Whether log is retained, up to a quarter of the log's space, for all pages that only the
    /// flash cache holds: if its device is lost, [`Options::without_cache`] rebuilds them. The
    /// oldest dirty pages are written to the store for that in time, and 8 bytes of DRAM are taken
    /// for each page of the cache. Kept with the database; default: as it was, and no for a new
    /// one.
    #[must_use]
    pub fn cache_rebuildable(self, keep: bool) -> Options {
        self.naming(|kept| kept.cache_rebuildable = Some(keep))
    }
    /// Opens a database whose flash cache is lost, and gives the cache up for good: pages that only
    /// it held are rebuilt from the store and the log. Fails, and changes nothing, if the log was
    /// not retained for that ([`Options::cache_rebuildable`]). A cache in which nothing is the only
    /// copy is given up, too.
    #[must_use]
    pub fn without_cache(mut self, without: bool) -> Options {
        self.without_cache = without;
        self
    }
    /// A checkpoint begins when this many bytes of log have been appended since the last one: about
    /// this much, and at most twice as much, is read again after a crash. Default: an eighth of the
    /// log.
    #[must_use]
    pub fn checkpoint_log_bytes(mut self, bytes: u64) -> Options {
        self.checkpoint_log_bytes = Some(bytes);
        self
    }
    /// Whether the database runs threads of its own for cleaning, checkpoints and maintenance.
    /// Without them, call [`crate::Database::step`]. Default: yes.
    #[must_use]
    pub fn background_threads(mut self, run: bool) -> Options {
        self.background = run;
        self
    }
    /// Longest wait for one lock. Default: unlimited; deadlocks are found at once.
    #[must_use]
    pub fn lock_deadline(mut self, limit: Duration) -> Options {
        self.lock_deadline = Some(limit);
        self
    }
    /// How long closing waits for a device that does not complete a call:
    /// [`crate::Database::close`] fails then, and names it. Default: 30 s.
    #[must_use]
    pub fn close_patience(mut self, patience: Duration) -> Options {
        self.close_patience = patience;
        self
    }
    /// Whether recovery completes before the opening returns. Default: no; pages are redone when
    /// they are read, the others in the background ([`crate::Database::finish_recovery`]).
    #[must_use]
    pub fn eager_recovery(mut self, eager: bool) -> Options {
        self.eager_recovery = eager;
        self
    }
    /// Bytes of DRAM, beside the buffer, for page changes that recovery has not repeated yet.
    /// Changes that do not fit are repeated before the opening returns. Default: 64 MiB, as much
    /// log as is read with the default options.
    #[must_use]
    pub fn recovery_bytes(mut self, bytes: usize) -> Options {
        self.recovery_bytes = bytes;
        self
    }
    /// Called with the progress of recovery, before and after the opening returns, by the thread
    /// that recovers.
    #[must_use]
    pub fn on_recovery(mut self, progress: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Options {
        self.progress = Some(Arc::new(progress));
        self
    }
    /// Wraps each file of the database in a device of the caller's: one that records
    /// ([`crate::device::Recording`]), counts, fails, or takes its time as another device would.
    /// `wrap` gets a name (`superblock`, `log.0`, `log.1`, …, `store`, `cache`) and the file, and
    /// returns the device that the database uses. It is called once a file and opening. What the
    /// database does before (taking the files' locks, reading the superblock, timing the device for
    /// [`Options::log_devices`]) is done to the file itself.
    ///
    /// The returned device must keep what [`Device`] promises; the database's durability rests on
    /// it.
    #[must_use]
    pub fn wrap_devices(
        mut self,
        wrap: impl Fn(&str, Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> + Send + Sync + 'static,
    ) -> Options {
        self.wrap_device = Some(Arc::new(wrap));
        self
    }
    /// The profile (`firn characterize`) of the device that log and store are on. It counts unless
    /// an option says otherwise; `docs/lab/tools/characterize.md` lists what is taken from it.
    #[must_use]
    pub fn profile(self, path: impl Into<PathBuf>) -> Options {
        let path = path.into();
        self.profile_log(path.clone()).profile_store(path)
    }
    /// The profile of the log's devices.
    #[must_use]
    pub fn profile_log(mut self, path: impl Into<PathBuf>) -> Options {
        self.tuning.log_path = Some(path.into());
        self
    }
    /// The profile of the flash cache's device; the log's, if none is named: both are on flash.
    #[must_use]
    pub fn profile_cache(mut self, path: impl Into<PathBuf>) -> Options {
        self.tuning.cache_path = Some(path.into());
        self
    }
    /// The profile of the archive's device. Recovery reads log that both have from the faster
    /// source: the log's devices, or the archive. Without profiles for both, they are timed if
    /// there may be much log to read.
    #[must_use]
    pub fn profile_archive(mut self, path: impl Into<PathBuf>) -> Options {
        self.tuning.archive_path = Some(path.into());
        self
    }
    /// The profile of the page store's device.
    #[must_use]
    pub fn profile_store(mut self, path: impl Into<PathBuf>) -> Options {
        self.tuning.store_path = Some(path.into());
        self
    }
    /// Whether creating a database in a directory begins with measuring it, for at most half a
    /// minute, unless a profile is named. The profile is kept in the directory as `profile.toml`
    /// and counts at every opening. Default: no.
    #[must_use]
    pub fn characterize_quick(mut self, measure: bool) -> Options {
        self.tuning.measure = measure;
        self
    }
    /// Bytes of DRAM, beside the buffer, in which a database that is opened read-only keeps what
    /// recovery would write to its files ([`Options::open_read_only`]). Beyond that an unlinked
    /// file in the system's directory for temporary files (`TMPDIR`) is used. Default: 64 MiB.
    #[must_use]
    pub fn overlay_bytes(mut self, bytes: u64) -> Options {
        self.overlay_bytes = bytes;
        self
    }
    /// Cuts a new page store into groups with `maps_per_group` map pages of `meta_bytes` bytes,
    /// instead of groups of 4,032 pages: a test's database of a few pages then has several groups,
    /// and is checked in less time. Fixed.
    #[doc(hidden)]
    #[must_use]
    pub fn store_layout(mut self, meta_bytes: usize, maps_per_group: u32) -> Options {
        self.store_layout = Layout { meta_bytes, maps_per_group };
        self
    }
    /// Breaks the write-ahead rule, so that tests of crashes can show that they see failure.
    #[doc(hidden)]
    #[must_use]
    pub fn unsafe_skip_wal_rule(mut self) -> Options {
        self.skip_wal_rule = true;
        self
    }
    /// Forgets a part of what a flash cache held whenever it is opened, so that tests can show that
    /// they see failure.
    #[doc(hidden)]
    #[must_use]
    pub fn unsafe_break_cache_restore(mut self) -> Options {
        self.break_cache_restore = true;
        self
    }
    /// Rebuilds a lost flash cache from too little log, so that tests can show that they see
    /// failure.
    #[doc(hidden)]
    #[must_use]
    pub fn unsafe_break_cache_rebuild(mut self) -> Options {
        self.break_cache_rebuild = true;
        self
    }
    /// Wraps what is below DRAM, for tests that watch the pages that pass. Called once an opening.
    #[doc(hidden)]
    #[must_use]
    pub fn wrap_tier(
        mut self,
        wrap: impl Fn(Arc<dyn PageTier>) -> Arc<dyn PageTier> + Send + Sync + 'static,
    ) -> Options {
        self.wrap_tier = Some(Arc::new(wrap));
        self
    }

    /// For a database that is opened read-only: its writes go to an overlay, no thread works in the
    /// background, and nothing is created.
    pub(crate) fn for_looking(mut self) -> Options {
        self.overlay = Some(Arc::new(OverlaySpace::new(self.overlay_bytes)));
        self.background = false;
        (self.cache_bytes, self.cache_path) = (None, None);
        self
    }

    /// Checks every option against its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::new(ErrorKind::BadArgument, message));
        if !self.page_size.is_power_of_two() || !PAGE_SIZES.contains(&self.page_size) {
            return refuse(format!(
                "page_size is {}; it must be a power of two from 1024 to 65536",
                self.page_size
            ));
        }
        let least = 64 * self.page_size;
        if self.buffer_bytes < least {
            return refuse(format!(
                "buffer_bytes is {}; at least {least} are needed with pages of {}",
                self.buffer_bytes, self.page_size
            ));
        }
        if self.map_bytes.is_some_and(|bytes| bytes < least / MAP_SHARE) {
            return refuse(format!("map_bytes must be at least {}", least / MAP_SHARE));
        }
        // A request for more memory than there is would make the allocator end the process.
        let most = machine::memory_bytes();
        let map_bytes = self.map_bytes.unwrap_or(0);
        if self.buffer_bytes.saturating_add(map_bytes) as u64 > most {
            return refuse(format!(
                "buffer_bytes is {} and map_bytes {map_bytes}; this machine has {most} bytes of memory",
                self.buffer_bytes
            ));
        }
        if !(1..=64).contains(&self.log_devices) {
            return refuse(format!("log_devices is {}; it must be 1 to 64", self.log_devices));
        }
        let copies = self.log_copies.unwrap_or(1);
        if !(1..=8).contains(&copies) || !(1..=8).contains(&self.log_copies_required) {
            return refuse(format!(
                "log_copies is {copies} and log_copies_required {}; each must be 1 to 8",
                self.log_copies_required
            ));
        }
        if let Some(path) = self
            .log_paths
            .iter()
            .chain(&self.store_path)
            .chain(&self.cache_path)
            .find(|path| path.to_str().is_none())
        {
            return refuse(format!("{} is no text in UTF-8; give the file another name", path.display()));
        }
        self.check_cache()?;
        let least = limits::log_device_least(self.page_size);
        if self.log_bytes / (self.log_devices as u64) < least {
            return refuse(format!(
                "log_bytes is {}; each of the {} log devices needs at least {} KiB, with pages of {} bytes",
                self.log_bytes,
                self.log_devices,
                least >> 10,
                self.page_size
            ));
        }
        if let Some(bytes) = self.checkpoint_log_bytes
            && (bytes < 64 << 10 || bytes > (self.log_bytes / 6).max(64 << 10))
        {
            return refuse(format!(
                "checkpoint_log_bytes is {bytes}; it must be at least 64 KiB and at most a sixth of log_bytes ({})",
                self.log_bytes
            ));
        }
        self.check_archive()
    }
}

impl std::fmt::Debug for Options {
    /// The values of the options, under their names; listeners and wrappers are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let log_devices = (!self.probe_log_devices).then_some(self.log_devices);
        f.debug_struct("Options")
            .field("create", &self.create)
            .field("page_size", &self.page_size)
            .field("buffer_bytes", &self.buffer_bytes)
            .field("map_bytes", &self.map_bytes)
            .field("version_bytes", &self.version_bytes)
            .field("log_devices", &log_devices)
            .field("log_bytes", &self.log_bytes)
            .field("log_paths", &self.log_paths)
            .field("log_copies", &self.log_copies)
            .field("log_copies_required", &self.log_copies_required)
            .field("store_path", &self.store_path)
            .field("cache_path", &self.cache_path)
            .field("cache_bytes", &self.cache_bytes)
            .field("cache_policy", &self.cache_policy)
            .field("archive", &self.archive.path)
            .field("checkpoint_log_bytes", &self.checkpoint_log_bytes)
            .field("background_threads", &self.background)
            .field("lock_deadline", &self.lock_deadline)
            .field("close_patience", &self.close_patience)
            .field("eager_recovery", &self.eager_recovery)
            .field("recovery_bytes", &self.recovery_bytes)
            .field("overlay_bytes", &self.overlay_bytes)
            .finish_non_exhaustive()
    }
}
