//! A read of one page allocates nothing in the tiers, if its map page is in memory: a page missing
//! in the buffer is the usual case of a database beyond memory. The allocator of this program
//! counts.

use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{AlignedBuf, Device, Fill, MemoryDevice};
use firndb_log::{Log, LogClass, Record};
use firndb_tier::cache::FlashCache;
use firndb_tier::page_cache::header::CacheId;
use firndb_tier::store::{Layout, Policy, Store, StoreOptions};
use firndb_tier::{
    Allocation, CacheOptions, CacheSite, CacheSwitch, Found, PageCache, PageRead, PageTier, PageWrite,
    TierError,
};
use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: MemoryLayout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE_SIZE: usize = 4096;
const DATABASE: DatabaseId = DatabaseId([3; 16]);

fn new_store() -> (Arc<Store>, Arc<Log>) {
    let log = firndb_log::testing::memory_log();
    let device = Arc::new(MemoryDevice::with("store", 4096, u64::MAX));
    let options = StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 1 << 20 };
    let store = Store::create_with(device, DATABASE, options, Layout::default(), Policy::default()).unwrap();
    store.attach(log.clone());
    (Arc::new(store), log)
}

/// New pages, each with bytes of its own, taken by `tier`.
fn written(log: &Log, tier: &dyn PageTier, count: usize) -> Vec<PageId> {
    let pages: Vec<PageId> = (0..count).map(|_| tier.reserve(LogClass::Normal).unwrap()).collect();
    let append = &mut |record: Record<'_>| log.try_append(LogClass::Normal, record);
    let _held = tier.prepare(&pages).unwrap();
    let change = Allocation { allocate: &pages, free: &[] };
    let appended = tier.publish(change, append).unwrap();
    log.flush(appended.end).unwrap();
    let version = appended.first;
    let mut data = AlignedBuf::zeroed(count * PAGE_SIZE);
    for (page, data) in pages.iter().zip(data.chunks_mut(PAGE_SIZE)) {
        data[..8].copy_from_slice(&page.0.to_le_bytes());
    }
    for (pages, data) in pages.chunks(16).zip(data.chunks(16 * PAGE_SIZE)) {
        let write = |(page, data)| PageWrite::back(page, version, Lsn::MAX, data);
        let mut writes: Vec<PageWrite<'_>> =
            pages.iter().copied().zip(data.chunks(PAGE_SIZE)).map(write).collect();
        tier.write_batch(&mut writes);
        writes.iter().for_each(|write| assert!(write.outcome.is_ok(), "{:?}", write.outcome));
    }
    pages
}

#[inline(never)]
fn read_one(tier: &dyn PageTier, page: PageId, buf: &mut [u8]) -> Result<Found, TierError> {
    let mut reads = [PageRead { page, buf, outcome: Err(TierError::unset()) }];
    tier.read_batch(&mut reads);
    let [PageRead { outcome, .. }] = reads;
    outcome
}

/// Reads every page; returns how many came from a cache, and the allocations.
fn read_all(tier: &dyn PageTier, pages: &[PageId]) -> (usize, usize) {
    let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
    let (mut cached, before) = (0, ALLOCATIONS.load(Relaxed));
    for page in pages {
        let found = read_one(tier, *page, &mut buf).unwrap();
        cached += usize::from(found.cached);
        assert_eq!(buf[..8], page.0.to_le_bytes());
    }
    (cached, ALLOCATIONS.load(Relaxed) - before)
}

/// One test, for what is counted is the whole program's.
#[test]
fn reads_of_one_page_from_store_and_cache_allocate_nothing() {
    let (store, log) = new_store();
    let switch = CacheSwitch::new(store.clone(), None);
    let pages = written(&log, &switch, 300);
    read_all(&switch, &pages);
    assert_eq!(read_all(&switch, &pages), (0, 0), "from the store");

    let (store, log) = new_store();
    let device = Arc::new(MemoryDevice::with("cache", 4096, u64::MAX));
    device.grow(4 << 20, Fill::Sparse).unwrap();
    let site = CacheSite { device, store: store.clone(), database: DATABASE, cache: CacheId([8; 16]) };
    let cache = FlashCache::create(site, CacheOptions::new(4 << 20)).unwrap();
    let switch = CacheSwitch::new(store.clone(), Some(Arc::new(cache) as Arc<dyn PageCache>));
    let pages = written(&log, &switch, 300);
    switch.sync().unwrap();
    let (cached, _) = read_all(&switch, &pages);
    assert!(cached > 200, "most pages are in the cache: {cached}");
    assert_eq!(read_all(&switch, &pages), (cached, 0), "from the cache");
}
