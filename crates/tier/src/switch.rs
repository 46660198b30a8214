//! The store, with or without a cache over it, which may change while the engine runs.
//!
//! Every call of [`PageTier`] that moves pages or asks for them holds the latch shared for as long
//! as it takes, I/O included; a thread that changes the cache holds it exclusively: then no page is
//! on its way anywhere below DRAM, and what was decided about the new state (the superblock lists
//! the cache, or does not) holds from before the first call that sees it.
//!
//! Publications are made under page latches and must wait for no device, so they do not take that
//! latch: neither a change, which writes to cache and superblock, nor a read that a change waits
//! for, holds them up. They have a latch of their own, which a change takes only to put the new
//! cache into its place. Why they may go on during a change: all that a cache does with a
//! publication is to forget images. A cache that is being attached has none yet. One that is being
//! detached goes on getting them until it is out of its place, so that it has missed none if the
//! change fails.
//!
//! Locks: both latches come after page latches and before all locks of caches and store, that of
//! publications second. No call is made through the switch from within another: a writer that waits
//! keeps readers out.

use crate::error::TierError;
use crate::page_cache::PageCache;
use crate::page_reads::PageReads;
use crate::page_tier::{Allocation, PageRead, PageTier, PageWrite, Whereabouts};
use crate::ranks;
use crate::store::Store;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, RwLock};
use firndb_base::{Lsn, PageId, Progress};
use firndb_log::{Appended, LogClass, LogError, Record};

/// The tier below DRAM of one database.
pub struct CacheSwitch {
    store: Arc<Store>,
    cache: RwLock<Option<Arc<dyn PageCache>>>,
    /// The same, for publications. Changed only with `cache` held exclusively.
    publishing: RwLock<Option<Arc<dyn PageCache>>>,
    /// What the cache said last, without the latch: the buffer asks for every frame that its clock
    /// passes. Asked again whenever pages were written or background work was done, since a cache
    /// that was lost, or leaves, wants none.
    wants_clean: AtomicBool,
}

impl CacheSwitch {
    /// Over `store`, with `cache` if there is one.
    #[must_use]
    pub fn new(store: Arc<Store>, cache: Option<Arc<dyn PageCache>>) -> CacheSwitch {
        let wants_clean = AtomicBool::new(cache.as_ref().is_some_and(|cache| cache.wants_clean()));
        let publishing = ranks::PUBLISHING.rwlock(cache.clone());
        CacheSwitch { store, cache: ranks::SWITCH.rwlock(cache), publishing, wants_clean }
    }

    /// The cache, now.
    #[must_use]
    pub fn cache(&self) -> Option<Arc<dyn PageCache>> {
        self.cache.read().clone()
    }

    /// Changes the cache, with no other call under way but publications: `change` is shown the one
    /// there is and returns the one there is to be. If it fails, nothing changes.
    pub fn change<E>(
        &self,
        change: impl FnOnce(Option<&Arc<dyn PageCache>>) -> Result<Option<Arc<dyn PageCache>>, E>,
    ) -> Result<(), E> {
        let mut cache = self.cache.write();
        *cache = change(cache.as_ref())?;
        (*self.publishing.write()).clone_from(&cache);
        self.note_wants(cache.as_ref());
        Ok(())
    }

    /// Asks the cache whether it wants clean pages. Under the latch.
    fn note_wants(&self, cache: Option<&Arc<dyn PageCache>>) {
        let wants = cache.is_some_and(|cache| cache.wants_clean());
        if self.wants_clean.load(Relaxed) != wants {
            self.wants_clean.store(wants, Relaxed);
        }
    }

    /// Does a piece of the cache's work, if there is one.
    fn step_with(
        &self,
        work: impl FnOnce(&dyn PageCache) -> Result<Progress, TierError>,
    ) -> Result<Progress, TierError> {
        let cache = self.cache.read();
        let progress = cache.as_ref().map_or(Ok(Progress::Idle), |cache| work(&**cache));
        self.note_wants(cache.as_ref());
        progress
    }

    /// A piece of the cache's background work.
    pub fn step(&self) -> Result<Progress, TierError> {
        self.step_with(|cache| cache.step())
    }

    /// A piece of the cache's leaving ([`PageCache::leave_step`]).
    pub fn leave_step(&self) -> Result<Progress, TierError> {
        self.step_with(|cache| cache.leave_step())
    }

    /// Has the cache write back what it keeps old log for ([`PageCache::write_back_before`]).
    pub fn write_back_before(&self, lsn: Lsn) -> Result<(), TierError> {
        self.step_with(|cache| cache.write_back_before(lsn).map(|()| Progress::Worked)).map(drop)
    }

    /// Does something with whatever is uppermost.
    fn with<T>(&self, work: impl FnOnce(&dyn PageTier) -> T) -> T {
        match &*self.cache.read() {
            Some(cache) => work(&**cache),
            None => work(&*self.store),
        }
    }
}

impl PageTier for CacheSwitch {
    // The store alone does these. No cache knows of reserved pages.
    crate::forward_tier!(store: page_size, unreserve, prepare, statistics, wants_memory, take_memory);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.with(|tier| tier.read_batch(reads));
    }
    fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        self.with(|tier| tier.begin_reads(reads, pages));
    }
    /// What is under way was not in the cache when it began, whichever that was, and the store has
    /// it. So it does not matter that the cache may have changed since: the buffer brings a page in
    /// once at a time, and no newer version can have come.
    fn next_reads(&self, reads: &mut PageReads) -> bool {
        let _latch = self.cache.read();
        self.store.next_reads(reads)
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        self.with(|tier| tier.whereabouts(pages, found));
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        let cache = self.cache.read();
        match &*cache {
            Some(cache) => cache.write_batch(writes),
            None => self.store.write_batch(writes),
        }
        self.note_wants(cache.as_ref());
    }
    fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        self.with(|tier| tier.write_shadows(writes));
    }
    fn make_batch_space(&self) -> usize {
        self.with(|tier| tier.make_batch_space())
    }
    fn wants_clean(&self) -> bool {
        self.wants_clean.load(Relaxed)
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.with(|tier| tier.reserve(class))
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        match &*self.publishing.read() {
            Some(cache) => cache.publish(change, append),
            None => self.store.publish(change, append),
        }
    }
    fn sync(&self) -> Result<(), TierError> {
        self.with(|tier| tier.sync())
    }
    fn settle(&self, before: Lsn) -> Result<(), TierError> {
        self.with(|tier| tier.settle(before))
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.with(|tier| tier.version_of(page))
    }
    fn has_change_for_sure(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        self.with(|tier| tier.has_change_for_sure(page, lsn))
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.with(|tier| tier.page_is_lost(page))
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        self.with(|tier| tier.oldest_needed_lsn())
    }
}

impl std::fmt::Debug for CacheSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheSwitch").field("cached", &self.cache.read().is_some()).finish_non_exhaustive()
    }
}
