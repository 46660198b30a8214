//! The comparators that cache on entry: their writes, their restarts, and their failures.

use crate::harness::Below;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_cache_comparators::{EntryCache, EntryPolicy};
use firndb_device::{
    AlignedBuf, Calls, Device, Durability, Fault, FaultPlan, FaultRule, Faulty, MemoryDevice, When,
};
use firndb_log::LogClass;
use firndb_tier::store::Journal;
use firndb_tier::testing::Took;
use firndb_tier::testing::small_store::{PAGE_SIZE, TestLog, image, offer_durable, publish_in, read, work};
use firndb_tier::{PageCache, PageTier, PageWrite, TierError, TierErrorKind};
use std::collections::BTreeMap;

pub(crate) const PLACES: usize = 64;
const BOTH: [EntryPolicy; 2] = [EntryPolicy::ReadLru, EntryPolicy::Temperature];

pub(crate) struct Bed {
    pub(crate) log: Arc<TestLog>,
    below: Below,
    device: Arc<MemoryDevice>,
    pub(crate) cache: EntryCache,
    pages: Vec<PageId>,
}

impl Bed {
    pub(crate) fn new(policy: EntryPolicy, pages: usize) -> Bed {
        Bed::with(policy, pages, |device| device)
    }

    fn with(policy: EntryPolicy, pages: usize, wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>) -> Bed {
        let below = Below::new();
        let device = Arc::new(MemoryDevice::new("cache"));
        // Header, for one of them a directory of four blocks, places.
        let listed = if policy == EntryPolicy::Temperature { PLACES * 32 } else { 0 };
        let bytes = (8192 + listed + PLACES * PAGE_SIZE) as u64;
        let cache = EntryCache::create(below.site(wrap(device.clone())), bytes, policy).unwrap();
        assert_eq!(cache.cache_statistics().slots, PLACES as u64);
        let mut bed = Bed { log: below.log.clone(), below, device, cache, pages: Vec::new() };
        bed.pages = bed.allocate(pages);
        bed
    }

    pub(crate) fn allocate(&self, count: usize) -> Vec<PageId> {
        let pages: Vec<PageId> = (0..count).map(|_| self.cache.reserve(LogClass::Normal).unwrap()).collect();
        publish_in(&self.cache, &pages, &[], &mut |record| self.log.append(record)).unwrap();
        pages
    }

    pub(crate) fn offer(&self, page: PageId, version: Lsn, dirty: bool, expected: Result<Took, TierError>) {
        assert_eq!(offer_durable(&self.cache, &self.log, (page, version), dirty), expected);
    }
    pub(crate) fn write(&self, page: PageId, dirty: bool) -> Lsn {
        let version = self.log.tick();
        self.offer(page, version, dirty, Ok(Took::Taken));
        version
    }
    pub(crate) fn assert_reads(&self, page: PageId, version: Lsn) {
        let (found, bytes) = read(&self.cache, page).unwrap();
        assert_eq!(found, (version, false), "{page}");
        assert!(bytes == image(page, version), "{page}");
    }

    /// Random reads and writes.
    fn churn(&self, rng: &mut Rng, newest: &mut BTreeMap<PageId, Lsn>, steps: usize) {
        for _ in 0..steps {
            let page = self.pages[rng.below(self.pages.len() as u64) as usize];
            match newest.get(&page) {
                Some(version) if !rng.one_in(3) => self.assert_reads(page, *version),
                _ => drop(newest.insert(page, self.write(page, true))),
            }
            if rng.one_in(10) {
                self.cache.step().unwrap();
            }
        }
    }

    /// A copy of the store after a crash with all of the log durable and redone, under the cache on
    /// `device`.
    fn reopened(&self, policy: EntryPolicy, device: Arc<dyn Device>) -> Result<EntryCache, TierError> {
        self.below.reopened(device, |site| EntryCache::open(site, policy))
    }
}

fn assert_all(cache: &EntryCache, newest: &BTreeMap<PageId, Lsn>, what: &str) {
    for (page, version) in newest {
        let (found, bytes) = read(cache, *page).unwrap();
        assert_eq!(found, (*version, false), "{what}: {page}");
        assert!(bytes == image(*page, *version), "{what}: {page}");
    }
}

