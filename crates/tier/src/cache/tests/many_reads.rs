//! Batches of reads through the cache: adjacent images are one request, and each page has its own
//! outcome.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::testing::Took;
use crate::testing::small_store::{WAYS, read_as_they_come, read_many};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{
    Calls, Counting, Device, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, Faulty, When,
};
use firndb_testkit::hooked::Trap;

/// Writes 60 pages, of which some lie in the cache and some in the store; returns them in no
/// order.
fn fill(rig: &mut Rig) -> Vec<PageId> {
    let mut pages = rig.allocate(60);
    for chunk in pages.chunks(4) {
        rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    }
    pages.sort_unstable_by_key(|page| page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    pages
}

/// Pages that a batch reads from the cache's device, and the requests it needs.
fn on_flash(rig: &Rig, pages: &[PageId]) -> (Vec<PageId>, usize) {
    let open = rig.cache.rear();
    let hits = pages.iter().filter_map(|page| Some((*page, rig.cache.hit(*page)?)));
    let hits: Vec<_> = hits.filter(|(_, hit)| hit.serial != open).collect();
    let mut slots: Vec<(u64, u64)> = hits
        .iter()
        .map(|(_, hit)| {
            let reach = rig.cache.reach(*hit);
            (reach.offset, reach.offset + reach.len as u64)
        })
        .collect();
    slots.sort_unstable();
    let requests = slots.chunk_by(|a, b| b.0 <= a.1).count();
    (hits.into_iter().map(|(page, _)| page).collect(), requests)
}

fn expect(rig: &Rig, page: PageId, read: &crate::testing::small_store::ReadPage) {
    let ((version, _), bytes) = read.as_ref().unwrap();
    assert_eq!(*version, rig.written[&page], "{page}");
    assert!(*bytes == image(page, *version), "{page} has other bytes than its version {version}");
}

#[test]
fn adjacent_images_are_read_by_one_request() {
    let mut counting = None;
    let mut rig = Rig::with(small(), |device| {
        let device = Arc::new(Counting::new(device));
        counting = Some(device.clone());
        device
    });
    let pages = fill(&mut rig);
    let counting = counting.unwrap();
    let (flash, requests) = on_flash(&rig, &pages);
    assert!(requests * 3 < flash.len(), "{requests} requests for {} images", flash.len());
    let (before, counted) = (rig.cache.cache_statistics(), counting.snapshot());
    let read = read_many(&rig.cache, &pages);
    let now = rig.cache.cache_statistics();
    assert_eq!(counting.snapshot().reads.since(counted.reads).ops, requests as u64);
    assert_eq!(now.read_requests - before.read_requests, requests as u64);
    assert_eq!(now.hits - before.hits + now.misses - before.misses, 60);
    pages.iter().zip(&read).for_each(|(page, read)| expect(&rig, *page, read));
}

#[test]
fn a_request_that_fails_is_repeated_image_by_image() {
    for nth in 0.. {
        let way = WAYS[nth as usize % 2];
        let plan = FaultPlan::new(nth);
        let mut rig = Rig::with(small(), |device| Arc::new(Faulty::new(device, &plan)));
        let pages = fill(&mut rig);
        let fault = Fault::Fail(DeviceErrorKind::Failed);
        let device = Some("cache".to_owned());
        plan.add(FaultRule { calls: Calls::Reads, device, when: When::Nth(nth), fault });
        let read = way(&rig.cache, &pages);
        let harmed = read.iter().filter(|read| read.is_err()).count();
        assert!(harmed <= 1, "the {nth}th read fails, and {harmed} pages cannot be read");
        for (page, read) in pages.iter().zip(&read).filter(|(_, read)| read.is_ok()) {
            expect(&rig, *page, read);
        }
        if plan.fired() == 0 {
            assert!(nth > 1 && harmed == 0, "{nth} requests");
            break;
        }
        rig.compare();
    }
}

#[test]
fn a_damaged_image_in_a_merged_request_harms_one_page() {
    for write_through in [false, true] {
        let mut rig = Rig::new(CacheOptions { write_through, ..small() });
        let pages = fill(&mut rig);
        let (flash, _) = on_flash(&rig, &pages);
        let offset = rig.cache.image_offset(flash[3]).unwrap();
        rig.cache_device.write(offset, &[0xEE; 512], Durability::Later).unwrap();
        // The write-through cache has forgotten it after the first.
        let way = if write_through { read_as_they_come } else { read_many };
        for (page, read) in pages.iter().zip(way(&rig.cache, &pages)) {
            if *page == flash[3] && !write_through {
                assert_eq!(read.unwrap_err().kind, TierErrorKind::Damaged);
            } else {
                expect(&rig, *page, &read);
            }
        }
        assert_eq!(rig.cache.cache_statistics().faults, u64::from(write_through));
    }
}

/// While the images are read all pages are written again, so that every group is replaced.
#[test]
fn a_batch_overtaken_by_replacement_is_repeated() {
    let trap = Trap::default();
    let mut rig = Rig::with(small(), |device| trap.over_reads(device));
    let pages = fill(&mut rig);
    let (log, written) = (rig.log.clone(), rig.written.clone());
    let cache = Arc::new(rig.cache);
    let overtake = {
        let (cache, log, pages) = (cache.clone(), log.clone(), pages.clone());
        move || {
            for page in pages.iter().chain(&pages) {
                let version = log.tick();
                crate::testing::small_store::offer_durable(&*cache, &log, (*page, version), true).unwrap();
            }
        }
    };
    trap.set(overtake);
    let read = read_many(&*cache, &pages);
    assert!(!trap.is_set(), "the pages were written during the read");
    let mut newer = 0;
    for (page, read) in pages.iter().zip(read) {
        let ((version, _), bytes) = read.unwrap();
        assert!(bytes == image(*page, version) && version > Lsn::ZERO);
        newer += usize::from(version > written[page]);
    }
    assert!(newer > 0, "what was replaced is looked up again");
}
