//! The comparator: one place a page, LRU-2, a lazy cleaner.

use crate::harness::Below;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::{Arc, thread};
use firndb_base::{Lsn, PageId, Progress};
use firndb_cache_comparators::LazyCleaning;
use firndb_device::{AlignedBuf, Counting, MemoryDevice};
use firndb_log::LogClass;
use firndb_testkit::hooked::Trap;
use firndb_tier::store::{Journal, Store};
use firndb_tier::testing::Took;
use firndb_tier::testing::small_store::{PAGE_SIZE, TestLog, image, offer_durable, publish_in, read, work};
use firndb_tier::{PageCache, PageRead, PageTier, PageWrite, TierError, TierErrorKind};
use std::collections::BTreeMap;

/// Of the places that may be dirty before the cleaner works.
const DIRTY_PERCENT_MAX: u8 = 50;

struct Bed {
    below: Below,
    log: Arc<TestLog>,
    store: Arc<Store>,
    device: Arc<MemoryDevice>,
    /// Above it, below the cache.
    counting: Arc<Counting>,
    /// Before the device's reads.
    trap: Trap,
    cache: Arc<LazyCleaning>,
    pages: Vec<PageId>,
}

fn bed(pages: usize) -> Bed {
    bed_with(pages, DIRTY_PERCENT_MAX)
}

fn bed_with(pages: usize, dirty_percent_max: u8) -> Bed {
    let below = Below::new();
    let (log, store) = (below.log.clone(), below.store.clone());
    let device = Arc::new(MemoryDevice::new("cache"));
    let bytes = (8192 + 128 * PAGE_SIZE) as u64;
    let trap = Trap::default();
    let counting = Arc::new(Counting::new(trap.over_reads(device.clone())));
    let cache =
        Arc::new(LazyCleaning::create(below.site(counting.clone()), bytes, dirty_percent_max).unwrap());
    let pages: Vec<PageId> = (0..pages).map(|_| cache.reserve(LogClass::Normal).unwrap()).collect();
    publish_in(&*cache, &pages, &[], &mut |record| log.append(record)).unwrap();
    Bed { below, log, store, device, counting, trap, cache, pages }
}

impl Bed {
    fn write(&self, page: PageId, version: Lsn, dirty: bool) -> Result<Took, TierError> {
        offer_durable(&*self.cache, &self.log, (page, version), dirty)
    }
    /// Writes new versions of these pages, which are then dirty.
    fn change(&self, pages: &[PageId]) {
        for page in pages {
            assert_eq!(self.write(*page, self.log.tick(), true), Ok(Took::Taken));
        }
    }
    /// Pages in the cache, by number.
    fn cached(&self) -> Vec<PageId> {
        let mut cached = Vec::new();
        for page in &self.pages {
            let before = self.cache.cache_statistics().hits;
            read(&*self.cache, *page).unwrap();
            if self.cache.cache_statistics().hits > before {
                cached.push(*page);
            }
        }
        cached
    }
    /// Which of these pages the store lacks.
    fn lacking(&self, pages: &[PageId]) -> Vec<PageId> {
        let version = |page: &PageId| self.cache.version_of(*page).unwrap().unwrap();
        let stored = |page: &PageId| self.store.version_of(*page).unwrap().unwrap();
        pages.iter().filter(|page| stored(page) < version(page)).copied().collect()
    }
}

#[test]
fn victims_are_clean_pages_even_if_dirty_ones_are_colder() {
    let bed = bed(140);
    let (dirty, clean) = bed.pages[..128].split_at(60);
    bed.change(clean);
    bed.cache.sync().unwrap();
    // Colder by LRU-2 than all the others: these were used twice.
    clean.iter().for_each(|page| drop(read(&*bed.cache, *page).unwrap()));
    bed.change(dirty);
    let written_back = bed.cache.cache_statistics().write_backs;
    bed.change(&bed.pages[128..]);
    assert_eq!(bed.cache.cache_statistics().write_backs, written_back, "nothing waits for the store");
    let cached = bed.cached();
    assert!(dirty.iter().all(|page| cached.contains(page)), "the dirty ones stayed");
    assert!(clean[..12].iter().all(|page| !cached.contains(page)), "the coldest clean ones went");
    assert!(clean[12..].iter().all(|page| cached.contains(page)));
}

#[test]
fn only_if_no_page_is_clean_does_the_thread_that_needs_a_place_write_the_coldest() {
    let bed = bed_with(300, 100);
    // Every other page, so that no page has a neighbour.
    let all: Vec<PageId> = bed.pages.iter().copied().filter(|page| page.0 % 2 == 0).collect();
    bed.change(&all[..128]);
    // The first ten are hot.
    all[..10].iter().for_each(|page| drop(read(&*bed.cache, *page).unwrap()));
    assert_eq!(bed.cache.step().unwrap(), Progress::Idle, "all places may be dirty");
    bed.change(&all[128..129]);
    let cleaned = bed.cache.cache_statistics().write_backs;
    assert!((1..=16).contains(&cleaned), "a few at once: {cleaned}");
    let lacking = bed.lacking(&all[..128]);
    assert_eq!(lacking[..10], all[..10], "the hot ones were left dirty");
    assert_eq!(lacking[10..], all[10 + cleaned as usize..128], "the coldest were written");
}

#[test]
fn the_share_of_dirty_pages_is_the_cleaners_threshold() {
    for percent in [10, 80] {
        let bed = bed_with(128, percent);
        let most = 128 * usize::from(percent) / 100;
        bed.change(&bed.pages[..most]);
        assert_eq!(bed.cache.step().unwrap(), Progress::Idle, "{percent} %");
        bed.change(&bed.pages[most..=most]);
        assert_eq!(bed.cache.step().unwrap(), Progress::Worked, "{percent} %");
    }
}

