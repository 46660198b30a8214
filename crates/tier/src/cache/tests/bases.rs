//! Base and changes come out of the cache as they went in: at hits, at every kind of write-back,
//! and after a restart.

use super::harness::*;
use crate::cache::FlashCache;
use crate::error::TierError;
use crate::granules::{Base, Changes};
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{BackingStore, CacheOptions, CacheSite, PageCache};
use crate::page_tier::{PageRead, PageTier, PageWrite, Written};
use crate::store::{Journal, Store};
use firndb_base::hash::hash_bytes;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, Device, MemoryDevice};
use firndb_log::LogClass;

/// What the buffer says of a version: one in eight has no base.
fn since(page: PageId, version: Lsn) -> (Option<Base>, Changes) {
    let hash = |salt: u64| hash_bytes(version.0 + salt, &page.0.to_le_bytes());
    if hash(0).is_multiple_of(8) {
        return (None, Changes::ALL);
    }
    let base = Base { version: Lsn(version.0 - 1), checksum: hash(1) as u32 };
    (Some(base), Changes::from_words([hash(2), hash(3) & hash(4)]))
}

/// A store that looks at what the cache writes back to it.
struct Judge {
    store: Arc<Store>,
    judged: AtomicU64,
}

impl Judge {
    fn judge(&self, writes: &[PageWrite<'_>]) {
        for write in writes {
            let said = (write.base, write.changes);
            assert_eq!(said, since(write.page, write.version), "{:?} {:?}", write.page, write.version);
            self.judged.fetch_add(u64::from(write.recovery_lsn == Lsn::MAX), Relaxed);
        }
    }
}

impl PageTier for Judge {
    crate::forward_tier!(store: page_size, read_batch, whereabouts, make_batch_space, reserve, unreserve);
    crate::forward_tier!(store: prepare, publish, sync, version_of, has_change_for_sure, page_is_lost);
    crate::forward_tier!(store: oldest_needed_lsn, statistics);
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        self.judge(writes);
        self.store.write_batch(writes);
    }
}

impl BackingStore for Judge {
    fn recorded_version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.store.recorded_version_of(page)
    }
    fn records_end(&self) -> Lsn {
        self.store.records_end()
    }
    fn log_end(&self) -> Lsn {
        self.store.log_end()
    }
    fn write_recorded(&self, writes: &mut [PageWrite<'_>]) {
        self.judge(writes);
        self.store.write_recorded(writes);
    }
    fn flush_records(&self, end: Lsn) -> Result<(), TierError> {
        self.store.flush_records(end)
    }
    fn write_lost(&self, page: PageId, version: Lsn, sentence: &str) -> Result<bool, TierError> {
        self.store.write_lost(page, version, sentence)
    }
}

struct Bed {
    log: Arc<TestLog>,
    store_device: Arc<MemoryDevice>,
    cache_device: Arc<MemoryDevice>,
    judge: Arc<Judge>,
    cache: FlashCache,
    chosen: CacheOptions,
    pages: Vec<PageId>,
    hits: u64,
}

fn site(device: Arc<dyn Device>, store: Arc<Judge>) -> CacheSite {
    CacheSite { device, store, database: DATABASE, cache: CACHE }
}

impl Bed {
    fn new(policy: CachePolicy, write_through: bool) -> Bed {
        let log = TestLog::new();
        let (store_device, cache_device) =
            (Arc::new(MemoryDevice::new("store")), Arc::new(MemoryDevice::new("cache")));
        let store = Store::create_with(store_device.clone(), DATABASE, options(), LAYOUT, POLICY).unwrap();
        store.attach_journal(log.clone());
        let judge = Arc::new(Judge { store: Arc::new(store), judged: AtomicU64::new(0) });
        let chosen = CacheOptions { bytes: 70_000, group_pages: 4, policy, write_through };
        let cache = FlashCache::create(site(cache_device.clone(), judge.clone()), chosen).unwrap();
        cache.keep_rebuildable(None);
        let pages: Vec<PageId> = (0..70).map(|_| cache.reserve(LogClass::Normal).unwrap()).collect();
        publish_in(&cache, &pages, &[], &mut |record| log.append(record)).unwrap();
        Bed { log, store_device, cache_device, judge, cache, chosen, pages, hits: 0 }
    }

    /// Offers a page as the buffer would.
    fn offer(&self, page: PageId, version: Lsn, dirty: bool) {
        self.log.flush(Lsn(version.0 + 1)).unwrap();
        let mut data = AlignedBuf::zeroed(PAGE_SIZE);
        data.copy_from_slice(&image(page, version));
        let (base, changes) = since(page, version);
        let write = PageWrite::back(page, version, version, &data).changed_since(base, changes);
        let mut writes = [PageWrite { dirty, ..write }];
        self.cache.write_batch(&mut writes);
        match writes[0].outcome.clone().unwrap() {
            Written::Taken { base, changes } => self.expect(page, version, (base, changes)),
            Written::Declined => assert!(!dirty),
        }
    }

