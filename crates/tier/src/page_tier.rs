//! The interface between the buffer and the tiers below it.

use crate::error::TierError;
use crate::granules::{Base, Changes};
use crate::page_reads::PageReads;
use firndb_base::{Lsn, PageId};
use firndb_log::{Appended, LogClass, LogError, Record};

/// One page to read.
#[derive(Debug)]
pub struct PageRead<'a> {
    /// The page to read.
    pub page: PageId,
    /// Buffer of one page, aligned as `AlignedBuf` is. Zeroed if the page was allocated but never
    /// written.
    pub buf: &'a mut [u8],
    /// Set by `read_batch`; until then [`TierError::unset`].
    pub outcome: Result<Found, TierError>,
}

/// Whether the store read a delta page for a page, beside its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeltaRead {
    /// The image was all of it, or its changes were in memory.
    #[default]
    No,
    /// It did, which counts against the page's deltas.
    Yes,
    /// It did, and should have the page again when it leaves DRAM, changed or not, to write it
    /// whole.
    Merge,
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
    /// As in [`PageWrite`].
    pub base: Option<Base>,
    /// As in [`PageWrite`].
    pub changes: Changes,
    /// Whether it took a delta page.
    pub delta_read: DeltaRead,
}

impl Found {
    /// A version of which no base is known.
    #[must_use]
    pub const fn without_base(version: Lsn) -> Found {
        let (base, changes, delta_read) = (None, Changes::ALL, DeltaRead::No);
        Found { version, dirty: false, cached: false, base, changes, delta_read }
    }
}

/// Where the newest version of a page would be read from, by what is in memory. A hint: it may be
/// stale at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In a cache above the store.
    Cache,
    /// In the store.
    Store {
        /// Number of its place: places with adjacent numbers are adjacent on the device, except at
        /// the store's metadata, and greater numbers lie behind lesser ones.
        place: u64,
    },
    /// The page is allocated and was never written: a read needs no device.
    Unwritten,
    /// The page's map page is not in memory, or there is no such page.
    Unknown,
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
    /// A whole image of the page, of this incarnation, that the store had on its device. It may
    /// have been replaced by a newer one. `None` if the page was never written, or it is unknown:
    /// then the page must be written whole, and `changes` is [`Changes::ALL`].
    pub base: Option<Base>,
    /// What of `data` may differ from `base`.
    pub changes: Changes,
    /// What the page's read reported, unless the page was offered since.
    pub delta_read: DeltaRead,
    /// Set by `write_batch`; until then [`TierError::unset`].
    pub outcome: Result<Written, TierError>,
}

impl<'a> PageWrite<'a> {
    /// A write-back from an upper tier: the whole image of a page in a version that the tier below
    /// lacks. `recovery_lsn` as in the field.
    #[must_use]
    pub fn back(page: PageId, version: Lsn, recovery_lsn: Lsn, data: &'a [u8]) -> PageWrite<'a> {
        PageWrite {
            page,
            version,
            recovery_lsn,
            dirty: true,
            data,
            base: None,
            changes: Changes::ALL,
            delta_read: DeltaRead::No,
            outcome: Err(TierError::unset()),
        }
    }

    /// The same write, of an image that differs from `base` by `changes`.
    #[must_use]
    pub fn changed_since(self, base: Option<Base>, changes: Changes) -> PageWrite<'a> {
        PageWrite { base, changes, ..self }
    }

    /// Whether a tier took it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|written| written.is_taken())
    }
}

/// What became of a written page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The tier holds this version: the frame is clean now.
    Taken {
        /// The page's base now: that of the write, unless the store has the image whole now.
        base: Option<Base>,
        /// What the image that was taken differs from it by.
        changes: Changes,
    },
    /// The tier did not take it: the page was clean, or the version is older than the one the tier
    /// holds (another thread wrote a newer one meanwhile, or the page was freed and allocated
    /// anew). If the frame still holds this version the buffer may drop it.
    Declined,
}

impl Written {
    /// Whether the tier took it.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        matches!(self, Written::Taken { .. })
    }
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
    _held: Option<Box<dyn Held + 'a>>,
}

/// What a tier keeps until it is dropped.
trait Held: Send {}
impl<T: Send> Held for T {}

