//! The seam between the buffer and what lies below it.

use crate::cache::{CachePolicy, CacheState, CacheStatistics};
use crate::{TierError, TierErrorKind};
use firn_base::{Lsn, PageId, Progress};
use firn_log::{Appended, LogClass, LogError, Record};
use std::ops::Range;

/// How long a version of a page is expected to last: a hint for placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lifetime {
    /// Overwritten soon (roots, hot rows).
    Short,
    /// Nothing is known.
    #[default]
    Unknown,
    /// Written once (bulk loads, large values).
    Long,
}

/// One page to read.
#[derive(Debug)]
pub struct PageRead<'a> {
    /// Which.
    pub page: PageId,
    /// One page, aligned as `AlignedBuf` is. Zeroed if the page was allocated but never written.
    pub buf: &'a mut [u8],
    /// Filled in by `read_batch`.
    pub outcome: Result<Found, TierError>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// LSN of the last change in this version; of its allocation if it was never written.
    pub version: Lsn,
    /// Whether the version is newer than the store's own (it lies in a tier above the store only).
    pub dirty: bool,
    /// Whether it was found in a tier above the store.
    pub cached: bool,
}

/// One page to write. The buffer has checked the WAL rule: log before and including `version` is durable.
#[derive(Debug)]
pub struct PageWrite<'a> {
    /// Which.
    pub page: PageId,
    /// LSN of the last change in `data`.
    pub version: Lsn,
    /// LSN of the first change that no tier holds yet. Equal to `version` or earlier; meaningless if clean.
    /// `Lsn::MAX` from a tier that holds the version itself until the one below has it durably.
    pub recovery_lsn: Lsn,
    /// Whether `data` is newer than what the tier answered at its last read or took at its last write.
    pub dirty: bool,
    /// One page.
    pub data: &'a [u8],
    /// Byte ranges that differ from version `base`; `None` if unknown or large.
    pub changed: Option<&'a [Range<u16>]>,
    /// The version that `changed` is relative to.
    pub base: Lsn,
    /// How long this version may last.
    pub lifetime: Lifetime,
    /// Filled in by `write_batch`.
    pub outcome: Result<Written, TierError>,
}

impl<'a> PageWrite<'a> {
    /// The whole image of a page in a version that the tier below lacks, from a tier that writes it back. `recovery_lsn` as
    /// above.
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
            outcome: Err(TierError::new(TierErrorKind::Failed, "the store gave no answer")),
        }
    }
}

/// What became of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The tier holds this version: the frame is clean now.
    Taken,
    /// The tier did not want it: a clean page, or a version older than the one it holds (another thread wrote
    /// a newer one meanwhile, or the page was freed and allocated anew). If the frame still holds this
    /// version it may be dropped.
    Declined,
}

/// What a cache knows of a page without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// It is not there, and will not be before pages are written: the store has its newest version.
    No,
    /// It is there, in this version.
    As(Lsn),
    /// It is there, in some version.
    Somehow,
}

/// Pages that a structure change takes into use and gives back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocation<'a> {
    /// Reserved pages that become allocated.
    pub allocate: &'a [PageId],
    /// Allocated pages that become free.
    pub free: &'a [PageId],
}

/// Counters since opening. `null` tiers answer zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStatistics {
    /// Pages read.
    pub pages_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Write requests that carried them (a run of adjacent places is one).
    pub write_runs: u64,
    /// Pages of metadata written.
    pub metadata_pages_written: u64,
    /// Pages allocated now.
    pub pages_allocated: u64,
    /// Page places in the store's file, used or free, metadata not counted.
    pub places: u64,
    /// Of these, free ones.
    pub places_free: u64,
}

/// A place for pages below DRAM. All calls block and may be made from any thread.
pub trait PageTier: Send + Sync {
    /// Bytes.
    fn page_size(&self) -> usize;

