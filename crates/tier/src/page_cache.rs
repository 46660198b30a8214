//! The interfaces of a flash cache: [`PageCache`] to the engine above it, [`BackingStore`] to the
//! store below it, and [`CacheKind`], by which a caller supplies another cache than Firn's own
//! (`docs/lab/tools/comparators.md` has three).
//!
//! Every cache begins with a [`header::CacheHeader`], by which the engine recognizes it whatever
//! its kind is.

pub mod drive_times;
pub mod header;
pub mod policy;
pub mod statistics;

use crate::error::TierError;
use crate::page_tier::{PageRead, PageTier, PageWrite};
use drive_times::{CacheSizes, DriveTimes};
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Lsn, PageId, Progress};
use firndb_device::Device;
use firndb_log::Record;
use header::CacheId;
use policy::CachePolicy;
use statistics::CacheStatistics;
use std::ops::Range;

/// What a cache knows about a page without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// The cache does not hold it, and will not before pages are written: the store has its newest
    /// version.
    No,
    /// The cache holds this version.
    As(Lsn),
    /// The cache holds some version.
    Somehow,
}

/// What the log must supply should a cache be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildFrom {
    /// LSN of the first change in the cache that the store lacks, as far as it is known; `None` if
    /// the store lacks nothing.
    pub kept: Option<Lsn>,
    /// Whether this is known of every dirty page: then redo from there rebuilds every page on the
    /// store's images.
    pub complete: bool,
}

/// State of a cache that is stored outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Every group up to this one was durable: a cache with an older last group is an older copy,
    /// or lost writes.
    pub durable: u64,
    /// The cache failed and must not be read any more. Only in write-through mode.
    pub lost: bool,
}

/// A page tier that is a cache over the store: what the engine needs of it beyond pages.
pub trait PageCache: PageTier {
    /// Applies a store record (kinds 0x10–0x1f) to the cached pages. For recovery, after the
    /// store's own redo of that record.
    fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError>;

    /// What is known without I/O about the page's image in the cache, before
    /// [`PageCache::end_recovery`]. While a cache holds a page, the version that the store took
    /// must not be assumed to be the newest: a cache that was leaving when the crash came may hold
    /// an older image, and redo rebuilds the page on that image.
    ///
    /// Once it is [`Cached::As`] a version, [`PageCache::redo`] may drop the image only for a
    /// record by which its changes are needless: of a page that was freed, or allocated anew, or of
    /// which the store has at least that version.
    fn cached(&self, _page: PageId) -> Cached {
        Cached::No
    }

    /// Number of pages of which [`PageCache::cached`] knows the version: those that entered since
    /// the redo start.
    fn versions_known(&self) -> u64 {
        0
    }

    /// Ends the redo of pages: the cache may drop what it kept for redo.
    fn end_recovery(&self);

    /// What must be stored outside of the cache, once [`PageTier::sync`] has returned.
    fn state(&self) -> CacheState;

    /// Whether the cache keeps dirty pages written to it without writing them to the store as well.
    /// Checkpoints then write all dirty pages. May change.
    fn absorbs_checkpoints(&self) -> bool {
        false
    }

    /// Does a piece of background work.
    fn step(&self) -> Result<Progress, TierError>;

    /// Stops the cache taking pages in, until `set_leaving(false)`: dirty pages then go to the
    /// store. A cache without pages newer than the store's may ignore it.
    fn set_leaving(&self, _leaving: bool) {}

    /// Writes to the store a piece of what it lacks. Returns `Idle` once the engine needs nothing
    /// of the cache any more, if it has taken nothing in since `set_leaving(true)`; then, as long
    /// as no call is made, the cache may be forgotten.
    fn leave_step(&self) -> Result<Progress, TierError> {
        Ok(Progress::Idle)
    }

    /// Starts tracking which of the cache's changes the store lacks. `from`: the LSN from which the
    /// log has been kept for what the cache holds now, if it has.
    fn keep_rebuildable(&self, _from: Option<Lsn>) {}

    /// Lets the cache weigh its drive's time against the store's; `times` are those of a cache of
    /// these sizes. For a cache whose policy has a use for it.
    fn weigh(&self, _times: &dyn Fn(CacheSizes) -> DriveTimes) {}

    /// The LSN from which the log must be kept for redo to rebuild what the cache holds. A cache in
    /// which nothing is newer than the store's, except what [`PageTier::oldest_needed_lsn`] already
    /// covers, needs no log for it.
    fn rebuild_from(&self) -> RebuildFrom {
        RebuildFrom { kept: None, complete: true }
    }

    /// Writes to the store the cached pages of which it lacks changes from before `lsn`.
    fn write_back_before(&self, _lsn: Lsn) -> Result<(), TierError> {
        Ok(())
    }

    /// Reads every cached page and reports faults; returns the number of pages read.
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError>;

    /// Asserts what the cache's structures in memory promise. For tests and simulations; the caller
    /// holds no latch and no lock.
    fn check_memory(&self) {}

    /// The kind of cache that it is.
    fn kind(&self) -> Arc<dyn CacheKind>;

    /// The policy of one of Firn's own kind; `None` of another.
    fn policy(&self) -> Option<CachePolicy> {
        None
    }