impl<'a> Prepared<'a> {
    /// Keeps `held`, of whatever type the tier has for it.
    pub fn holding(held: impl Send + 'a) -> Prepared<'a> {
        Prepared { _held: Some(Box::new(held)) }
    }
}

/// Counters since opening. Tiers that count nothing return zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStatistics {
    /// Pages read.
    pub pages_read: u64,
    /// Read requests that carried them: adjacent places of a batch are one, a request that failed
    /// is repeated for each of its pages, and a page that moved meanwhile is read again.
    pub read_requests: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Write requests that carried them (a run of adjacent places is one).
    pub write_runs: u64,
    /// Pages of metadata read: map, bitmaps, totals.
    pub metadata_pages_read: u64,
    /// Bytes read for them.
    pub metadata_bytes_read: u64,
    /// Pages of metadata written.
    pub metadata_pages_written: u64,
    /// Bytes of them.
    pub metadata_bytes_written: u64,
    /// Bytes of DRAM that the map may take: it grows where the map does not fit.
    pub map_memory_bytes: u64,
    /// Pages taken as deltas.
    pub deltas_taken: u64,
    /// Deltas that wait in memory.
    pub deltas_waiting: u64,
    /// Delta pages in use.
    pub delta_pages: u64,
    /// Delta pages written.
    pub delta_pages_written: u64,
    /// Delta pages read, with a page or to clean.
    pub delta_pages_read: u64,
    /// Deltas moved from nearly empty delta pages.
    pub deltas_gathered: u64,
    /// Pages with a delta written whole, for lack of space for deltas.
    pub deltas_merged: u64,
    /// Pages read with a delta page.
    pub reads_with_delta: u64,
    /// Pages with a delta written whole when they left DRAM unchanged, since their second reads
    /// cost more.
    pub deltas_merged_for_reads: u64,
    /// Changed pages written whole because their changes are more than half of a page.
    pub whole_for_size: u64,
    /// Changed pages written whole because deltas, and the second reads that they cost, have come
    /// to as much.
    pub whole_for_rent: u64,
    /// Segments (64 places) of which every place is known to be free.
    pub segments_whole: u64,
    /// Whole segments that writes were given, one after the other.
    pub segments_opened: u64,
    /// Segments that the cleaner of space has emptied.
    pub segments_emptied: u64,
    /// Images moved for that, and to empty sparse groups.
    pub images_moved: u64,
    /// Sparse groups of places that were emptied and given back.
    pub groups_emptied: u64,
    /// Calls that should have given space back, and failed.
    pub discards_failed: u64,
    /// Groups whose space the device keeps therefore, although the store does without it.
    pub groups_kept: u64,
    /// Places taken elsewhere, for lack of a whole segment, where writes go to those.
    pub places_scattered: u64,
    /// Syncs of the device.
    pub syncs: u64,
    /// Batches of writes that another thread's sync made durable.
    pub syncs_shared: u64,
    /// Pages allocated at present.
    pub pages_allocated: u64,
    /// Page places in the store's file, used and free, without metadata.
    pub places: u64,
    /// Free places among them, those held included.
    pub places_free: u64,
    /// Places of writes under way, freed by log that is not durable yet, or with images that
    /// archive or backups lack and no page has any more.
    pub places_held: u64,
    /// Places held until archive and backups have the images of the shadows there.
    pub shadows_held: u64,
    /// Places in use for nothing: delta pages that no page needs, and `places_unnamed`.
    pub places_dead: u64,
    /// Places that pages left while their map page could not be read.
    pub places_unnamed: u64,
    /// Places whose space was given back to the file system.
    pub places_returned: u64,
}

impl TierStatistics {
    /// Places with the newest image of a page.
    #[must_use]
    pub fn places_live(&self) -> u64 {
        let used = self.places - self.places_free;
        // Of delta pages that no page needs, `places_dead` has some.
        used.saturating_sub(self.delta_pages + self.places_unnamed)
    }
}

/// Page storage below DRAM. All calls block, and any thread may make them.
pub trait PageTier: Send + Sync {
    /// Page size in bytes.
    fn page_size(&self) -> usize;

    /// Reads the newest version that the tier knows of each page.
    fn read_batch(&self, reads: &mut [PageRead<'_>]);

    /// Begins to read the newest versions of pages, by tags of which none is under way; for the
    /// number of pages see [`PageReads::space`]. Some may come now.
    fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        reads.begin(pages.len(), self.page_size());
        reads.read_now(self.page_size(), pages, |batch| self.read_batch(batch));
    }

    /// Waits until pages have come of those that are under way; false if none is.
    fn next_reads(&self, reads: &mut PageReads) -> bool {
        reads.has_come()
    }

    /// Replaces `found` by the whereabouts of `pages`, in order, by what is in memory: waits
    /// for no device.
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        found.clear();
        found.resize(pages.len(), Whereabouts::Unknown);
    }

    /// Takes pages. Once the call returns, those taken are durable, or redo rebuilds them from
    /// their `recovery_lsn` until the log is truncated past [`PageTier::oldest_needed_lsn`].
    fn write_batch(&self, writes: &mut [PageWrite<'_>]);

    /// Takes the first content of pages that were allocated without content, of which no log has
    /// it: `recovery_lsn` is `Lsn::MAX`, and the version later than that of the allocation. Once
    /// the call returns, those taken are durable, and what names them is in the log. No frame has
    /// the page or gets it meanwhile, and no image of an earlier incarnation is on its way to the
    /// tiers. What is not taken the caller has to log.
    fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        writes.iter_mut().for_each(|write| write.outcome = Ok(Written::Declined));
    }

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

    /// Bytes of DRAM that the tier would use better than the buffer does: its own tables do not fit
    /// into what it has. Cheap.
    fn wants_memory(&self) -> usize {
        0
    }

    /// Takes over this number of bytes of DRAM, which the buffer has given up.
    fn take_memory(&self, _bytes: usize) {}

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
    /// ([`firndb_log::Log::try_append_group`]). A page that was written to another place since it
    /// was prepared may have to be prepared again. A publication that fails has changed nothing.
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError>;

    /// Makes all that the tier holds in volatile memory durable, its map included.
    fn sync(&self) -> Result<(), TierError>;

    /// As [`PageTier::sync`], but what needs no log from before `before` may stay in volatile
    /// memory: [`PageTier::oldest_needed_lsn`] counts it.
    fn settle(&self, _before: Lsn) -> Result<(), TierError> {
        self.sync()
    }

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
