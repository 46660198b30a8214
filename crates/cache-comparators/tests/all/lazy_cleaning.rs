//! The comparator: one place a page, LRU-2, a lazy cleaner.

use crate::harness::Below;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_cache_comparators::LazyCleaning;
use firndb_device::MemoryDevice;
use firndb_log::LogClass;
use firndb_tier::store::{Journal, Store};
use firndb_tier::testing::small_store::{PAGE_SIZE, TestLog, image, offer_durable, publish_in, read, work};
use firndb_tier::{PageCache, PageTier, TierError, TierErrorKind, Written};
use std::collections::BTreeMap;

struct Bed {
    below: Below,
    log: Arc<TestLog>,
    store: Arc<Store>,
    device: Arc<MemoryDevice>,
    cache: LazyCleaning,
    pages: Vec<PageId>,
}

fn bed(pages: usize) -> Bed {
    let below = Below::new();
    let (log, store) = (below.log.clone(), below.store.clone());
    let device = Arc::new(MemoryDevice::new("cache"));
    let bytes = (8192 + 128 * PAGE_SIZE) as u64;
    let cache = LazyCleaning::create(below.site(device.clone()), bytes).unwrap();
    let pages: Vec<PageId> = (0..pages).map(|_| cache.reserve(LogClass::Normal).unwrap()).collect();
    publish_in(&cache, &pages, &[], &mut |record| log.append(record)).unwrap();
    Bed { below, log, store, device, cache, pages }
}

impl Bed {
    fn write(&self, page: PageId, version: Lsn, dirty: bool) -> Result<Written, TierError> {
        offer_durable(&self.cache, &self.log, (page, version), dirty)
    }
}

#[test]
fn every_version_is_read_back_and_the_log_is_kept_for_what_the_store_lacks() {
    let bed = bed(300);
    let mut rng = Rng::new(3);
    let mut newest: BTreeMap<PageId, Lsn> = BTreeMap::new();
    for step in 0..4000 {
        let page = bed.pages[rng.below(bed.pages.len() as u64) as usize];
        match (rng.below(4), newest.get(&page).copied()) {
            (0, Some(version)) => {
                bed.write(page, version, false).unwrap();
            }
            (1 | 2, Some(version)) => {
                let ((found, _), bytes) = read(&bed.cache, page).unwrap();
                assert!(found == version && bytes == image(page, version), "step {step}");
            }
            _ => {
                let version = bed.log.tick();
                assert_eq!(bed.write(page, version, true), Ok(Written::Taken));
                newest.insert(page, version);
            }
        }
        if rng.one_in(50) {
            while bed.cache.step().unwrap() == Progress::Worked {}
            let counted = bed.cache.cache_statistics();
            assert!(counted.pages_dirty * 2 <= counted.slots, "the cleaner keeps half of it clean");
        }
        // The log is kept for every version that the store lacks.
        let needed = bed.cache.oldest_needed_lsn().unwrap_or(Lsn::MAX);
        if step % 100 == 0 {
            for (page, version) in &newest {
                let stored = bed.store.version_of(*page).unwrap().unwrap();
                assert!(stored == *version || needed <= *version, "{page}: {stored} {version} {needed}");
            }
        }
    }
    bed.cache.sync().unwrap();
    assert_eq!(bed.cache.cache_statistics().pages_dirty, 0, "a checkpoint writes everything to the store");
    assert_eq!(bed.cache.oldest_needed_lsn(), bed.store.oldest_needed_lsn());
    let mut faults = Vec::new();
    assert!(bed.cache.check(&mut |fault| faults.push(fault)).unwrap() > 0);
    assert_eq!(faults, Vec::<String>::new());
    // A restart begins with an empty cache, and the store has everything.
    let again = LazyCleaning::open(bed.below.site(bed.device.clone())).unwrap();
    assert_eq!(again.cache_statistics().pages_valid, 0);
    for (page, version) in &newest {
        assert_eq!(read(&again, *page).unwrap().0, (*version, false));
    }
}

#[test]
fn the_page_whose_last_use_but_one_is_oldest_goes() {
    let bed = bed(130);
    for page in &bed.pages[..128] {
        bed.write(*page, bed.log.tick(), true).unwrap();
    }
    bed.cache.sync().unwrap();
    // All but the third were used again, the first long ago.
    for page in bed.pages[..128].iter().filter(|page| **page != bed.pages[2]) {
        read(&bed.cache, *page).unwrap();
    }
    let misses = || bed.cache.cache_statistics().misses;
    bed.write(bed.pages[128], bed.log.tick(), true).unwrap();
    let before = misses();
    bed.pages[..128]
        .iter()
        .filter(|page| **page != bed.pages[2])
        .for_each(|page| drop(read(&bed.cache, *page)));
    assert_eq!(misses(), before, "those stayed");
    read(&bed.cache, bed.pages[2]).unwrap();
    assert_eq!(misses(), before + 1, "this one went");
}

#[test]
fn threads_read_the_newest_version_of_their_pages_while_it_is_cleaned() {
    let bed = bed(320);
    std::thread::scope(|scope| {
        for (thread, own) in bed.pages.chunks(80).enumerate() {
            let bed = &bed;
            scope.spawn(move || work(&bed.cache, &bed.log, own, thread as u64));
        }
        scope.spawn(|| {
            for _ in 0..200 {
                bed.cache.step().unwrap();
                bed.cache.sync().unwrap();
                std::thread::yield_now();
            }
        });
    });
}

#[test]
fn freed_pages_are_forgotten() {
    let bed = bed(140);
    for page in &bed.pages[..10] {
        bed.write(*page, bed.log.tick(), true).unwrap();
    }
    publish_in(&bed.cache, &[], &bed.pages[..10], &mut |record| bed.log.append(record)).unwrap();
    assert_eq!(bed.cache.cache_statistics().pages_valid, 0);
    for page in &bed.pages[..10] {
        assert_eq!(read(&bed.cache, *page).unwrap_err().kind, TierErrorKind::NotAllocated);
    }
}
