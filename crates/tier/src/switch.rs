//! The store, with or without a cache over it, which may change while the engine runs.
//!
//! Every call of [`PageTier`] holds the latch shared for as long as it takes, I/O included; who changes the cache holds it
//! exclusively: then no page is on its way anywhere below DRAM, and what was decided about the new state (the superblock
//! lists the cache, or does not) holds from before the first call that sees it.
//!
//! Locks: the latch comes after page latches and before all locks of caches and store. No call is made through the switch
//! from within another: a writer that waits keeps readers out.

use crate::ranks;
use crate::store::Store;
use crate::{Allocation, PageCache, PageRead, PageTier, PageWrite, TierError, TierStatistics};
use firn_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firn_base::sync::{Arc, RwLock};
use firn_base::{Lsn, PageId, Progress};
use firn_log::{Appended, LogClass, LogError, Record};

/// The tier below DRAM of one database.
pub struct CacheSwitch {
    store: Arc<Store>,
    cache: RwLock<Option<Arc<dyn PageCache>>>,
    /// What the cache answers, without the latch: the buffer asks for every frame that its clock passes.
    wants_clean: AtomicBool,
}

impl CacheSwitch {
    /// Over `store`, with `cache` if there is one.
    #[must_use]
    pub fn new(store: Arc<Store>, cache: Option<Arc<dyn PageCache>>) -> CacheSwitch {
        let wants_clean = AtomicBool::new(cache.as_ref().is_some_and(|cache| cache.wants_clean()));
        CacheSwitch { store, cache: ranks::SWITCH.rwlock(cache), wants_clean }
    }

    /// The cache, now.
    #[must_use]
    pub fn cache(&self) -> Option<Arc<dyn PageCache>> {
        self.cache.read().clone()
    }

    /// Changes the cache, with no other call under way: `change` is shown the one there is and answers the one there is
    /// to be. If it fails, nothing changes.
    pub fn change<E>(
        &self,
        change: impl FnOnce(Option<&Arc<dyn PageCache>>) -> Result<Option<Arc<dyn PageCache>>, E>,
    ) -> Result<(), E> {
        let mut cache = self.cache.write();
        *cache = change(cache.as_ref())?;
        self.wants_clean.store(cache.as_ref().is_some_and(|cache| cache.wants_clean()), Relaxed);
        Ok(())
    }

    /// A piece of the cache's background work.
    pub fn step(&self) -> Result<Progress, TierError> {
        self.cache.read().as_ref().map_or(Ok(Progress::Idle), |cache| cache.step())
    }

    /// A piece of the cache's leaving ([`PageCache::leave_step`]).
    pub fn leave_step(&self) -> Result<Progress, TierError> {
        self.cache.read().as_ref().map_or(Ok(Progress::Idle), |cache| cache.leave_step())
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
    fn page_size(&self) -> usize {
        self.store.page_size()
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.with(|tier| tier.read_batch(reads));
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.with(|tier| tier.write_batch(writes));
    }
    fn preferred_batch(&self) -> usize {
        self.with(|tier| tier.preferred_batch())
    }
    fn wants_clean(&self) -> bool {
        self.wants_clean.load(Relaxed)
    }
    fn reserve(&self, class: LogClass) -> Result<PageId, TierError> {
        self.with(|tier| tier.reserve(class))
    }
    fn unreserve(&self, page: PageId) {
        self.with(|tier| tier.unreserve(page));
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.with(|tier| tier.publish(change, append))
    }
    fn sync(&self) -> Result<(), TierError> {
        self.with(|tier| tier.sync())
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.with(|tier| tier.version_of(page))
    }
    fn has_change(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        self.with(|tier| tier.has_change(page, lsn))
    }
    fn page_is_lost(&self, page: PageId) -> bool {
        self.with(|tier| tier.page_is_lost(page))
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        self.with(|tier| tier.oldest_needed_lsn())
    }
    fn statistics(&self) -> TierStatistics {
        self.store.statistics()
    }
}

impl std::fmt::Debug for CacheSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheSwitch").field("cached", &self.cache.read().is_some()).finish_non_exhaustive()
    }
}