#[test]
fn a_checkpoint_writes_the_hot_pages_though_colder_ones_become_dirty_meanwhile() {
    let bed = bed_with(300, 100);
    let all: Vec<PageId> = bed.pages.iter().copied().filter(|page| page.0 % 2 == 0).collect();
    let (before, meanwhile) = all[..128].split_at(100);
    bed.change(before);
    before[..40].iter().for_each(|page| drop(read(&*bed.cache, *page).unwrap()));
    let (cache, log, late) = (bed.cache.clone(), bed.log.clone(), meanwhile.to_vec());
    bed.trap.set(move || {
        for page in late {
            let taken = offer_durable(&*cache, &log, (page, log.tick()), true);
            assert_eq!(taken, Ok(Took::Taken));
        }
    });
    bed.cache.sync().unwrap();
    assert_eq!(bed.lacking(before), [], "no old log is kept for pages that are always in use");
    assert_eq!(bed.lacking(meanwhile), meanwhile, "the next checkpoint's work");
}

#[test]
fn a_batch_is_read_side_by_side_from_cache_and_store() {
    let bed = bed(140);
    bed.change(&bed.pages[..140]);
    let cached = bed.cached();
    assert_eq!(cached.len(), 128);
    let mut bufs: Vec<AlignedBuf> = bed.pages.iter().map(|_| AlignedBuf::zeroed(PAGE_SIZE)).collect();
    let outcome = || Err(TierError::new(TierErrorKind::Failed, "not read"));
    let mut reads: Vec<PageRead<'_>> = bed
        .pages
        .iter()
        .zip(&mut bufs)
        .map(|(page, buf)| PageRead { page: *page, buf, outcome: outcome() })
        .collect();
    let before = bed.counting.snapshot();
    bed.cache.read_batch(&mut reads);
    let asked = bed.counting.snapshot().since(&before);
    assert_eq!((asked.batches, asked.reads.ops), (1, 128));
    for read in &reads {
        let found = read.outcome.clone().unwrap();
        assert_eq!(found.cached, cached.contains(&read.page));
        assert!(*read.buf == image(read.page, found.version)[..]);
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
                let ((found, _), bytes) = read(&*bed.cache, page).unwrap();
                assert!(found == version && bytes == image(page, version), "step {step}");
            }
            _ => {
                let version = bed.log.tick();
                assert_eq!(bed.write(page, version, true), Ok(Took::Taken));
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
    let again = LazyCleaning::open(bed.below.site(bed.device.clone()), DIRTY_PERCENT_MAX).unwrap();
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
        read(&*bed.cache, *page).unwrap();
    }
    let misses = || bed.cache.cache_statistics().misses;
    bed.write(bed.pages[128], bed.log.tick(), true).unwrap();
    let before = misses();
    bed.pages[..128]
        .iter()
        .filter(|page| **page != bed.pages[2])
        .for_each(|page| drop(read(&*bed.cache, *page)));
    assert_eq!(misses(), before, "those stayed");
    read(&*bed.cache, bed.pages[2]).unwrap();
    assert_eq!(misses(), before + 1, "this one went");
}

#[test]
fn threads_read_the_newest_version_of_their_pages_while_it_is_cleaned() {
    let bed = bed(320);
    std::thread::scope(|scope| {
        for (thread, own) in bed.pages.chunks(80).enumerate() {
            let bed = &bed;
            scope.spawn(move || work(&*bed.cache, &bed.log, own, thread as u64));
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
    publish_in(&*bed.cache, &[], &bed.pages[..10], &mut |record| bed.log.append(record)).unwrap();
    assert_eq!(bed.cache.cache_statistics().pages_valid, 0);
    for page in &bed.pages[..10] {
        assert_eq!(read(&*bed.cache, *page).unwrap_err().kind, TierErrorKind::NotAllocated);
    }
}

/// Cause: a thread waited for a place while it had others claimed and not yet written. Effect:
/// threads that together had claimed every place waited for each other.
#[test]
fn threads_whose_batches_need_more_places_than_there_are_wait_for_none_that_waits() {
    const THREADS: usize = 12;
    const BATCH: usize = 16;
    for seed in 0..8 {
        let run = sim::run(SimOptions::seeded(seed), || {
            let bed = bed_with(THREADS * BATCH, 100);
            thread::scope(|scope| {
                for pages in bed.pages.chunks(BATCH) {
                    let (cache, log) = (&bed.cache, &bed.log);
                    scope.spawn(move || {
                        for _ in 0..3 {
                            let version = log.tick();
                            log.flush(Lsn(version.0 + 1)).unwrap();
                            let images: Vec<_> = pages.iter().map(|page| image(*page, version)).collect();
                            let both = pages.iter().zip(&images);
                            let mut writes: Vec<PageWrite<'_>> = both
                                .map(|(page, image)| PageWrite::back(*page, version, version, image))
                                .collect();
                            cache.write_batch(&mut writes);
                            assert!(writes.iter().all(PageWrite::is_taken), "all are taken");
                        }
                    });
                }
            });
            for page in &bed.pages {
                let ((version, _), bytes) = read(&*bed.cache, *page).unwrap();
                assert!(bytes == image(*page, version) && version > Lsn::FIRST);
            }
        });
        if let Err(failure) = run {
            panic!("seed {seed}: {failure}");
        }
    }
}