    /// Whether nothing here is the only copy, except perhaps beside the log: then the engine can go
    /// on without the cache.
    fn is_dispensable(&self) -> bool;

    /// Forgets a part of what is dirty, as a faulty restore would: tests prove with it that they
    /// detect failure.
    #[doc(hidden)]
    fn forget_dirty_images(&self) {}

    /// The cache's counters. [`PageTier::statistics`] returns the store's.
    fn cache_statistics(&self) -> CacheStatistics;
}

/// The store below a cache.
pub trait BackingStore: PageTier {
    /// End of the newest map record that freed places or page numbers and is not durable yet; zero
    /// if there is none. Until it is durable the old places of the pages it moved keep the previous
    /// versions.
    fn records_end(&self) -> Lsn;

    /// The version that the newest of these records names for a page: without what waits in memory.
    fn recorded_version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError>;

    /// The log's end: records that the store has not appended yet lie there or behind. Takes no
    /// lock.
    fn log_end(&self) -> Lsn;

    /// As [`PageTier::write_batch`], but what it takes is in map records when the call returns, and
    /// so is any newer version that a page was declined for: [`BackingStore::records_end`] covers
    /// it. For a cache that drops or marks clean what it has of pages that by-pass it.
    fn write_recorded(&self, writes: &mut [PageWrite<'_>]);

    /// Makes the log durable up to `end`: the cache may not drop the pages that records before
    /// `end` moved until then.
    fn flush_records(&self, end: Lsn) -> Result<(), TierError>;

    /// Notes that `version` of `page`, which is newer than the store's, is lost: reads of the page
    /// report `sentence`. Returns whether it was still the newest.
    fn write_lost(&self, page: PageId, version: Lsn, sentence: &str) -> Result<bool, TierError>;
}

/// Where a cache is made or opened.
#[derive(Clone)]
pub struct CacheSite {
    /// The cache's device.
    pub device: Arc<dyn Device>,
    /// The store below it.
    pub store: Arc<dyn BackingStore>,
    /// The database of both.
    pub database: DatabaseId,
    /// The cache's id, drawn when it is created.
    pub cache: CacheId,
}

/// Options of a new cache. A kind may leave out what it has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of the device to use.
    pub bytes: u64,
    /// Policy of admission and replacement.
    pub policy: CachePolicy,
    /// Pages written at a time, and replaced at a time: about one erase block of the device (FaCE,
    /// section 3.3). 1 to 1024.
    pub group_pages: usize,
    /// Whether dirty pages go to the store at once, so that losing the cache costs only speed.
    pub write_through: bool,
}

impl CacheOptions {
    /// The default policy in groups of 64 pages, write-back.
    #[must_use]
    pub fn new(bytes: u64) -> CacheOptions {
        CacheOptions { bytes, policy: CachePolicy::default(), group_pages: 64, write_through: false }
    }
}

/// Most bytes of a kind's name.
const KIND_BYTES_MAX: usize = 16;

/// Whether a kind of cache may have this name.
#[must_use]
pub fn is_kind_name(name: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=KIND_BYTES_MAX).contains(&name.len()) && name.bytes().all(usual)
}

/// A kind of flash cache. The database stores the kind's name, and its caller supplies the kind at
/// every opening.
pub trait CacheKind: std::fmt::Debug + Send + Sync {
    /// Its name: 1 to 16 lower-case letters and digits. No two kinds share one.
    fn name(&self) -> &'static str;

    /// Checks that such a cache for pages of `page_size` bytes can be created on a device with
    /// blocks of `block` bytes.
    ///
    /// Errors: `BadArgument`, with values that would do.
    fn check(&self, options: &CacheOptions, page_size: usize, block: usize) -> Result<(), TierError>;

    /// Creates an empty cache on a device that is empty or held a cache of the same database.
    ///
    /// Errors: `BadArgument` if the device holds something else, or is too small.
    fn create(&self, site: CacheSite, options: CacheOptions) -> Result<Arc<dyn PageCache>, TierError>;

    /// Opens a cache of this kind. `durable` is its stored state ([`CacheState::durable`]), `log`
    /// the range of the log that recovery reads.
    ///
    /// Errors: `Damaged` if the device does not hold that cache, with all that was durable.
    fn open(
        &self,
        site: CacheSite,
        policy: CachePolicy,
        durable: u64,
        log: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError>;
}

/// Reads from the store, as one batch, those of `reads` that no cache holds; `missed` is in
/// ascending order.
pub fn read_below(store: &dyn PageTier, reads: &mut [PageRead<'_>], missed: &[usize]) {
    if missed.len() == reads.len() {
        return store.read_batch(reads);
    }
    if missed.is_empty() {
        return;
    }
    let mut below: Vec<PageRead<'_>> = reads
        .iter_mut()
        .enumerate()
        .filter(|(index, _)| missed.binary_search(index).is_ok())
        .map(|(_, read)| PageRead { page: read.page, buf: &mut *read.buf, outcome: Err(TierError::unset()) })
        .collect();
    store.read_batch(&mut below);
    let outcomes: Vec<_> = below.into_iter().map(|read| read.outcome).collect();
    for (index, outcome) in missed.iter().zip(outcomes) {
        reads[*index].outcome = outcome;
    }
}
