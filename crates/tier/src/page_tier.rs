//! The interface between the buffer and the tiers below it.

use crate::cache::{CachePolicy, CacheState, CacheStatistics};
use crate::{TierError, TierErrorKind};
use firndb_base::{Lsn, PageId, Progress};
use firndb_log::{Appended, LogClass, LogError, Record};
use std::ops::Range;

/// How long a version of a page is expected to last: a hint for placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Overwritten soon (roots, hot rows).
    Short,
    /// No estimate.
    #[default]
    Unknown,
    /// Written once (bulk loads, large values).
    Long,
}

/// One page to read.
#[derive(Debug)]
pub struct PageRead<'a> {
    /// The page to read.
    pub page: PageId,
    /// Buffer of one page, aligned as `AlignedBuf` is. Zeroed if the page was allocated but never
    /// written.
    pub buf: &'a mut [u8],
    /// Set by `read_batch`.
    pub outcome: Result<Found, TierError>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// LSN of the last change in this version; LSN of the page's allocation if it was never
    /// written.
    pub version: Lsn,
    /// Whether the version is newer than the store's (only a tier above the store has it).
    pub dirty: bool,
    /// Whether it was found in a tier above the store.
    pub cached: bool,
}

/// One page to write. The buffer has checked the WAL rule: the log up to and including `version` is
/// durable.
#[derive(Debug)]
pub struct PageWrite<'a> {
    /// The page to write.
    pub page: PageId,
    /// LSN of the last change in `data`.
    pub version: Lsn,
    /// LSN of the first change that no tier holds yet: `version` or earlier; meaningless if clean.
    /// `Lsn::MAX` from a tier that itself holds the version until the tier below has it durably.
    pub recovery_lsn: Lsn,
    /// Whether `data` is newer than the version that the tier returned at its last read or took at
    /// its last write.
    pub dirty: bool,
    /// The page's image.
    pub data: &'a [u8],
    /// Byte ranges that differ from version `base`; `None` if unknown or large.
    pub changed: Option<&'a [Range<u16>]>,
    /// The version against which `changed` was computed.
    pub base: Lsn,
    /// Expected lifetime of this version.
    pub lifetime: Lifetime,
    /// Set by `write_batch`.
    pub outcome: Result<Written, TierError>,
}

impl<'a> PageWrite<'a> {
    /// A write-back from an upper tier: the whole image of a page in a version that the tier below
    /// lacks. `recovery_lsn` as in the field.
    pub(crate) fn back(page: PageId, version: Lsn, recovery_lsn: Lsn, data: &'a [u8]) -> PageWrite<'a> {
        PageWrite {
            page,
            version,
            recovery_lsn,
            dirty: true,
            data,
            changed: None,
            base: Lsn::ZERO,
            lifetime: Lifetime::Unknown,
            outcome: Err(TierError::new(TierErrorKind::Failed, "the store returned no outcome")),
        }
    }
}

/// What became of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The tier holds this version: the frame is clean now.
    Taken,
    /// The tier did not take it: the page was clean, or the version is older than the one the tier
    /// holds (another thread wrote a newer one meanwhile, or the page was freed and allocated
    /// anew). If the frame still holds this version the buffer may drop it.
    Declined,
}

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

/// Pages that a structure change allocates and frees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocation<'a> {
    /// Reserved pages that become allocated.
    pub allocate: &'a [PageId],
    /// Allocated pages that become free.
    pub free: &'a [PageId],
}

/// Pins in memory what [`PageTier::prepare`] loaded until it is dropped. Must not be dropped under
/// a lock.
#[derive(Default)]
#[must_use = "what was prepared is forgotten when this is dropped"]
pub struct Prepared<'a> {
    pub(crate) _pins: Vec<crate::store::Pins<'a>>,
}

/// Counters since opening. Tiers that count nothing return zeros. Write requests for these pages (a
/// run of adjacent places is one request).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStatistics {
    /// Pages read.
    pub pages_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Write requests that carried them (a run of adjacent places is one).
    pub write_runs: u64,
    /// Pages of metadata written.
    pub metadata_pages_written: u64,
    /// Pages allocated at present.
    pub pages_allocated: u64,
    /// Page places in the store's file, used and free, without metadata.
    pub places: u64,
    /// Free places among them.
    pub places_free: u64,
}

