//! Pages that are freed leave no trace that must become durable: after a crash at any point each
//! allocated page is found in its newest version, or in an older one *of the same incarnation* from
//! which redo of the kept log reaches the newest.

use super::harness::*;
use crate::cache::FlashCache;
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::{Allocation, DeltaRead, PageTier, PageWrite};
use crate::store::Journal;
use crate::store::Store;
use crate::store::tests::harness::Logged;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, MemoryDevice};
use firndb_log::LogClass;
use firndb_testkit::seeds::number_from;
use std::collections::BTreeMap;

/// One incarnation of a page, according to the log.
#[derive(Clone, Debug)]
struct Incarnation {
    allocated: Lsn,
    /// LSNs of its changes; the first initializes the page.
    changes: Vec<Lsn>,
    /// The version of the page's first content, if no log has that.
    shadow: Option<Lsn>,
}

/// A page in DRAM of which the tier has an older version.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    recovery_lsn: Lsn,
}

/// The engine above the cache, as far as the cache sees it.
struct World {
    chosen: CacheOptions,
    log: Arc<TestLog>,
    store_device: Arc<MemoryDevice>,
    cache_device: Arc<MemoryDevice>,
    store: Arc<Store>,
    cache: FlashCache,
    pages: BTreeMap<PageId, Incarnation>,
    dirty: BTreeMap<PageId, Dirty>,
    /// Pages allocated without content, and the version under which it is to be stored.
    empty: BTreeMap<PageId, Lsn>,
    /// The pages allocated at each end of the log.
    history: BTreeMap<Lsn, BTreeMap<PageId, Incarnation>>,
    /// The superblock's contents.
    redo_start: Lsn,
    durable_group: u64,
    /// Number of stale images that crashes left and recovery removed.
    reused: u64,
}

impl World {
    fn new(chosen: CacheOptions) -> World {
        let Rig { log, store_device, cache_device, store, cache, .. } = Rig::new(chosen);
        World {
            chosen,
            log,
            store_device,
            cache_device,
            store,
            cache,
            pages: BTreeMap::new(),
            dirty: BTreeMap::new(),
            empty: BTreeMap::new(),
            history: BTreeMap::new(),
            redo_start: Lsn::FIRST,
            durable_group: 0,
            reused: 0,
        }
    }

    fn note(&mut self) {
        self.history.insert(self.log.end(), self.pages.clone());
    }

    fn publish_new(&mut self) -> Option<(PageId, Lsn)> {
        let page = self.cache.reserve(LogClass::Normal).ok()?;
        let change = Allocation { allocate: &[page], free: &[] };
        let held = self.cache.prepare(&[page]).expect("readable");
        let published = self.cache.publish(change, &mut |record| self.log.append(record)).expect("space");
        drop(held);
        Some((page, published.first))
    }

    fn allocate(&mut self) {
        // The buffer announces the recovery LSN before the record is appended.
        let recovery_lsn = self.log.end();
        let Some((page, allocated)) = self.publish_new() else { return };
        let changes = vec![self.log.tick()];
        assert!(self.pages.insert(page, Incarnation { allocated, changes, shadow: None }).is_none());
        self.dirty.insert(page, Dirty { recovery_lsn });
        self.note();
    }

    /// Allocates a page whose content comes later, past the cache.
    fn allocate_empty(&mut self) {
        let Some((page, allocated)) = self.publish_new() else { return };
        let version = self.log.tick();
        let incarnation = Incarnation { allocated, changes: Vec::new(), shadow: Some(version) };
        assert!(self.pages.insert(page, incarnation).is_none());
        self.empty.insert(page, version);
        self.note();
    }

    /// Gives the pages that were allocated without content theirs.
    fn write_shadows(&mut self) {
        let empty = std::mem::take(&mut self.empty);
        let images: Vec<Vec<u8>> = empty.iter().map(|(page, version)| image(*page, *version)).collect();
        let mut writes: Vec<PageWrite<'_>> = empty
            .iter()
            .zip(&images)
            .map(|((page, version), data)| PageWrite::back(*page, *version, Lsn::MAX, data))
            .collect();
        self.cache.write_shadows(&mut writes);
        assert!(writes.iter().all(PageWrite::is_taken));
        for (page, version) in empty {
            self.pages.get_mut(&page).expect("allocated").changes.push(version);
        }
        self.note();
    }

