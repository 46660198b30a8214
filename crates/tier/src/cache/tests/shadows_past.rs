//! The first content of pages, which no log has, by-passes the cache.

use super::harness::*;
use crate::cache::FlashCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::{CacheOptions, PageCache};
use crate::page_tier::{PageTier, PageWrite};
use crate::store::{Journal, Store};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_log::LogClass;

/// Allocates pages without content and gives them theirs; returns their versions.
fn write_shadows(rig: &mut Rig, pages: &[PageId]) {
    let images: Vec<_> = pages.iter().map(|page| (*page, rig.log.tick())).collect();
    let contents: Vec<_> = images.iter().map(|(page, version)| image(*page, *version)).collect();
    let each = images.iter().zip(&contents);
    let mut writes: Vec<_> =
        each.map(|((page, version), data)| PageWrite::back(*page, *version, Lsn::MAX, data)).collect();
    rig.cache.write_shadows(&mut writes);
    assert!(writes.iter().all(PageWrite::is_taken), "{:?}", writes[0].outcome);
    rig.written.extend(images);
    rig.log.flush(rig.log.end()).unwrap();
}

/// Frees pages, and takes the same numbers into use.
fn renew(rig: &mut Rig, pages: &[PageId]) -> Vec<PageId> {
    rig.publish(&[], pages);
    pages.iter().for_each(|page| _ = rig.written.remove(page));
    rig.log.flush(rig.log.end()).unwrap();
    let mut renewed: Vec<PageId> = Vec::new();
    while renewed.len() < pages.len() {
        let page = rig.cache.reserve(LogClass::Normal).unwrap();
        if pages.contains(&page) {
            renewed.push(page);
        }
    }
    rig.publish(&renewed, &[]);
    renewed
}

/// Checks what a restart finds that reads no more log than the cache needs.
fn assert_found_with_needed_log(rig: &Rig) {
    let end = rig.log.end();
    let from = rig.cache.pending.lock().needed_from().unwrap_or(end);
    let store_device = Arc::new(rig.store_device.duplicate());
    let store = Arc::new(Store::open_with(store_device, DATABASE, options(), POLICY).unwrap());
    let device = Arc::new(rig.cache_device.duplicate());
    let (policy, durable) = (CachePolicy::GroupSecondChance, rig.cache.state().durable);
    let cache = FlashCache::open(site(device, store.clone()), policy, durable, from..end).unwrap();
    for logged in rig.log.records().iter().filter(|logged| (0x10..0x20).contains(&logged.kind.0)) {
        // The store needs more of it.
        store.redo(logged.lsn, logged.record()).unwrap();
        if logged.lsn >= from {
            cache.redo(logged.lsn, logged.record()).unwrap();
        }
    }
    store.finish_redo(end).unwrap();
    compare(&cache, &rig.written);
}

#[test]
fn no_restart_finds_an_earlier_incarnation_instead() {
    for write_through in [false, true] {
        let mut rig = Rig::new(CacheOptions { write_through, ..small() });
        let pages = rig.allocate(12);
        rig.write(&pages).into_iter().for_each(|outcome| assert!(outcome.is_ok()));
        rig.cache.sync().unwrap();
        let renewed = renew(&mut rig, &pages[..6]);
        write_shadows(&mut rig, &renewed);
        rig.compare();
        let needed = rig.cache.pending.lock().needed_from();
        assert!(needed.is_some(), "the log is kept that tells of them");
        assert_found_with_needed_log(&rig);
        rig.cache.sync().unwrap();
        assert_eq!(rig.cache.pending.lock().needed_from(), None, "a header does");
        assert_found_with_needed_log(&rig);
    }
}

/// The buffer may hand the cache an image that it copied before the page was freed, after another
/// transaction has allocated the page's number again: while no frame holds the new page, no newer
/// image replaces that one.
#[test]
fn a_late_image_of_an_earlier_incarnation_is_not_found() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(12);
    rig.write(&pages).into_iter().for_each(|outcome| assert!(outcome.is_ok()));
    let version = rig.log.tick();
    rig.log.flush(rig.log.end()).unwrap();
    let renewed = renew(&mut rig, &pages[..1]);
    rig.offer(&renewed, &[version], true);
    write_shadows(&mut rig, &renewed);
    rig.compare();
    rig.write(&pages[1..9]).into_iter().for_each(|outcome| assert!(outcome.is_ok()));
    rig.cache.sync().unwrap();
    rig.compare();
    assert_found_with_needed_log(&rig);
}

/// Many at once: more tombstones are owed than one header holds.
#[test]
fn tombstones_owed_are_bounded() {
    let mut rig = Rig::new(small());
    for _ in 0..20 {
        let pages = rig.allocate(40);
        write_shadows(&mut rig, &pages);
        let owed = rig.cache.pending.lock().owed();
        assert!(owed < rig.cache.geometry.tombstones_beside(0), "{owed}");
        rig.compare();
        rig.publish(&[], &pages);
        rig.written.clear();
    }
}
