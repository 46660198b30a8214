//! The flash cache: FaCE (Kang, Lee, Moon, "Flash-Based Extended Cache for Higher Throughput and
//! Faster Recovery", VLDB 2012) as a tier over the store. See `docs/internals/cache.md`; the bytes
//! are in `docs/format/cache.md`.
//!
//! Pages enter when they leave DRAM, clean and dirty, and lie in the order of arrival in a ring of
//! *groups*: multi-version FIFO. The ring may hold several versions of a page, of which the last is
//! valid. When a group is replaced, its dirty valid images are written to the store. Every write is
//! a whole group; groups are written in order.
//!
//! Invariants:
//! * A page's valid image in the directory is its newest version below DRAM. A page without one has
//!   its newest version in the store.
//! * A group's header names the *front*. No group at or behind the front that a durable header
//!   named is ever overwritten; and a group is written only after an earlier durable group has
//!   named a front past what the write destroys (`front + groups >= serial + 2`).
//! * Before a front is written that passes an image, that image is in the store and its map record
//!   durable, or in a younger group (this one at the latest), or replaced by a newer one there, or
//!   made invalid by log that is durable.
//! * One group is written at a time, so that only the last one can be torn. It counts whole or not
//!   at all, and the log is kept for what only this group has until the group is durable
//!   (`pending.rs`).
//! * A read is accepted only if its seal matches: page, serial, version, checksum (`directory.rs`).
//!
//! Locks, in order, after page latches: `passing` (held during I/O) → `ring` (held during I/O of
//! the cache and the store by the thread that fills groups) → the store's and the log's → `open` →
//! directory stripes → `pending`; `recent`, `segments` and `scratch` are leaves. A thread may hold
//! the store's `order` when it takes leaves: publishing invalidates images under `order`. Readers
//! take leaves, and `open` shared.
//!
//! Foreground work: the thread that fills a group writes it. Before the next page it reads one
//! group, writes back at most that group's pages, and waits for one log flush. Once in many groups
//! it writes, with no lock held, a segment of the directory.
//!
//! Failures: a dirty image that has become unreadable is given up, and from then on its page reads
//! as lost (`lost.rs`). In write-back mode a failed write ends all writing until the database is
//! opened again; reads of pages that the store has, too, continue. In write-through mode the cache
//! is given up and the engine continues without it.

mod check;
mod clean_ahead;
mod create;
mod directory;
mod geometry;
mod group;
mod header;
mod lazy_cleaning;
mod leave;
mod lost;
mod on_entry;
mod open_group;
mod pending;
mod policy;
mod read;
mod rebuild;
mod redo;
mod replace;
mod restore;
mod segment;
mod shadow;
mod statistics;
#[cfg(test)]
mod tests;
mod versions;
mod write;

pub use create::{CacheOptions, CacheState};
pub use header::{CacheId, CacheShape};
pub use lazy_cleaning::LazyCleaning;
pub use on_entry::EntryCache;
pub use policy::CachePolicy;
pub use statistics::{CacheStatistics, WRITE_SIZES};

use crate::store::Store;
use crate::{
    Allocation, Cached, PageCache, PageRead, PageTier, PageWrite, Prepared, RebuildFrom, TierError,
    TierErrorKind, TierStatistics,
};
use directory::Directory;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex, OnceLock, RwLock};
use firndb_base::{DatabaseId, Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, Device};
use firndb_log::{Appended, LogClass, LogError, Record};
use geometry::{Geometry, Serial};
use header::Header;
use open_group::OpenGroup;
use pending::Pending;
use policy::CachePolicy as Policy;
use rebuild::Lacking;
use segment::{Segment, SegmentBuilder};
use shadow::ShadowEntries;
use statistics::Counters;
use std::collections::BTreeSet;
use versions::Versions;