    fn change(&mut self, page: PageId) {
        let recovery_lsn = self.log.end();
        self.dirty.entry(page).or_insert(Dirty { recovery_lsn });
        let lsn = self.log.tick();
        self.pages.get_mut(&page).expect("allocated").changes.push(lsn);
        self.note();
    }

    fn free(&mut self, pages: &[PageId]) {
        let change = Allocation { allocate: &[], free: pages };
        let held = self.cache.prepare(pages).expect("readable");
        self.cache.publish(change, &mut |record| self.log.append(record)).expect("space");
        drop(held);
        for page in pages {
            self.pages.remove(page).expect("allocated");
            self.dirty.remove(page);
        }
        self.note();
    }

    /// Evicts a page: the tier takes its newest version.
    fn evict(&mut self, page: PageId) {
        let version = *self.pages[&page].changes.last().expect("it has one");
        let dirty = self.dirty.get(&page).copied();
        self.log.flush(Lsn(version.0 + 1)).expect("flushed");
        let mut data = AlignedBuf::zeroed(PAGE_SIZE);
        data.copy_from_slice(&image(page, version));
        let mut writes = [PageWrite {
            page,
            version,
            recovery_lsn: dirty.map_or(Lsn::MAX, |dirty| dirty.recovery_lsn),
            dirty: dirty.is_some(),
            data: &data,
            changes: crate::Changes::ALL,
            base: None,
            delta_read: DeltaRead::No,
            outcome: Err(TierError::new(TierErrorKind::Failed, "not written")),
        }];
        self.cache.write_batch(&mut writes);
        let [PageWrite { outcome, .. }] = writes;
        let outcome = outcome.expect("taken or declined");
        if dirty.is_some() {
            assert!(outcome.is_taken(), "{outcome:?}");
            self.dirty.remove(&page);
        }
    }

    fn checkpoint(&mut self) {
        let end = self.log.end();
        self.cache.sync().expect("synced");
        let needed =
            self.dirty.values().map(|dirty| dirty.recovery_lsn).chain(self.cache.oldest_needed_lsn());
        self.redo_start = needed.fold(end, Lsn::min).max(self.redo_start);
        self.durable_group = self.cache.state().durable;
        self.log.flush(end).expect("flushed");
    }

