//! FaCE as published (VLDB 2012): Firn's cache without its write-back ahead of the front. All is
//! written back by the thread that replaces a group. The bytes on flash are the same.

use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_log::Record;
use firndb_tier::cache::{Face, FlashCache};
use firndb_tier::page_cache::policy::CachePolicy;
use firndb_tier::page_cache::statistics::CacheStatistics;
use firndb_tier::{
    CacheKind, CacheOptions, CacheSite, CacheState, Cached, PageCache, PageRead, PageTier, RebuildFrom,
    TierError, forward_tier,
};
use std::ops::Range;

/// FaCE as published, as a kind of cache.
#[derive(Clone, Copy, Debug)]
pub struct PaperFace;

impl CacheKind for PaperFace {
    fn name(&self) -> &'static str {
        "facepaper"
    }
    fn check(&self, options: &CacheOptions, page_size: usize, block: usize) -> Result<(), TierError> {
        Face.check(options, page_size, block)
    }
    fn create(&self, site: CacheSite, options: CacheOptions) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(Arc::new(PaperCache(FlashCache::create(site, options)?)))
    }
    fn open(
        &self,
        site: CacheSite,
        policy: CachePolicy,
        durable: u64,
        log: Range<Lsn>,
    ) -> Result<Arc<dyn PageCache>, TierError> {
        Ok(Arc::new(PaperCache(FlashCache::open(site, policy, durable, log)?)))
    }
}

/// Firn's cache, of which the background steps do nothing.
struct PaperCache(FlashCache);

impl PageTier for PaperCache {
    forward_tier!(0: page_size, whereabouts, write_batch, make_batch_space, wants_clean, reserve);
    forward_tier!(0: unreserve, prepare, publish, sync, settle, version_of, has_change_for_sure);
    forward_tier!(0: page_is_lost, oldest_needed_lsn, statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        PageTier::read_batch(&self.0, reads);
    }
}

impl PageCache for PaperCache {
    fn step(&self) -> Result<Progress, TierError> {
        Ok(Progress::Idle)
    }
    fn kind(&self) -> Arc<dyn CacheKind> {
        Arc::new(PaperFace)
    }
    fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        PageCache::redo(&self.0, lsn, record)
    }
    fn cached(&self, page: PageId) -> Cached {
        self.0.cached(page)
    }
    fn versions_known(&self) -> u64 {
        self.0.versions_known()
    }
    fn end_recovery(&self) {
        self.0.end_recovery();
    }
    fn state(&self) -> CacheState {
        self.0.state()
    }
    fn absorbs_checkpoints(&self) -> bool {
        self.0.absorbs_checkpoints()
    }
    fn set_leaving(&self, leaving: bool) {
        PageCache::set_leaving(&self.0, leaving);
    }
    fn leave_step(&self) -> Result<Progress, TierError> {
        PageCache::leave_step(&self.0)
    }
    fn keep_rebuildable(&self, from: Option<Lsn>) {
        PageCache::keep_rebuildable(&self.0, from);
    }
    fn rebuild_from(&self) -> RebuildFrom {
        PageCache::rebuild_from(&self.0)
    }
    fn write_back_before(&self, lsn: Lsn) -> Result<(), TierError> {
        PageCache::write_back_before(&self.0, lsn)
    }
    fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        PageCache::check(&self.0, fault)
    }
    fn check_memory(&self) {
        self.0.check_memory();
    }
    fn policy(&self) -> Option<CachePolicy> {
        self.0.policy()
    }
    fn is_dispensable(&self) -> bool {
        self.0.is_dispensable()
    }
    fn forget_dirty_images(&self) {
        PageCache::forget_dirty_images(&self.0);
    }
    fn cache_statistics(&self) -> CacheStatistics {
        self.0.cache_statistics()
    }
}
