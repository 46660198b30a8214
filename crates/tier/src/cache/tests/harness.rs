//! A cache over a store, both on devices in memory, and the log of the store's tests.

use crate::cache::FlashCache;
use crate::error::TierError;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{CacheOptions, PageCache};
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::{Policy, Store};
use crate::testing::Took;
pub(crate) use crate::testing::small_store::{
    CACHE, DATABASE, LAYOUT, PAGE_SIZE, POLICY, TestLog, image, offer, offer_one, options, publish_in, read,
    site,
};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{Device, MemoryDevice};
use firndb_log::LogClass;
use std::collections::BTreeMap;

/// The devices and their contents.
pub(crate) struct Rig {
    pub(crate) log: Arc<TestLog>,
    pub(crate) store_device: Arc<MemoryDevice>,
    pub(crate) cache_device: Arc<MemoryDevice>,
    pub(crate) store: Arc<Store>,
    pub(crate) cache: FlashCache,
    /// The newest version of each page that was written.
    pub(crate) written: BTreeMap<PageId, Lsn>,
}

/// Eleven groups of four pages, by default.
pub(crate) fn small() -> CacheOptions {
    CacheOptions { bytes: 70_000, group_pages: 4, ..CacheOptions::new(0) }
}

impl Rig {
    pub(crate) fn new(chosen: CacheOptions) -> Rig {
        Rig::with(chosen, |device| device)
    }

    /// As `new`, with the cache's device wrapped.
    pub(crate) fn with(chosen: CacheOptions, wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>) -> Rig {
        Rig::under(POLICY, chosen, wrap)
    }

    /// As `with`, over a store with this policy.
    pub(crate) fn under(
        policy: Policy,
        chosen: CacheOptions,
        wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> Rig {
        let log = TestLog::new();
        let store_device = Arc::new(MemoryDevice::new("store"));
        let cache_device = Arc::new(MemoryDevice::new("cache"));
        let store = Store::create_with(store_device.clone(), DATABASE, options(), LAYOUT, policy).unwrap();
        store.attach_journal(log.clone());
        let store = Arc::new(store);
        let cache = FlashCache::create(site(wrap(cache_device.clone()), store.clone()), chosen).unwrap();
        Rig { log, store_device, cache_device, store, cache, written: BTreeMap::new() }
    }

    /// Opens copies of what the devices hold now, after a crash with all of the log durable and
    /// redone.
    pub(crate) fn reopened(&self, policy: CachePolicy) -> Result<(Arc<Store>, FlashCache), TierError> {
        let durable = self.cache.state().durable;
        let cache_device = Arc::new(self.cache_device.duplicate());
        self.reopened_on(cache_device, policy, durable)
    }

    pub(crate) fn reopened_on(
        &self,
        cache_device: Arc<dyn Device>,
        policy: CachePolicy,
        durable: u64,
    ) -> Result<(Arc<Store>, FlashCache), TierError> {
        self.reopened_with(TestLog::with(self.log.records()), cache_device, policy, durable)
    }

    /// As `reopened_on`, with the log to go on with.
    pub(crate) fn reopened_with(
        &self,
        log_after: Arc<TestLog>,
        cache_device: Arc<dyn Device>,
        policy: CachePolicy,
        durable: u64,
    ) -> Result<(Arc<Store>, FlashCache), TierError> {
        let store_device = Arc::new(self.store_device.duplicate());
        let store = Arc::new(Store::open_with(store_device, DATABASE, options(), POLICY)?);
        let log = Lsn::FIRST..self.log.end();
        let cache = FlashCache::open(site(cache_device, store.clone()), policy, durable, log.clone())?;
        for logged in self.log.records().iter().filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
            store.redo(logged.lsn, logged.record())?;
            cache.redo(logged.lsn, logged.record())?;
        }
        store.finish_redo(log.end)?;
        store.attach_journal(log_after);
        Ok((store, cache))
    }

    pub(crate) fn allocate(&self, count: usize) -> Vec<PageId> {
        let pages: Vec<PageId> = (0..count).map(|_| self.cache.reserve(LogClass::Normal).unwrap()).collect();
        self.publish(&pages, &[]);
        pages
    }
    pub(crate) fn publish(&self, allocate: &[PageId], free: &[PageId]) {
        publish_in(&self.cache, allocate, free, &mut |record| self.log.append(record)).unwrap();
    }

    /// Gives each page a new version and writes it, as the buffer would.
    pub(crate) fn write(&mut self, pages: &[PageId]) -> Vec<Result<Took, TierError>> {
        let versions: Vec<Lsn> = pages.iter().map(|_| self.log.tick()).collect();
        if let Some(newest) = versions.last() {
            self.log.flush(Lsn(newest.0 + 1)).unwrap();
        }
        let outcomes = self.offer(pages, &versions, true);
        for ((page, version), outcome) in pages.iter().zip(versions).zip(&outcomes) {
            if *outcome == Ok(Took::Taken) {
                self.written.insert(*page, version);
            }
        }
        outcomes
    }

    /// Offers pages in the versions given, clean or dirty.
    pub(crate) fn offer(
        &self,
        pages: &[PageId],
        versions: &[Lsn],
        dirty: bool,
    ) -> Vec<Result<Took, TierError>> {
        offer(&self.cache, pages, versions, dirty)
    }

    /// Compares every page ever written with what is read.
    pub(crate) fn compare(&self) {
        compare(&self.cache, &self.written);
    }
}

/// Compares pages with what `cache` returns.
pub(crate) fn compare(cache: &FlashCache, written: &BTreeMap<PageId, Lsn>) {
    for (page, version) in written {
        let (found, bytes) = read(cache, *page).unwrap();
        assert_eq!(found.0, *version, "{page}");
        assert!(bytes == image(*page, *version), "{page} has other bytes than its version {version}");
    }
}