    /// Crashes: loses all that was not durable, opens what is left, and continues with it.
    fn crash(&mut self) {
        let end = self.log.durable().max(self.redo_start);
        let records: Vec<Logged> =
            self.log.records().into_iter().filter(|logged| logged.end <= end).collect();
        self.pages =
            self.history.range(..=end).next_back().map(|(_, pages)| pages.clone()).unwrap_or_default();
        self.history.retain(|lsn, _| *lsn <= end);
        self.store_device = Arc::new(self.store_device.duplicate());
        self.cache_device = Arc::new(self.cache_device.duplicate());
        self.store = Arc::new(
            Store::open_with(self.store_device.clone(), DATABASE, options(), POLICY).expect("a store"),
        );
        let log_range = self.redo_start..end;
        self.cache = FlashCache::open(
            site(self.cache_device.clone(), self.store.clone()),
            self.chosen.policy,
            self.durable_group,
            log_range,
        )
        .expect("a cache");
        let before = self.cache.cache_statistics().pages_valid;
        for logged in records.iter().filter(|logged| logged.lsn >= self.redo_start) {
            if (0x10..0x20).contains(&logged.kind.0) {
                self.store.redo(logged.lsn, logged.record()).expect("redone");
                self.cache.redo(logged.lsn, logged.record()).expect("redone");
            }
        }
        self.reused += before - self.cache.cache_statistics().pages_valid;
        self.store.finish_redo(end).expect("redone");
        self.log = TestLog::with(records);
        self.store.attach_journal(self.log.clone());
        self.dirty.clear();
        self.empty.clear();
        for (page, incarnation) in &self.pages {
            let ((found, _), bytes) = read(&self.cache, *page).expect("an allocated page is read");
            // The cache may have a content before the record that names its place is durable.
            let shadow = incarnation.shadow.filter(|shadow| *shadow == found).map(|_| 0);
            let after = incarnation.changes.iter().position(|change| *change == found).map(|at| at + 1);
            let missing = match after.or(shadow) {
                Some(after) => {
                    assert!(bytes == image(*page, found), "{page} has other bytes than its version {found}");
                    &incarnation.changes[after..]
                }
                None => {
                    assert!(
                        incarnation.shadow.is_none() || incarnation.changes.is_empty(),
                        "{page} is found in {found} without the content that no log has"
                    );
                    // No image yet: the first change initializes the page. An image of an earlier
                    // incarnation must not be returned.
                    assert!(
                        found >= incarnation.allocated,
                        "{page} is found in version {found} of an earlier incarnation"
                    );
                    assert!(bytes.iter().all(|byte| *byte == 0), "{page}");
                    &incarnation.changes[..]
                }
            };
            if let Some(first) = missing.first() {
                assert!(*first >= self.redo_start, "{page} needs the log from {first}");
                // Redo announces the first change that it repeats, not the allocation before it.
                self.dirty.insert(*page, Dirty { recovery_lsn: *first });
            }
        }
        self.cache.end_recovery();
        // What wrote them is undone.
        let undone = self.pages.iter().filter(|(_, incarnation)| incarnation.changes.is_empty());
        let undone: Vec<PageId> = undone.map(|(page, _)| *page).collect();
        undone.chunks(8).for_each(|pages| self.free(pages));
    }

    fn compare(&self) {
        let clean = |page: &PageId| !self.dirty.contains_key(page) && !self.empty.contains_key(page);
        for (page, incarnation) in self.pages.iter().filter(|(page, _)| clean(page)) {
            let newest = *incarnation.changes.last().expect("it has one");
            let ((found, _), bytes) = read(&self.cache, *page).expect("read");
            assert!(
                found == newest && bytes == image(*page, newest),
                "{page} is found in {found}, not {newest}"
            );
        }
    }
}

/// A page with content.
fn pick(rng: &mut Rng, world: &World) -> Option<PageId> {
    let at = rng.below(world.pages.len().max(1) as u64) as usize;
    world.pages.keys().nth(at).copied().filter(|page| !world.empty.contains_key(page))
}

/// Returns the number of images of freed pages, or of earlier incarnations, that crashes left.
fn run(seed: u64, chosen: CacheOptions) -> u64 {
    let mut rng = Rng::new(seed);
    let mut world = World::new(chosen);
    let mut leaving = false;
    for _ in 0..60 {
        world.allocate();
    }
    for step in 0..600 {
        match rng.below(24) {
            0..=2 => world.allocate(),
            3 => world.allocate_empty(),
            4..=8 => pick(&mut rng, &world).into_iter().for_each(|page| world.change(page)),
            9..=16 => pick(&mut rng, &world).into_iter().for_each(|page| world.evict(page)),
            17 | 18 => pick(&mut rng, &world).into_iter().for_each(|page| world.free(&[page])),
            // A dropped table: its page numbers are allocated again in other tables.
            19 if rng.one_in(6) => {
                let drawn = |page: &PageId| !world.empty.contains_key(page) && rng.one_in(2);
                let some: Vec<PageId> = world.pages.keys().copied().filter(drawn).collect();
                some.chunks(8).for_each(|pages| world.free(pages));
                for at in 0..some.len() {
                    if at % 2 == 0 { world.allocate() } else { world.allocate_empty() }
                }
            }
            19 if rng.one_in(2) => world.write_shadows(),
            20 if rng.one_in(2) => world.checkpoint(),
            21 if rng.one_in(8) && !chosen.write_through => {
                leaving = !leaving;
                world.cache.set_leaving(leaving);
            }
            22 if leaving => drop(world.cache.leave_step().expect("a step")),
            23 if rng.one_in(3) => {
                world.crash();
                leaving = false;
                if rng.one_in(2) {
                    world.checkpoint();
                }
                if rng.one_in(2) {
                    world.crash();
                }
            }
            _ => drop(world.cache.step().expect("a step")),
        }
        if step % 10 == 0 {
            world.compare();
        }
    }
    world.crash();
    // Like the end of recovery: redone images replace those that the crash left.
    let redone: Vec<PageId> = world.dirty.keys().copied().collect();
    redone.into_iter().for_each(|page| world.evict(page));
    world.checkpoint();
    world.compare();
    let mut faults = Vec::new();
    PageCache::check(&world.cache, &mut |fault| faults.push(fault)).expect("checked");
    assert_eq!(faults, Vec::<String>::new());
    world.reused
}

