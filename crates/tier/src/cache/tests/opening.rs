//! Which contents of a cache's device an opening accepts, and which it refuses.

use super::harness::*;
use crate::cache::FlashCache;
use crate::error::TierErrorKind;
use crate::page_cache::header::CacheId;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{CacheOptions, CacheSite, PageCache};
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Lsn, PageId};
use firndb_device::{Counting, Device, Durability, Fill, MemoryDevice};

const POLICY: CachePolicy = CachePolicy::GroupSecondChance;

/// A cache with a ring that wrapped around a few times, all of it durable.
fn round() -> (Rig, Vec<PageId>) {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(70);
    for _ in 0..3 {
        for chunk in pages.chunks(4) {
            rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
        }
    }
    rig.cache.sync().unwrap();
    (rig, pages)
}

fn refused(rig: &Rig, device: Arc<MemoryDevice>, durable: u64) -> String {
    let error = rig.reopened_on(device, POLICY, durable).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Damaged, "{error}");
    error.to_string()
}

#[test]
fn a_cache_comes_back_with_all_that_was_durable() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(CacheOptions { bytes: 60_000 + rng.below(100_000), ..small() });
        let pages = rig.allocate(120);
        for _ in 0..rng.between(1, 90) {
            let first = rng.below(pages.len() as u64 - 4) as usize;
            rig.write(&pages[first..first + 4])
                .into_iter()
                .for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
            if rng.one_in(4) {
                let page = pages[rng.below(120) as usize];
                let _ = read(&rig.cache, page);
            }
        }
        rig.cache.sync().unwrap();
        let (_store, cache) = rig.reopened(POLICY).unwrap();
        compare(&cache, &rig.written);
        let (before, after) = (rig.cache.cache_statistics(), cache.cache_statistics());
        assert_eq!(after.pages_valid, before.pages_valid, "seed {seed}");
        assert_eq!(cache.state().durable, rig.cache.state().durable);
    }
}

/// A page that was allocated and read, and not written yet, is clean in the version of its
/// allocation.
#[test]
fn no_group_is_written_before_the_log_of_its_clean_pages() {
    let rig = Rig::new(small());
    let pages = rig.allocate(4);
    let (version, durable) = (rig.log.records().last().expect("the allocation").lsn, rig.log.durable());
    assert!(durable <= version);
    assert_eq!(rig.offer(&pages, &[version; 4], false), vec![Ok(Took::Taken); 4]);
    assert_eq!(rig.cache.state().durable, 1, "a full group is written");
    assert!(rig.log.durable() > version, "the next opening refuses it if the power fails now");
}

/// The process that wrote it may have ended before it synced the group.
#[test]
fn a_group_that_is_not_known_to_be_durable_is_synced_before_it_counts() {
    let (rig, _) = round();
    let durable = rig.cache.state().durable;
    for (known, syncs) in [(durable, 0), (durable - 1, 1)] {
        let device = Arc::new(Counting::new(Arc::new(rig.cache_device.duplicate())));
        let (_store, cache) = rig.reopened_on(device.clone(), POLICY, known).unwrap();
        assert_eq!(cache.state().durable, durable);
        assert_eq!(device.snapshot().syncs, syncs);
    }
}

#[test]
fn segments_that_are_torn_are_made_up_for() {
    let mut rng = Rng::new(4);
    let (rig, _) = round();
    for _ in 0..30 {
        let device = Arc::new(rig.cache_device.duplicate());
        // Between the headers and the groups lie segments only.
        let groups_at = rig.cache.groups_begin();
        let mut block = [0; 512];
        for _ in 0..rng.between(1, 40) {
            let at = 8192 + rng.below((groups_at - 8192) / 512) * 512;
            device.read(at, &mut block).unwrap();
            block[rng.below(512) as usize] ^= 1 << rng.below(8);
            device.write(at, &block, Durability::Later).unwrap();
        }
        let (_store, cache) = rig.reopened_on(device, POLICY, rig.cache.state().durable).unwrap();
        compare(&cache, &rig.written);
    }
}

