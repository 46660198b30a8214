//! The small store of the tier's tests, under a comparator.

use firndb_base::sync::Arc;
use firndb_device::{Device, MemoryDevice};
use firndb_tier::store::{Journal, Store};
use firndb_tier::testing::small_store::{self, DATABASE, LAYOUT, POLICY, TestLog, options};
use firndb_tier::{CacheSite, PageCache, TierError};

/// A store and its log.
pub(crate) struct Below {
    pub(crate) log: Arc<TestLog>,
    pub(crate) store: Arc<Store>,
    device: Arc<MemoryDevice>,
}

impl Below {
    pub(crate) fn new() -> Below {
        let log = TestLog::new();
        let device = Arc::new(MemoryDevice::new("store"));
        let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, POLICY).unwrap();
        store.attach_journal(log.clone());
        Below { log, store: Arc::new(store), device }
    }

    /// A cache on `device` over this store.
    pub(crate) fn site(&self, device: Arc<dyn Device>) -> CacheSite {
        small_store::site(device, self.store.clone())
    }

    /// A copy of the store after a crash with all of the log durable and redone, under the cache
    /// that `open` opens.
    pub(crate) fn reopened<C: PageCache>(
        &self,
        device: Arc<dyn Device>,
        open: impl FnOnce(CacheSite) -> Result<C, TierError>,
    ) -> Result<C, TierError> {
        let store_device = Arc::new(self.device.duplicate());
        let store = Arc::new(Store::open_with(store_device, DATABASE, options(), POLICY)?);
        let cache = open(CacheSite { store: store.clone(), ..self.site(device) })?;
        let records = self.log.records();
        for logged in records.iter().filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
            store.redo(logged.lsn, logged.record())?;
            cache.redo(logged.lsn, logged.record())?;
        }
        let log = TestLog::with(records);
        store.finish_redo(log.durable())?;
        store.attach_journal(log);
        Ok(cache)
    }
}
