//! What deltas hold until a record is durable, and what they do not: places, log, space.

use super::delta_damage::{AT_ONCE, WAITING, rig, rig_on};
use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::geometry::Place;
use crate::store::meta_page::MetaId;
use crate::store::segments::Stream;
use firndb_base::Lsn;
use firndb_device::MemoryDevice;
use std::collections::BTreeSet;

#[test]
fn a_flush_holds_the_log_until_its_record_is_durable() {
    let rig = rig(WAITING, 6);
    rig.store.sync().unwrap();
    rig.log.flush(rig.log.end()).unwrap();
    let first = rig.change(&rig.pages[..1], 0)[0].0;
    rig.store.settle_deltas(Lsn(u64::MAX)).unwrap();
    assert!(rig.slot(rig.pages[0]).is_some());
    assert_eq!(rig.store.oldest_needed_lsn(), Some(first), "a crash would undo the record");
    rig.log.flush(rig.log.end()).unwrap();
    assert!(rig.store.oldest_needed_lsn() > Some(first));
}

#[test]
fn a_freed_delta_page_is_used_again_when_its_record_is_durable() {
    let rig = rig(AT_ONCE, 6);
    rig.change(&rig.pages, 40);
    let place = rig.slot(rig.pages[0]).expect("a delta").place;
    rig.change(&rig.pages, 80);
    rig.log.flush(rig.log.end()).unwrap();
    rig.store.free_empty_delta_pages().unwrap();
    let take = |count: u64| -> BTreeSet<Place> {
        let places = (0..count).map(|_| rig.store.take_places(1, Stream::New).unwrap().remove(0));
        let places: Vec<Place> = places.collect();
        rig.store.drop_places(&places);
        places.into_iter().collect()
    };
    let free = rig.store.statistics().places_free;
    assert!(!take(free - 1).contains(&place), "its free may be undone by a crash");
    rig.log.flush(rig.log.end()).unwrap();
    assert!(take(free).contains(&place));
}

#[test]
fn delta_pages_are_given_up_before_a_store_is_full() {
    let device = MemoryDevice::with("small", 512, 256 * 1024 + 400_000);
    let mut rig = rig_on(device, AT_ONCE, 60);
    for page in &rig.pages {
        rig.change(&[*page], 40);
    }
    let deltas = rig.store.state.lock().totals().delta_pages;
    assert!(deltas > 20, "{deltas} delta pages, one for each page");
    let error = loop {
        match allocate(&rig.store, &rig.log, 1) {
            Ok(pages) => {
                let written = write(&rig.store, &rig.log, &pages).remove(0).1;
                assert!(written.is_ok(), "an allocated page can always be written: {written:?}");
                rig.pages.extend(pages);
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, TierErrorKind::Full);
    assert_eq!(rig.store.state.lock().totals().delta_pages, 0, "deltas do not make it full");
    for (_, outcome) in write(&rig.store, &rig.log, &rig.pages) {
        assert!(outcome.is_ok(), "an allocated page can always be written: {outcome:?}");
    }
    assert_eq!(rig.store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

/// A batch of pages that were written lately may be of as many map pages: pinning all of them would
/// exceed the map's budget, and read what the overlay has anyway.
#[test]
fn pages_that_the_overlay_knows_are_taken_and_flushed_without_their_map_pages() {
    let rig = rig(WAITING, 6);
    let maps: Vec<MetaId> = rig.pages.iter().map(|page| rig.store.geometry.map_of_page(*page)).collect();
    let in_memory = || maps.iter().any(|map| rig.store.state.lock().cache.contains(*map));
    rig.store.state.lock().cache.forget(maps.iter().copied());
    rig.change(&rig.pages, 0);
    assert_eq!(rig.store.state.lock().deltas.buffer.len(), 6, "taken as deltas");
    assert!(!in_memory());
    rig.store.settle_deltas(Lsn(u64::MAX)).unwrap();
    assert!(!in_memory());
    assert!(rig.pages.iter().all(|page| rig.slot(*page).is_some()));
}