/// FaCE's flash cache on one device, over a store.
pub struct FlashCache {
    device: Arc<dyn Device>,
    store: Arc<Store>,
    header: Header,
    geometry: Geometry,
    policy: Policy,
    directory: Directory,
    /// In write-through mode, held shared while pages go first to the store and then to the cache.
    /// An exclusive holder sees no page between the two.
    passing: RwLock<()>,
    /// Serializes the threads that fill, replace and write groups.
    ring: Mutex<Ring>,
    /// The group being filled. Written by the holder of `ring` only.
    open: RwLock<OpenGroup>,
    /// Serial of the group being filled, for readers; changes under `open`.
    rear: AtomicU64,
    pending: Mutex<Pending>,
    /// Versions known without a read, during recovery.
    recent: Mutex<Versions>,
    /// Freed pages of which recovery removed images from the directory.
    freed_in_redo: Mutex<BTreeSet<PageId>>,
    /// Complete segments of the directory; written by a thread that holds no lock.
    segments: Mutex<Vec<Segment>>,
    /// Serial of the last durable group.
    durable: AtomicU64,
    /// Why nothing more may be written, once a write has failed.
    poison: OnceLock<String>,
    /// The cache was given up, in write-through mode.
    lost: AtomicBool,
    /// Pages, since opening, of which the only newest image could not be read.
    lost_pages: Mutex<BTreeSet<PageId>>,
    /// Which changes in dirty images the store lacks, if they are tracked.
    lacking: OnceLock<Lacking>,
    /// The cache takes nothing in any more. Changes under `ring`.
    leaving: AtomicBool,
    /// Reusable read buffers.
    scratch: Mutex<Vec<AlignedBuf>>,
    counters: Counters,
}

/// The sequence of groups.
pub(crate) struct Ring {
    /// Oldest group that is still needed.
    front: Serial,
    /// The group being filled.
    rear: Serial,
    /// End of the map records of pages written to the store: the log is durable to here before the
    /// next group is written.
    written_back_end: Lsn,
    segment: SegmentBuilder,
    /// Pages not admitted, or replaced, lately, if clean pages are admitted selectively.
    shadow: Option<ShadowEntries>,
    /// Buffer to read a group that is replaced.
    scratch: AlignedBuf,
}

/// The database that the device's flash cache belongs to, by either copy of its header; `None` if
/// it holds no readable one.
#[must_use]
pub fn owner(device: &dyn Device) -> Option<DatabaseId> {
    header::Header::owner(device)
}

impl FlashCache {
    fn is_write_through(&self) -> bool {
        self.header.write_through
    }
    fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
    fn rear(&self) -> Serial {
        Serial(self.rear.load(Relaxed))
    }

    /// Returns an error if an earlier write failed.
    fn check_poison(&self) -> Result<(), TierError> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(TierError::new(
                TierErrorKind::Failed,
                format!(
                    "the flash cache takes nothing more until the database is opened again, because: {cause}"
                ),
            )),
        }
    }

    /// Handles a failed write. What of it is in memory stays readable there. In write-back mode the
    /// dirty images on the device are the only copies, so the cache may promise nothing more. In
    /// write-through mode the engine continues without the cache.
    fn give_up(&self, cause: TierError) -> TierError {
        if self.is_write_through() {
            self.lost.store(true, Relaxed);
        } else {
            let _ = self.poison.set(cause.message.clone());
        }
        cause
    }

    /// Number of pages in the group being filled.
    #[cfg(test)]
    pub(crate) fn open_pages(&self) -> usize {
        self.open.read().entries.len()
    }
    /// Offset of a block that holds only bytes of the page's image.
    #[cfg(test)]
    pub(crate) fn image_offset(&self, page: PageId) -> Option<u64> {
        self.hit(page).map(|hit| self.reach(hit).offset + self.geometry.block as u64)
    }
    /// Offset on the device of the first group.
    #[cfg(test)]
    pub(crate) fn groups_begin(&self) -> u64 {
        self.geometry.group_offset(Serial(0))
    }

    fn take_scratch(&self, bytes: usize) -> AlignedBuf {
        let kept = self.scratch.lock().pop();
        kept.filter(|buf| buf.len() >= bytes).unwrap_or_else(|| AlignedBuf::zeroed(bytes))
    }
    fn keep_scratch(&self, bufs: impl IntoIterator<Item = AlignedBuf>) {
        /// Roughly the number of threads that may read at once.
        const KEPT: usize = 16;
        let mut scratch = self.scratch.lock();
        for buf in bufs {
            if scratch.len() < KEPT {
                scratch.push(buf);
            }
        }
    }
}

