//! The flash cache: FaCE (Kang, Lee, Moon, "Flash-Based Extended Cache for Higher Throughput and Faster
//! Recovery", VLDB 2012) as a tier over the store. See `docs/cache.md`; the bytes are in `docs/format/cache.md`.
//!
//! Pages enter when they leave DRAM, clean and dirty, and lie in the order of their coming in a ring of *groups*:
//! multi-version FIFO. A page may be there in several versions, of which the last is valid; when a group is
//! replaced, what is dirty and valid goes to the store. All writes are groups, one after the other.
//!
//! Invariants:
//! * A page's valid image in the directory is its newest version below DRAM. Without one, the store has it.
//! * A group's header names the *front*. No group at or behind the front that a durable header named is ever
//!   overwritten; and a group is written only after one before it, durable, has named a front past what the
//!   writing destroys (`front + groups >= serial + 2`).
//! * Before a front is written that passes an image, that image is in the store and its map record durable, or
//!   in a younger group (this one at the latest), or replaced by a newer one there, or made invalid by log
//!   that is durable.
//! * One group is written at a time, so that only the last one can be torn; it counts whole or not at all, and
//!   the log is kept for what is only in it until it is durable (`pending.rs`).
//! * No read is believed but by its seal: page, serial, version, checksum (`directory.rs`).
//!
//! Locks, in order, after page latches: `passing` (held during I/O) → `ring` (held during I/O of the cache and the store, by whoever fills
//! groups) → the store's and the log's → `open` → directory stripes → `pending`; `recent`, `segments` and `scratch` are leaves. The store's `order` may be
//! held when leaves are taken: publishing kills under it. Readers take leaves and `open` shared.
//!
//! Work in the foreground: who fills a group writes it, and before the next page reads one group, writes back at most its
//! pages, and waits for one log flush. Once in many groups, outside of all locks, a segment of the directory is written.
//!
//! How it fails: a dirty image that cannot be read any more is given up, and its page says so from then on (`lost.rs`).
//! In write-back mode a failed write ends all writing until the database is opened again; reads of
//! pages that the store has too go on. In write-through mode the cache is given up and the engine goes on.

mod check;
mod clean_ahead;
mod create;
mod directory;
mod geometry;
mod ghosts;
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
    Allocation, Cached, PageCache, PageRead, PageTier, PageWrite, RebuildFrom, TierError, TierErrorKind,
    TierStatistics,
};
use directory::Directory;
use firn_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use firn_base::sync::{Arc, Mutex, OnceLock, RwLock};
use firn_base::{Lsn, PageId, Progress};
use firn_device::{AlignedBuf, Device};
use firn_log::{Appended, LogClass, LogError, Record};
use geometry::{Geometry, Serial};
use ghosts::Ghosts;
use header::Header;
use open_group::OpenGroup;
use pending::Pending;
use policy::CachePolicy as Policy;
use rebuild::Lacking;
use segment::{Segment, SegmentBuilder};
use statistics::Counters;
use std::collections::BTreeSet;
use versions::Versions;

/// FaCE's cache on one device, over a store.
pub struct FlashCache {
    device: Arc<dyn Device>,
    store: Arc<Store>,
    header: Header,
    geometry: Geometry,
    policy: Policy,
    directory: Directory,
    /// In write-through mode, held shared while pages go first to the store and then here. Who has it alone sees no page
    /// between the two.
    passing: RwLock<()>,
    /// Protects the order of groups: who fills, replaces and writes them.
    ring: Mutex<Ring>,
    /// The group being filled. Written by the holder of `ring` only.
    open: RwLock<OpenGroup>,
    /// Serial of the group being filled, for readers; changes under `open`.
    rear: AtomicU64,
    pending: Mutex<Pending>,
    /// Versions known without a read, while recovering.
    recent: Mutex<Versions>,
    /// Segments of the directory to be written by whoever holds no lock.
    segments: Mutex<Vec<Segment>>,
    /// Serial of the last durable group.
    durable: AtomicU64,
    /// Why nothing more may be written.
    poison: OnceLock<String>,
    /// Given up, in write-through mode.
    lost: AtomicBool,
    /// Pages whose only newest image could not be read, since opening.
    lost_pages: Mutex<BTreeSet<PageId>>,
    /// What the store lacks of dirty images, if that is to be known.
    lacking: OnceLock<Lacking>,
    /// Takes nothing in any more: changes under `ring`.
    leaving: AtomicBool,
    /// Buffers for reads; a few are kept.
    scratch: Mutex<Vec<AlignedBuf>>,
    counters: Counters,
}