    /// Reads pages, each the newest version the tier knows.
    fn read_batch(&self, reads: &mut [PageRead<'_>]);

    /// Takes pages. Those taken are durable, or rebuilt by redo from their `recovery_lsn`, once the call
    /// returns and until the log is truncated past what [`PageTier::oldest_needed_lsn`] says.
    fn write_batch(&self, writes: &mut [PageWrite<'_>]);

    /// How many pages the next `write_batch` had best offer; makes room for as many first.
    fn preferred_batch(&self) -> usize;

    /// Whether clean pages that leave DRAM should be offered to `write_batch`, as a flash cache wants. Cheap, and may
    /// change; the buffer drops clean pages without asking if false.
    fn wants_clean(&self) -> bool {
        false
    }

    /// Reserves a page: in memory only, forgotten by a crash. Fails with kind `Full` if no place could be
    /// found for it, so that a page once allocated can always be written. `Rollback` and `System` may use
    /// the reserve.
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError>;

    /// Gives back a reserved page that was never allocated.
    fn unreserve(&self, page: PageId);

    /// Allocates and frees pages within a structure change: hands the record that says so to `append`,
    /// which appends it within the change's group and answers where the group lies. Keeps the order of map
    /// changes that of their records. The record must be the first of its group: its LSN is
    /// `Appended::first`. A freed page's number and place are used again only after the group is durable.
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError>;

    /// Makes durable all that the tier holds in volatile memory, its map included.
    fn sync(&self) -> Result<(), TierError>;

    /// The newest version the tier holds; `None` if the page is not allocated.
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError>;

    /// Whether the newest version the tier holds surely has the change that was logged at `lsn`; `None` if the
    /// page is not allocated. For redo: may answer no where only a read of the page would tell.
    fn has_change(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        Ok(self.version_of(page)?.map(|version| version >= lsn))
    }

    /// Whether the page cannot be read because its newest version is known to be lost, which it says of itself for ever. For
    /// redo, which has nothing to repeat its changes on.
    fn page_is_lost(&self, _page: PageId) -> bool {
        false
    }

    /// The log must be kept from here on for what the tier holds; `None` if it needs none.
    fn oldest_needed_lsn(&self) -> Option<Lsn>;

    /// Counters.
    fn statistics(&self) -> TierStatistics;
}

/// What the log has to offer should a cache be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildFrom {
    /// The first change that the store lacks of what the cache holds, as far as that is known; `None` if it lacks nothing.
    pub kept: Option<Lsn>,
    /// Whether it is known of everything: then redo from there upon the store makes every page anew.
    pub complete: bool,
}

/// A page tier that is a cache over the store: what the engine asks beyond pages.
pub trait PageCache: PageTier {
    /// Applies what a record of the store (kinds 0x10–0x1f) means for cached pages. For recovery, after the
    /// store's own redo of that record.
    fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError>;

    /// What is known of a page's image here without any I/O, before [`PageCache::end_recovery`]. While a cache holds a
    /// page, what the store took of it is not the newest: a cache that was leaving may have an older image, upon which redo
    /// makes the page anew.
    fn cached(&self, _page: PageId) -> Cached {
        Cached::No
    }

    /// How many pages [`PageCache::cached`] knows the version of: those that came in since the redo start.
    fn versions_known(&self) -> u64 {
        0
    }

    /// Redo of pages has ended: what was kept for it may go.
    fn end_recovery(&self);

    /// What must be remembered outside of the cache, once [`PageTier::sync`] has returned.
    fn state(&self) -> CacheState;

    /// Whether dirty pages that are written stay here, and need not be written to the store as well: then checkpoints write
    /// all of them. May change.
    fn absorbs_checkpoints(&self) -> bool {
        false
    }

    /// A piece of background work.
    fn step(&self) -> Result<Progress, TierError>;

    /// From now on nothing more is taken in: the store gets what is dirty, until `set_leaving(false)`. A cache in which
    /// nothing is newer than the store's need not care.
    fn set_leaving(&self, _leaving: bool) {}

    /// Gives a piece of what the store lacks to the store. `Idle` once nothing here is needed any more, if nothing has been
    /// taken in since `set_leaving(true)`; then, as long as no call is made, the cache may be forgotten.
    fn leave_step(&self) -> Result<Progress, TierError> {
        Ok(Progress::Idle)
    }

    /// From now on it is to be known what of its contents the store lacks. `from`: the log has been kept from here on for
    /// what it holds now, if it was.
    fn keep_rebuildable(&self, _from: Option<Lsn>) {}

    /// From where on the log must be kept for redo to rebuild what the cache holds. A cache in which nothing is newer than
    /// the store's, but what [`PageTier::oldest_needed_lsn`] answers for, needs none.
    fn rebuild_from(&self) -> RebuildFrom {
        RebuildFrom { kept: None, complete: true }
    }

    /// Has the store take what lacks changes from before `lsn` there.
    fn write_back_before(&self, _lsn: Lsn) -> Result<(), TierError> {
        Ok(())
    }

    /// Reads every cached page and tells of faults; answers how many pages were read.
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError>;

    /// How it takes pages in and lets them go, if that is known.
    fn policy(&self) -> Option<CachePolicy> {
        None
    }

    /// Counters of the cache. Those of [`PageTier::statistics`] are the store's.
    fn cache_statistics(&self) -> CacheStatistics;
}
