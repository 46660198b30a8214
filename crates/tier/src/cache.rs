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
//! directory stripes → `pending`; `recent`, `segments`, `kept`, `scratch` and `read_staging` are
//! leaves. A thread may hold the store's `order` when it takes leaves: publishing invalidates
//! images under `order`. Readers take leaves, and `open` shared.
//!
//! Foreground work: the thread that fills a group writes it. Before the next page it reads one
//! group, writes back at most that group's pages, and waits for one log flush. Once in many groups
//! it writes, with no lock held, a segment of the directory.
//!
//! Failures: a dirty image that has become unreadable is given up, and from then on its page reads
//! as lost (`lost.rs`). In write-back mode a failed write ends all writing until the database is
//! opened again; reads of pages that the store has, too, continue. In write-through mode the cache
//! is given up and the engine continues without it.

mod balance;
mod check;
mod clean_ahead;
mod create;
mod directory;
mod geometry;
mod group;
mod invariants;
mod kept;
mod lacking;
mod leave;
mod lost;
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
mod shadows_past;
mod shape;
mod state;
#[cfg(test)]
mod tests;
mod transfer;
mod versions;
mod word;
mod write;

pub use create::Face;
pub use shape::CacheShape;
pub use state::FlashCache;

use crate::error::TierError;
use crate::page_cache::drive_times::{CacheSizes, DriveTimes};
use crate::page_cache::header::CacheHeader;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::statistics::CacheStatistics;
use crate::page_cache::{CacheKind, CacheState, Cached, PageCache, RebuildFrom};
use crate::page_reads::PageReads;
use crate::page_tier::{Allocation, PageRead, PageTier, PageWrite, Whereabouts};
use directory::Directory;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{DatabaseId, Lsn, PageId, Progress};
use firndb_device::Device;
use firndb_log::{Appended, LogError, Record};
use versions::Versions;

/// The database that the device's flash cache belongs to, by either copy of its header; `None` if
/// it holds no readable one.
#[must_use]
pub fn owner(device: &dyn Device) -> Option<DatabaseId> {
    CacheHeader::owner(device)
}

impl PageTier for FlashCache {
    crate::forward_tier!(store: reserve, unreserve, prepare, statistics, next_reads);
    fn page_size(&self) -> usize {
        self.geometry.page_size
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.read_batch(reads);
    }
    fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        self.begin_reads(reads, pages);
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.store.whereabouts(pages, found);
        for (page, found) in pages.iter().zip(found) {
            if self.hit(*page).is_some() {
                *found = Whereabouts::Cache;
            }
        }
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.write_batch(writes);
    }
    fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        self.write_shadows(writes);
    }
    fn make_batch_space(&self) -> usize {
        self.make_batch_space()
    }
    fn wants_clean(&self) -> bool {
        !self.is_lost() && !self.is_leaving()
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
    fn settle(&self, before: Lsn) -> Result<(), TierError> {
        self.write_open_group()?;
        self.store.settle(before)
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
        if cfg!(debug_assertions) {
            self.check_memory();
        }
    }
    fn check_memory(&self) {
        if !self.is_lost() {
            self.check_ring(&self.ring.lock());
        }
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
    fn weigh(&self, times: &dyn Fn(CacheSizes) -> DriveTimes) {
        FlashCache::weigh(self, times);
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
    fn kind(&self) -> Arc<dyn CacheKind> {
        Arc::new(Face)
    }
    fn policy(&self) -> Option<CachePolicy> {
        Some(self.policy)
    }
    fn is_dispensable(&self) -> bool {
        self.is_write_through()
    }
    fn forget_dirty_images(&self) {
        self.forget_dirty_images();
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