/// The order of groups.
pub(crate) struct Ring {
    /// Oldest group that is needed.
    front: Serial,
    /// The group being filled.
    rear: Serial,
    /// Map records of pages written to the store end here: durable before the next group is written.
    written_back_end: Lsn,
    segment: SegmentBuilder,
    /// Pages turned away or given up lately, if clean pages are taken selectively.
    ghosts: Option<Ghosts>,
    /// For reading a group that is replaced.
    scratch: AlignedBuf,
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

    /// Fails if an earlier write failed.
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

    /// The device failed a write. What is in memory of it stays readable there; what is dirty on it is the only
    /// copy, so nothing more may be promised. Without such copies the engine goes on without the cache.
    fn give_up(&self, cause: TierError) -> TierError {
        if self.is_write_through() {
            self.lost.store(true, Relaxed);
        } else {
            let _ = self.poison.set(cause.message.clone());
        }
        cause
    }

    /// Pages in the group being filled.
    #[cfg(test)]
    pub(crate) fn open_pages(&self) -> usize {
        self.open.read().entries.len()
    }
    /// A block that has bytes of the page's image only.
    #[cfg(test)]
    pub(crate) fn image_offset(&self, page: PageId) -> Option<u64> {
        self.hit(page).map(|hit| self.reach(hit).offset + self.geometry.block as u64)
    }
    /// Where the groups begin on the device.
    #[cfg(test)]
    pub(crate) fn groups_begin(&self) -> u64 {
        self.geometry.group_offset(Serial(0))
    }

    fn take_scratch(&self, bytes: usize) -> AlignedBuf {
        let kept = self.scratch.lock().pop();
        kept.filter(|buf| buf.len() >= bytes).unwrap_or_else(|| AlignedBuf::zeroed(bytes))
    }
    fn keep_scratch(&self, bufs: impl IntoIterator<Item = AlignedBuf>) {
        /// As many as threads that may read at once, roughly.
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
        self.read_pages(reads);
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.write_pages(writes);
    }
    fn preferred_batch(&self) -> usize {
        self.room()
    }
    fn wants_clean(&self) -> bool {
        // Offered for nothing while the cache leaves: the answer is one for each cache.
        true
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.store.reserve(class)
    }
    fn unreserve(&self, page: PageId) {
        self.store.unreserve(page);
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        // Within the store's `order`: see `oldest_needed_lsn`.
        self.store.publish(change, &mut |record| {
            let appended = append(record)?;
            self.kill(change.free.iter().chain(change.allocate), appended);
            Ok(appended)
        })
    }
    fn sync(&self) -> Result<(), TierError> {
        self.write_open_group()?;
        self.store.sync()
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.newest_version(page)
    }
    fn has_change(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        self.may_lack_change(page, lsn)
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.hit(page).is_none() && self.store.page_is_lost(page)
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        // The store's first: it waits for whoever is appending a record that frees pages, and the images that
        // became invalid by it are pending when that one lets go of the store's `order`.
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
        self.redo_record(lsn, record)
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
    }
    fn state(&self) -> CacheState {
        CacheState { durable: self.durable.load(Relaxed), lost: self.is_lost() }
    }
    fn absorbs_checkpoints(&self) -> bool {
        !self.is_write_through() && !self.is_lost() && !self.is_leaving()
    }
    fn step(&self) -> Result<Progress, TierError> {
        self.clean_ahead()
    }
    fn set_leaving(&self, leaving: bool) {
        FlashCache::set_leaving(self, leaving);
    }
    fn leave_step(&self) -> Result<Progress, TierError> {
        self.leave_group()
    }
    fn keep_rebuildable(&self, from: Option<Lsn>) {
        self.begin_lacking(from);
    }
    fn rebuild_from(&self) -> RebuildFrom {
        self.lacking_from()
    }
    fn write_back_before(&self, lsn: Lsn) -> Result<(), TierError> {
        self.write_back_lacking(lsn)
    }
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        self.check_images(fault)
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