#[test]
fn each_page_that_replaces_another_costs_two_small_writes_with_temperatures_and_none_without() {
    for policy in BOTH {
        let bed = Bed::new(policy, 300);
        for page in &bed.pages {
            bed.write(*page, true);
        }
        assert_eq!(bed.cache.cache_statistics().write_bytes, 0, "nothing enters on its way out");
        // The same extents repeatedly, so that they are warmer than the first.
        for page in bed.pages.iter().chain(&bed.pages[100..]).chain(&bed.pages[100..]) {
            read(&bed.cache, *page).unwrap();
            while bed.cache.step().unwrap() == Progress::Worked {}
        }
        let counted = bed.cache.cache_statistics();
        let (entered, replaced) = (counted.clean_enqueued, counted.discarded_clean);
        assert!(entered == PLACES as u64 + replaced && replaced > 50, "{policy:?}: {entered} {replaced}");
        let small = if policy == EntryPolicy::Temperature { entered + replaced } else { 0 };
        assert_eq!(counted.writes_by_size.iter().sum::<u64>(), entered + small, "{policy:?}");
        assert_eq!(counted.write_bytes, entered * PAGE_SIZE as u64 + small * 512, "{policy:?}");
    }
}

#[test]
fn a_changed_page_is_rewritten_with_temperatures_and_leaves_without() {
    for (policy, hits) in [(EntryPolicy::Temperature, 2), (EntryPolicy::ReadLru, 1)] {
        let bed = Bed::new(policy, 1);
        let page = bed.pages[0];
        let first = bed.write(page, true);
        bed.assert_reads(page, first);
        bed.assert_reads(page, first);
        let second = bed.write(page, true);
        bed.assert_reads(page, second);
        assert_eq!(bed.cache.cache_statistics().hits, hits, "{policy:?}");
    }
}

#[test]
fn a_restart_finds_what_the_directory_says_with_temperatures_and_nothing_without() {
    for policy in BOTH {
        for saved in [false, true] {
            let bed = Bed::new(policy, 300);
            let mut newest = BTreeMap::new();
            bed.churn(&mut Rng::new(5), &mut newest, 3000);
            if saved {
                bed.cache.sync().unwrap();
            }
            let again = bed.reopened(policy, Arc::new(bed.device.duplicate())).unwrap();
            let restored = again.cache_statistics().pages_valid;
            match policy {
                EntryPolicy::Temperature => assert!(restored > PLACES as u64 / 2, "{restored}"),
                _ => assert_eq!(restored, 0),
            }
            let mut faults = Vec::new();
            let believed = again.check(&mut |fault| faults.push(fault)).unwrap();
            assert!(believed == restored, "nothing was lost: {believed} of {restored}");
            assert_all(&again, &newest, "after a restart");
            assert!(again.cache_statistics().hits > 0 || policy == EntryPolicy::ReadLru);
            assert_eq!(faults, Vec::<String>::new());
        }
    }
}

#[test]
fn whatever_an_older_or_mixed_copy_of_the_device_says_the_newest_version_is_read() {
    let bed = Bed::new(EntryPolicy::Temperature, 150);
    let mut newest = BTreeMap::new();
    let mut rng = Rng::new(6);
    let mut copies = Vec::new();
    for _ in 0..6 {
        bed.churn(&mut rng, &mut newest, 500);
        copies.push(Arc::new(bed.device.duplicate()));
    }
    for (index, copy) in copies.iter().enumerate() {
        let again = bed.reopened(EntryPolicy::Temperature, copy.clone()).unwrap();
        assert_all(&again, &newest, &format!("copy {index}"));
    }
    // Blocks of either: writes that completed in any order, or not at all.
    let len = bed.device.len() as usize;
    for round in 0..20 {
        let mixed = bed.device.duplicate();
        let mut block = AlignedBuf::zeroed(512);
        for offset in (8192..len).step_by(512) {
            let copy = &copies[rng.below(copies.len() as u64) as usize];
            copy.read(offset as u64, &mut block).unwrap();
            mixed.write(offset as u64, &block, Durability::Durable).unwrap();
        }
        let again = bed.reopened(EntryPolicy::Temperature, Arc::new(mixed)).unwrap();
        assert_all(&again, &newest, &format!("mixture {round}"));
        assert_eq!(again.cache_statistics().faults, 0, "damage by a crash is no fault");
    }
}