impl PageTier for FlashCache {
    fn page_size(&self) -> usize {
        self.geometry.page_size
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.read_batch(reads);
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.write_batch(writes);
    }
    fn make_batch_space(&self) -> usize {
        self.make_batch_space()
    }
    fn wants_clean(&self) -> bool {
        !self.is_lost() && !self.is_leaving()
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.store.reserve(class)
    }
    fn unreserve(&self, page: PageId) {
        self.store.unreserve(page);
    }
    fn prepare(&self, pages: &[PageId]) -> Result<Prepared<'_>, TierError> {
        self.store.prepare(pages)
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        // Under the store's `order`: a thread that finds a page unallocated also finds noted the
        // log position that made it so.
        self.store.publish(change, &mut |record| {
            let appended = append(record)?;
            self.invalidate(change.free.iter().chain(change.allocate), appended);
            Ok(appended)
        })
    }
    fn sync(&self) -> Result<(), TierError> {
        self.write_open_group()?;
        self.store.sync()
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.version_of(page)
    }
    fn has_change_for_sure(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        self.has_change_for_sure(page, lsn)
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.hit(page).is_none() && self.store.page_is_lost(page)
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        let store = self.store.oldest_needed_lsn();
        let here = if self.is_lost() { None } else { self.pending.lock().needed_from() };
        store.into_iter().chain(here).min()
    }
    fn statistics(&self) -> TierStatistics {
        self.store.statistics()
    }
}

impl PageCache for FlashCache {
    fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        self.redo(lsn, record)
    }
    fn cached(&self, page: PageId) -> Cached {
        match self.hit(page) {
            None => Cached::No,
            Some(_) => self.recent.lock().of(page).map_or(Cached::Somehow, Cached::As),
        }
    }
    fn versions_known(&self) -> u64 {
        self.recent.lock().len() as u64
    }
    fn end_recovery(&self) {
        *self.recent.lock() = Versions::unknown();
        self.freed_in_redo.lock().clear();
    }
    fn state(&self) -> CacheState {
        CacheState { durable: self.durable.load(Relaxed), lost: self.is_lost() }
    }
    fn absorbs_checkpoints(&self) -> bool {
        !self.is_write_through() && !self.is_lost() && !self.is_leaving()
    }
    fn step(&self) -> Result<Progress, TierError> {
        self.step()
    }
    fn set_leaving(&self, leaving: bool) {
        FlashCache::set_leaving(self, leaving);
    }
    fn leave_step(&self) -> Result<Progress, TierError> {
        self.leave_step()
    }
    fn keep_rebuildable(&self, from: Option<Lsn>) {
        self.keep_rebuildable(from);
    }
    fn rebuild_from(&self) -> RebuildFrom {
        self.rebuild_from()
    }
    fn write_back_before(&self, lsn: Lsn) -> Result<(), TierError> {
        self.write_back_before(lsn)
    }
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        self.check(fault)
    }
    fn policy(&self) -> Option<CachePolicy> {
        Some(self.policy)
    }
    fn cache_statistics(&self) -> CacheStatistics {
        let (pages_valid, pages_dirty) = self.directory.counts();
        let used = self.open.read().entries.len() as u64;
        CacheStatistics {
            slots: self.geometry.slots() as u64,
            slots_used: used + self.directory_used(),
            pages_valid,
            pages_dirty,
            directory_bytes: Directory::memory_bytes(self.geometry.slots()) as u64,
            write_through: self.is_write_through(),
            lost: self.is_lost(),
            leaving: self.is_leaving(),
            ..self.counters.read()
        }
    }
}

impl std::fmt::Debug for FlashCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashCache").field("header", &self.header).finish_non_exhaustive()
    }
}