/// Page storage below DRAM. All calls block, and any thread may make them.
pub trait PageTier: Send + Sync {
    /// Page size in bytes.
    fn page_size(&self) -> usize;

    /// Reads the newest version that the tier knows of each page.
    fn read_batch(&self, reads: &mut [PageRead<'_>]);

    /// Takes pages. Once the call returns, those taken are durable, or redo rebuilds them from
    /// their `recovery_lsn` until the log is truncated past [`PageTier::oldest_needed_lsn`].
    fn write_batch(&self, writes: &mut [PageWrite<'_>]);

    /// Makes space for the next `write_batch` and returns how many pages it should offer. A flash
    /// cache may replace a group for it: the call reads the group, writes pages back to the store
    /// and may wait for a log flush.
    fn make_batch_space(&self) -> usize;

    /// Whether the buffer should offer clean pages that leave DRAM to `write_batch`, as a flash
    /// cache wants. Cheap, and may change (a cache that was lost wants none). If false, the buffer
    /// drops clean pages without a call.
    fn wants_clean(&self) -> bool {
        false
    }

    /// Reserves a page: in memory only, forgotten by a crash. Fails with kind `Full` if no place
    /// can be found for the page, so that a page once allocated can always be written. The classes
    /// `Rollback` and `System` may use the reserve.
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError>;

    /// Releases a reserved page that was never allocated.
    fn unreserve(&self, page: PageId);

    /// Loads into memory, and keeps there until the returned value is dropped, the metadata needed
    /// to publish changes of these reserved or allocated pages. May read and wait; the caller holds
    /// no exclusive latch. Skips numbers that no page has.
    fn prepare(&self, pages: &[PageId]) -> Result<Prepared<'_>, TierError>;

    /// Allocates and frees pages within a structure change. Passes the allocation record to
    /// `append`, which appends it within the change's group and returns the group's position in the
    /// log. Map changes take effect in the order of their records. The record must be the first of
    /// its group: its LSN is `Appended::first`. A freed page's number and place are reused only
    /// after the group is durable.
    ///
    /// Waits for no device, since the caller holds latches: fails with kind `Unprepared` if the
    /// needed metadata is not in memory. `append` must not wait either
    /// ([`firndb_log::Log::try_append_group`]). A page that was written to another place since it was
    /// prepared may have to be prepared again. A publication that fails has changed nothing.
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError>;

    /// Makes all that the tier holds in volatile memory durable, its map included.
    fn sync(&self) -> Result<(), TierError>;

    /// The newest version that the tier holds; `None` if the page is not allocated.
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError>;

    /// Whether the newest version that the tier holds certainly contains the change logged at
    /// `lsn`; `None` if the page is not allocated. For redo: may return false where only reading
    /// the page would tell.
    fn has_change_for_sure(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        Ok(self.version_of(page)?.map(|version| version >= lsn))
    }

    /// Whether the page is unreadable because its newest version is known to be lost; every read of
    /// it then reports the loss. For redo, which has no image to repeat the changes on.
    fn page_is_lost(&self, _page: PageId) -> bool {
        false
    }

    /// The LSN from which the log must be kept for what the tier holds; `None` if it needs no log.
    fn oldest_needed_lsn(&self) -> Option<Lsn>;

    /// Counters.
    fn statistics(&self) -> TierStatistics;
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

/// A page tier that is a cache over the store: what the engine needs of it beyond pages.
pub trait PageCache: PageTier {
    /// Applies a store record (kinds 0x10–0x1f) to the cached pages. For recovery, after the
    /// store's own redo of that record.
    fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError>;

    /// What is known without I/O about the page's image in the cache, before
    /// [`PageCache::end_recovery`]. While a cache holds a page, the version that the store took
    /// must not be assumed to be the newest: a cache that was leaving when the crash came may hold
    /// an older image, and redo rebuilds the page on that image.
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

    /// The cache's admission and replacement policy, if it is known.
    fn policy(&self) -> Option<CachePolicy> {
        None
    }

    /// The cache's counters. [`PageTier::statistics`] returns the store's.
    fn cache_statistics(&self) -> CacheStatistics;
}