#[test]
fn no_page_is_found_in_an_earlier_incarnation() {
    for policy in [CachePolicy::Keeping, CachePolicy::GroupSecondChance, CachePolicy::Fifo] {
        for write_through in [false, true] {
            let chosen = CacheOptions { policy, write_through, ..small() };
            let found: u64 = (0..30).map(|seed| run(seed, chosen)).sum();
            assert!(
                found > 30,
                "crashes found {found} images of earlier incarnations: else this shows nothing"
            );
        }
    }
}

/// `FIRN_SEEDS=2000 cargo test --release -p firndb-tier --lib -- --ignored incarnation_long`
#[test]
#[ignore = "as long as FIRN_SEEDS says"]
fn no_page_is_found_in_an_earlier_incarnation_long() {
    let seeds = number_from("FIRN_SEEDS").unwrap_or(500);
    for seed in 1000..1000 + seeds {
        let policy = [CachePolicy::Keeping, CachePolicy::GroupReplacement][seed as usize % 2];
        run(seed, CacheOptions { policy, write_through: seed % 3 == 0, ..small() });
    }
}

#[test]
fn freeing_everything_writes_nothing_and_keeps_no_log() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(70);
    for _ in 0..3 {
        pages
            .chunks(4)
            .for_each(|chunk| rig.write(chunk).into_iter().for_each(|outcome| assert!(outcome.is_ok())));
    }
    rig.cache.sync().unwrap();
    let before = rig.cache.cache_statistics();
    assert!(before.pages_valid > 20);
    rig.publish(&[], &pages);
    let from_cache = |rig: &Rig| rig.cache.oldest_needed_lsn() != rig.store.oldest_needed_lsn();
    assert!(!from_cache(&rig), "the log is not kept for pages that are freed");
    rig.cache.sync().unwrap();
    let after = rig.cache.cache_statistics();
    assert_eq!(after.pages_valid, 0);
    assert_eq!(after.write_bytes, before.write_bytes, "nothing is written for them");
}

/// Tombstones of freed pages cost nothing, and a restart finds few stale images.
#[test]
fn a_restart_finds_little_of_pages_that_were_freed_while_others_came_in() {
    let mut rig = Rig::new(CacheOptions { bytes: 300_000, ..small() });
    let pages = rig.allocate(120);
    pages
        .chunks(4)
        .for_each(|chunk| rig.write(chunk).into_iter().for_each(|outcome| assert!(outcome.is_ok())));
    rig.publish(&[], &pages[..60]);
    for page in &pages[..60] {
        rig.written.remove(page);
    }
    rig.write(&pages[60..100]).into_iter().for_each(|outcome| assert!(outcome.is_ok()));
    rig.cache.sync().unwrap();
    let end = rig.log.end();
    let store_device = Arc::new(rig.store_device.duplicate());
    let store = Arc::new(Store::open_with(store_device, DATABASE, options(), POLICY).unwrap());
    let durable = rig.cache.state().durable;
    let device = Arc::new(rig.cache_device.duplicate());
    let policy = CachePolicy::GroupSecondChance;
    let cache = FlashCache::open(site(device, store), policy, durable, end..end).unwrap();
    assert_eq!(cache.cache_statistics().pages_valid, rig.cache.cache_statistics().pages_valid);
    compare(&cache, &rig.written);
}