    /// What may be said of a version: what was offered, or, after the store took it before, that it
    /// is its own base.
    fn expect(&self, page: PageId, version: Lsn, said: (Option<Base>, Changes)) {
        let stored = said.0.is_some_and(|base| base.version == version)
            && said.1.is_none()
            && self.chosen.write_through;
        assert!(stored || said == since(page, version), "{page:?} {version:?}: {said:?}");
    }

    /// Reads pages one by one, or as a batch; returns how many came from the cache, and the version
    /// of each that was ever written.
    fn read(&self, cache: &dyn PageTier, pages: &[PageId]) -> (u64, Vec<Option<Lsn>>) {
        let mut bytes = AlignedBuf::zeroed(pages.len() * PAGE_SIZE);
        let reads = pages.iter().zip(bytes.chunks_mut(PAGE_SIZE));
        let mut reads: Vec<PageRead<'_>> = reads
            .map(|(page, buf)| PageRead { page: *page, buf, outcome: Err(TierError::unset()) })
            .collect();
        cache.read_batch(&mut reads);
        let (mut hits, mut versions) = (0, Vec::new());
        for read in reads {
            let found = read.outcome.unwrap();
            if found.cached {
                hits += 1;
                self.expect(read.page, found.version, (found.base, found.changes));
            } else {
                let whole = found.base.map(|base| (base.version, found.changes));
                let unwritten = found.base.is_none() && found.changes.is_all();
                assert!(unwritten || whole == Some((found.version, Changes::NONE)), "{found:?}");
            }
            versions.push((found.cached || found.base.is_some()).then_some(found.version));
        }
        (hits, versions)
    }

    fn step(&mut self, rng: &mut Rng) {
        let page = self.pages[rng.below(self.pages.len() as u64) as usize];
        match rng.below(100) {
            0..40 => self.offer(page, self.log.tick(), true),
            40..70 => {
                let from = rng.below(self.pages.len() as u64 - 8) as usize;
                let some = self.pages[from..from + 1 + rng.below(7) as usize].to_vec();
                let (hits, versions) = self.read(&self.cache, &some);
                self.hits += hits;
                if rng.one_in(2)
                    && let Some(version) = versions[0]
                {
                    self.offer(some[0], version, false);
                }
            }
            70..90 => while self.cache.step().unwrap() == Progress::Worked {},
            90..96 => self.cache.sync().unwrap(),
            96..98 => self.cache.write_back_before(Lsn(self.log.end().0 / 4 * 3)).unwrap(),
            _ => self.reopen(),
        }
    }

    /// What a crash now would leave.
    fn reopen(&self) {
        let durable = self.cache.state().durable;
        let device = Arc::new(self.cache_device.duplicate());
        let store = Store::open_with(Arc::new(self.store_device.duplicate()), DATABASE, options(), POLICY);
        let judge = Arc::new(Judge { store: Arc::new(store.unwrap()), judged: AtomicU64::new(0) });
        let log = Lsn::FIRST..self.log.end();
        let cache =
            FlashCache::open(site(device, judge.clone()), self.chosen.policy, durable, log.clone()).unwrap();
        for logged in self.log.records().iter().filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
            judge.store.redo(logged.lsn, logged.record()).unwrap();
            cache.redo(logged.lsn, logged.record()).unwrap();
        }
        judge.store.finish_redo(log.end).unwrap();
        self.read(&cache, &self.pages);
    }
}

#[test]
fn what_was_offered_is_returned_and_handed_down() {
    let policies = [
        CachePolicy::Fifo,
        CachePolicy::GroupReplacement,
        CachePolicy::GroupSecondChance,
        CachePolicy::Keeping,
        CachePolicy::Selective,
    ];
    for (seed, policy) in policies.into_iter().enumerate() {
        let (mut bed, mut rng) = (Bed::new(policy, false), Rng::new(seed as u64));
        (0..1500).for_each(|_| bed.step(&mut rng));
        let written_back = bed.judge.judged.load(Relaxed);
        assert!(bed.hits > 300 && written_back > 200, "{policy:?}: {} hits, {written_back} back", bed.hits);
    }
}

#[test]
fn beside_a_write_to_the_store_the_cache_keeps_what_the_store_returned() {
    let (mut bed, mut rng) = (Bed::new(CachePolicy::Keeping, true), Rng::new(9));
    (0..1500).for_each(|_| bed.step(&mut rng));
    assert!(bed.hits > 300, "{} hits", bed.hits);
    let (page, version) = (bed.pages[0], bed.log.tick());
    bed.offer(page, version, true);
    let mut buf = AlignedBuf::zeroed(PAGE_SIZE);
    let mut reads = [PageRead { page, buf: &mut buf, outcome: Err(TierError::unset()) }];
    bed.cache.read_batch(&mut reads);
    let found = reads[0].outcome.clone().unwrap();
    assert!(found.cached && found.base.is_some_and(|base| base.version == version), "{found:?}");
    assert_eq!(found.changes, Changes::NONE);
}