#[test]
fn foreign_and_short_devices_are_refused() {
    let bed = Bed::new(EntryPolicy::Temperature, 10);
    let short = Arc::new(bed.device.duplicate());
    short.shrink(20_000).unwrap();
    assert_eq!(bed.reopened(EntryPolicy::Temperature, short).unwrap_err().kind, TierErrorKind::Damaged);
    let empty = Arc::new(MemoryDevice::new("cache"));
    assert_eq!(bed.reopened(EntryPolicy::Temperature, empty).unwrap_err().kind, TierErrorKind::Damaged);
}

#[test]
fn rot_is_found_by_a_check_and_never_read() {
    for policy in BOTH {
        let bed = Bed::new(policy, 200);
        let mut newest = BTreeMap::new();
        bed.churn(&mut Rng::new(7), &mut newest, 3000);
        while bed.cache.step().unwrap() == Progress::Worked {}
        let mut block = AlignedBuf::zeroed(512);
        for offset in (0..bed.device.len()).step_by(512) {
            bed.device.read(offset, &mut block).unwrap();
            block[77] ^= 1;
            bed.device.write(offset, &block, Durability::Durable).unwrap();
        }
        let mut faults = Vec::new();
        assert_eq!(bed.cache.check(&mut |fault| faults.push(fault)).unwrap(), 0);
        assert!(faults.len() > PLACES / 2 && faults[0].contains("the store has it"), "{faults:?}");
        assert_all(&bed.cache, &newest, "rotten");
    }
}

#[test]
fn the_engine_goes_on_without_a_device_that_fails() {
    for policy in BOTH {
        for calls in [Calls::Writes, Calls::Reads, Calls::Any] {
            let plan = FaultPlan::new(3);
            let bed = Bed::with(policy, 200, |device| Arc::new(Faulty::new(device, &plan)));
            let mut newest = BTreeMap::new();
            let mut rng = Rng::new(8);
            bed.churn(&mut rng, &mut newest, 1000);
            plan.add(FaultRule {
                calls,
                device: Some("cache".to_owned()),
                when: When::From(0),
                fault: Fault::Fail(firndb_device::DeviceErrorKind::Failed),
            });
            bed.churn(&mut rng, &mut newest, 1000);
            bed.cache.sync().unwrap();
            assert_all(&bed.cache, &newest, "failing");
            assert_eq!(bed.cache.state().lost, calls != Calls::Reads, "{policy:?} {calls:?}");
            assert!(plan.fired() > 0);
        }
    }
}

#[test]
fn a_failing_store_is_the_callers_to_hear_of() {
    let bed = Bed::new(EntryPolicy::Temperature, 20);
    let first = bed.write(bed.pages[0], true);
    bed.assert_reads(bed.pages[0], first);
    bed.log.set_full(false);
    let version = bed.log.tick();
    bed.log.flush(Lsn(version.0 + 1)).unwrap();
    bed.log.set_full(true);
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data.copy_from_slice(&image(bed.pages[0], version));
    let mut writes = [PageWrite::back(bed.pages[0], version, version, &data)];
    bed.cache.write_batch(&mut writes);
    assert_eq!(writes[0].outcome.as_ref().unwrap_err().kind, TierErrorKind::LogFull);
    bed.log.set_full(false);
    bed.assert_reads(bed.pages[0], first);
}

#[test]
fn threads_read_the_newest_version_of_their_pages_while_others_read_and_write_them() {
    for policy in BOTH {
        let bed = Bed::new(policy, 160);
        std::thread::scope(|scope| {
            for (thread, own) in bed.pages.chunks(40).enumerate() {
                let bed = &bed;
                scope.spawn(move || work(&bed.cache, &bed.log, own, thread as u64));
            }
            // Slow readers of all pages, which insert old versions.
            for seed in 0..2 {
                let bed = &bed;
                scope.spawn(move || {
                    let mut rng = Rng::new(100 + seed);
                    for _ in 0..1500 {
                        let page = bed.pages[rng.below(bed.pages.len() as u64) as usize];
                        read(&bed.cache, page).unwrap();
                        bed.cache.step().unwrap();
                    }
                });
            }
        });
        let mut faults = Vec::new();
        bed.cache.check(&mut |fault| faults.push(fault)).unwrap();
        assert_eq!(faults, Vec::<String>::new());
    }
}