#[test]
fn damage_of_images_and_headers_is_noticed_or_does_not_matter() {
    let (rig, _) = round();
    let durable = rig.cache.state().durable;
    let mut rng = Rng::new(5);
    let (mut refusals, mut errors, mut fine) = (0, 0, 0);
    for _ in 0..150 {
        let device = Arc::new(rig.cache_device.duplicate());
        let groups_at = rig.cache.groups_begin();
        let at = groups_at + rng.below((device.len() - groups_at) / 512) * 512;
        let mut block = [0; 512];
        device.read(at, &mut block).unwrap();
        block[rng.below(512) as usize] ^= 1 << rng.below(8);
        device.write(at, &block, Durability::Later).unwrap();
        match rig.reopened_on(device, POLICY, durable) {
            Err(error) => {
                assert_eq!(error.kind, TierErrorKind::Damaged);
                refusals += 1;
            }
            Ok((_store, cache)) => {
                for (page, version) in &rig.written {
                    match read(&cache, *page) {
                        Ok(((found, _), bytes)) => {
                            assert!(found == *version && bytes == image(*page, *version), "{page} at {at}");
                            fine += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind, TierErrorKind::Damaged);
                            assert!(error.message.contains("Restore"), "{}", error.message);
                            errors += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(refusals > 0 && errors > 0 && fine > 0, "{refusals} {errors} {fine}");
}

#[test]
fn older_copies_lost_ends_and_strangers_are_refused() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(50);
    rig.write(&pages[..20]).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    rig.cache.sync().unwrap();
    let older = rig.cache_device.duplicate();
    rig.write(&pages).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    rig.cache.sync().unwrap();
    let durable = rig.cache.state().durable;
    let why = refused(&rig, Arc::new(older), durable);
    assert!(why.contains("was durable"), "{why}");
    // Pages of versions that this log never had.
    let store = Arc::new(rig.store_device.duplicate());
    let store = crate::store::Store::open_with(store, DATABASE, options(), super::harness::POLICY).unwrap();
    let device = Arc::new(rig.cache_device.duplicate());
    let log = Lsn::FIRST..Lsn(rig.written[&pages[0]].0);
    let error = FlashCache::open(site(device, Arc::new(store)), POLICY, durable, log).unwrap_err();
    assert!(error.kind == TierErrorKind::Damaged && error.message.contains("the log ends"), "{error}");
    // Another cache of this database, another database's, something else, nothing.
    let blank = Arc::new(MemoryDevice::new("cache"));
    refused(&rig, blank.clone(), durable);
    blank.grow(1 << 20, Fill::Sparse).unwrap();
    refused(&rig, blank.clone(), durable);
    let open = |database: DatabaseId, cache: CacheId| {
        let device: Arc<dyn Device> = Arc::new(rig.cache_device.duplicate());
        let site = CacheSite { device, store: rig.store.clone(), database, cache };
        FlashCache::open(site, POLICY, durable, Lsn(0)..Lsn::MAX)
    };
    assert!(open(DATABASE, CACHE).is_ok());
    assert_eq!(open(DatabaseId([1; 16]), CACHE).unwrap_err().kind, TierErrorKind::Damaged);
    assert_eq!(open(DATABASE, CacheId([1; 16])).unwrap_err().kind, TierErrorKind::Damaged);
    // A creation overwrites none of them, except a cache of this database.
    let create = |device: Arc<MemoryDevice>, database| {
        FlashCache::create(CacheSite { database, ..site(device, rig.store.clone()) }, small())
    };
    let stranger = Arc::new(rig.cache_device.duplicate());
    assert_eq!(create(stranger, DatabaseId([1; 16])).unwrap_err().kind, TierErrorKind::BadArgument);
    let other = Arc::new(MemoryDevice::new("cache"));
    other.grow(1 << 20, Fill::Sparse).unwrap();
    other.write(512, &[1; 512], Durability::Later).unwrap();
    assert_eq!(create(other, DATABASE).unwrap_err().kind, TierErrorKind::BadArgument);
    let again = create(Arc::new(rig.cache_device.duplicate()), DATABASE).unwrap();
    assert_eq!(again.cache_statistics().pages_valid, 0);
}

#[test]
fn a_page_that_was_freed_is_never_found_again() {
    let (mut rig, pages) = round();
    // Freed and not allocated again: no image of it is found.
    rig.publish(&[], &pages[60..]);
    // Freed and allocated again: the new incarnation begins with nothing.
    let mut again = Vec::new();
    for _ in 0..10 {
        rig.log.tick();
        crate::store::Journal::flush(&*rig.log, Lsn(rig.log.end().0)).unwrap();
        again.extend(rig.allocate(1));
    }
    let reused: Vec<PageId> = again.iter().copied().filter(|page| pages.contains(page)).collect();
    assert!(!reused.is_empty());
    for page in &pages[60..] {
        rig.written.remove(page);
    }
    let look = |cache: &FlashCache| {
        for page in &pages[60..] {
            match read(cache, *page) {
                Ok((_, bytes)) => {
                    assert!(reused.contains(page) && bytes.iter().all(|byte| *byte == 0), "{page}");
                }
                Err(error) => assert_eq!(error.kind, TierErrorKind::NotAllocated),
            }
        }
        compare(cache, &rig.written);
    };
    look(&rig.cache);
    // Until the new pages enter the cache, the log from their allocation on is kept, and recovery
    // reads it.
    let (_store, cache) = rig.reopened(POLICY).unwrap();
    look(&cache);
    // After that, their younger images replace the old ones; pages that are not allocated again
    // only the store knows.
    rig.write(&reused).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    rig.cache.sync().unwrap();
    let store_device = Arc::new(rig.store_device.duplicate());
    let store =
        crate::store::Store::open_with(store_device, DATABASE, options(), super::harness::POLICY).unwrap();
    let store = Arc::new(store);
    let end = rig.log.end();
    let cache_device = Arc::new(rig.cache_device.duplicate());
    let durable = rig.cache.state().durable;
    let cache = FlashCache::open(site(cache_device, store.clone()), POLICY, durable, end..end).unwrap();
    compare(&cache, &rig.written);
    let freed = pages[60..].iter().filter(|page| !reused.contains(page));
    freed.for_each(|page| assert_eq!(store.version_of(*page), Ok(None), "{page}"));
    let mut faults = Vec::new();
    cache.check(&mut |fault| faults.push(fault)).unwrap();
    assert_eq!(faults, Vec::<String>::new(), "what is left of freed pages is no fault");
}

/// Otherwise the checkpoint between the store's record and the group may truncate the record: then
/// a restart would accept the older image, in a group that was durable long before.
#[test]
fn an_image_written_through_is_not_older_than_the_store_after_a_crash() {
    let mut rig = Rig::new(CacheOptions { write_through: true, ..small() });
    let pages = rig.allocate(8);
    rig.write(&pages).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    rig.cache.sync().unwrap();
    assert_eq!(rig.cache.oldest_needed_lsn(), None);
    assert_eq!(rig.write(&pages[..1]), [Ok(Took::Taken)]);
    // The store's metadata is written, as happens when much of it has changed; the group stays
    // open.
    rig.store.sync().unwrap();
    let redo_start = rig.cache.oldest_needed_lsn().unwrap_or(rig.log.end());
    let store_device = Arc::new(rig.store_device.duplicate());
    let store =
        crate::store::Store::open_with(store_device, DATABASE, options(), super::harness::POLICY).unwrap();
    let store = Arc::new(store);
    let log = redo_start..rig.log.end();
    let device = Arc::new(rig.cache_device.duplicate());
    let durable = rig.cache.state().durable;
    let cache = FlashCache::open(site(device, store.clone()), POLICY, durable, log.clone()).unwrap();
    let kept = rig.log.records().into_iter().filter(|logged| logged.lsn >= redo_start);
    for logged in kept.filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
        store.redo(logged.lsn, logged.record()).unwrap();
        cache.redo(logged.lsn, logged.record()).unwrap();
    }
    store.finish_redo(log.end).unwrap();
    compare(&cache, &rig.written);
}
