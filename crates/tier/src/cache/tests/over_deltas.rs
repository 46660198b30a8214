//! A cache over a store whose write buffer of deltas is volatile: what the cache drops, or takes
//! for clean, the store has in records.

use super::harness::*;
use crate::page_cache::CacheOptions;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::{PageTier, PageWrite, Written};
use crate::store::{DeltaPolicy, Journal, Policy};
use crate::{Base, Changes};
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

const WAITING: Policy = Policy {
    deltas: DeltaPolicy { enabled: true, buffer_bytes: 1 << 20, pages_percent: 50, read_cost_percent: 0 },
    ..POLICY
};

/// Writes a new version of a page, with all of its changes in its first granules; returns it, and
/// the page's base then.
fn write_delta(rig: &Rig, tier: &dyn PageTier, page: PageId, base: Option<Base>) -> (Lsn, Option<Base>) {
    let version = rig.log.tick();
    rig.log.flush(rig.log.end()).unwrap();
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    data[..8].copy_from_slice(&version.0.to_le_bytes());
    let changes = if base.is_some() { Changes::of(0..8, PAGE_SIZE) } else { Changes::ALL };
    let mut writes = [PageWrite::back(page, version, version, &data).changed_since(base, changes)];
    tier.write_batch(&mut writes);
    let Ok(Written::Taken { base, .. }) = writes[0].outcome else { panic!("{:?}", writes[0].outcome) };
    (version, base)
}

/// Cause: the version waited in the store's write buffer when its image in the cache, clean by its
/// header, was durable. Effect: after a crash the cache dropped the only copy.
#[test]
fn an_image_that_is_clean_after_a_restart_is_in_the_store() {
    let chosen = CacheOptions { write_through: true, ..small() };
    let mut rig = Rig::under(WAITING, chosen, |device| device);
    let pages = rig.allocate(30);
    let (_, base) = write_delta(&rig, &*rig.store, pages[0], None);
    let (version, _) = write_delta(&rig, &rig.cache, pages[0], base);
    // Its group becomes full.
    assert!(rig.write(&pages[1..6]).iter().all(Result::is_ok));
    let (store, cache) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
    let ((found, is_dirty), _) = read(&cache, pages[0]).unwrap();
    assert_eq!((found, is_dirty), (version, false));
    assert_eq!(store.version_of(pages[0]), Ok(Some(version)));
}

/// Cause: as above, when a header made the page's older image invalid. Effect: a crash left the
/// store's image, from before log that was not kept.
#[test]
fn a_page_that_by_passes_a_cache_that_leaves_is_in_records_before_its_image_is_invalid() {
    let mut rig = Rig::under(WAITING, small(), |device| device);
    let pages = rig.allocate(30);
    let (_, base) = write_delta(&rig, &*rig.store, pages[0], None);
    let (first, _) = write_delta(&rig, &rig.cache, pages[0], base);
    assert!(rig.write(&pages[1..6]).iter().all(Result::is_ok));
    rig.cache.set_leaving(true);
    let (second, _) = write_delta(&rig, &rig.cache, pages[0], base);
    rig.cache.write_open_group().unwrap();
    let (_, cache) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
    let ((found, _), _) = read(&cache, pages[0]).unwrap();
    assert!(found == first || found == second, "{found}, not {first} nor {second}");
}

/// Cause: an older version was declined for a newer one that waited. Effect: the cache dropped the
/// older one with the newer nowhere but in memory.
#[test]
fn a_version_that_is_declined_for_one_that_waits_gives_that_one_a_record() {
    let rig = Rig::under(WAITING, small(), |device| device);
    let page = rig.allocate(1)[0];
    let (_, base) = write_delta(&rig, &*rig.store, page, None);
    let older = rig.log.tick();
    let (newer, _) = write_delta(&rig, &*rig.store, page, base);
    let recorded = || {
        let (store, _) = rig.reopened(CachePolicy::GroupSecondChance).unwrap();
        store.version_of(page)
    };
    assert_ne!(recorded(), Ok(Some(newer)), "it waits");
    let data = AlignedBuf::zeroed(PAGE_SIZE);
    let mut writes = [PageWrite::back(page, older, Lsn::MAX, &data)];
    rig.store.write_batch(&mut writes);
    assert_eq!(writes[0].outcome, Ok(Written::Declined));
    assert_eq!(recorded(), Ok(Some(newer)));
}
