//! What deltas hold until a record is durable, and what they do not: places, log, space.

use super::delta_damage::{AT_ONCE, WAITING, rig, rig_on};
use super::delta_model::read_found;
use super::harness::*;
use super::map_damage::damage;
use crate::Changes;
use crate::error::TierErrorKind;
use crate::page_tier::{PageTier, PageWrite};
use crate::store::Journal;
use crate::store::geometry::Place;
use crate::store::meta_page::MetaId;
use crate::store::places::PlacesWanted;
use crate::store::segments::Stream;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, MemoryDevice};
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
        let places = (0..count).map(|_| {
            rig.store.take_places(&[PlacesWanted { code: 0, count: 1 }], Stream::New).unwrap().remove(0)
        });
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

/// Cause: a delta page with one slot of a damaged map page was not counted, and stayed the
/// emptiest. Effect: eight of them, and no other delta page was gathered any more.
#[test]
fn delta_pages_are_gathered_past_some_of_a_damaged_map_page() {
    let id = MetaId::Map(1);
    let mut rig = rig(AT_ONCE, 90);
    let is_of = |page: &PageId| rig.store.geometry.map_of_page(*page) == id;
    let (there, others): (Vec<PageId>, Vec<PageId>) = rig.pages.iter().partition(|page| is_of(page));
    there[..8].iter().for_each(|page| drop(rig.change(&[*page], 40)));
    others[..16].chunks(2).for_each(|pages| drop(rig.change(pages, 40)));
    let places: BTreeSet<Place> = others[..16].iter().map(|page| rig.slot(*page).unwrap().place).collect();
    assert_eq!((places.len(), rig.store.state.lock().totals().delta_pages), (8, 16));
    rig.log.flush(rig.log.end()).unwrap();
    sweep(&rig.store);
    rig.store.state.lock().cache.forget([id].into_iter());
    damage(&rig.store, &*rig.device, id);
    rig.store.policy.deltas.pages_percent = 1;
    let worked = (0..100).take_while(|_| rig.store.clean_deltas().unwrap() == Progress::Worked).count();
    assert!(worked > 0 && worked < 100, "{worked} steps");
    let left =
        others[..16].iter().filter(|page| rig.slot(**page).is_some_and(|at| places.contains(&at.place)));
    assert_eq!(left.count(), 0);
    damage(&rig.store, &*rig.device, id);
    assert_eq!(rig.store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

/// Cause: the map pages of a batch were pinned together. Effect: one that was damaged, and all
/// pages of the batch were written whole.
#[test]
fn pages_beside_one_of_a_damaged_map_page_are_taken_as_deltas() {
    let id = MetaId::Map(1);
    let rig = rig(WAITING, 90);
    let is_of = |page: &PageId| rig.store.geometry.map_of_page(*page) == id;
    let (there, others): (Vec<PageId>, Vec<PageId>) = rig.pages.iter().partition(|page| is_of(page));
    let pages: Vec<PageId> = there[..1].iter().chain(&others[..5]).copied().collect();
    let mut data = AlignedBuf::zeroed(PAGE_SIZE);
    let found: Vec<_> = pages.iter().map(|page| read_found(&rig.store, *page).unwrap().0).collect();
    rig.log.flush(rig.log.end()).unwrap();
    sweep(&rig.store);
    rig.store.state.lock().cache.forget([id].into_iter());
    damage(&rig.store, &*rig.device, id);
    let version = rig.log.tick();
    rig.log.flush(rig.log.end()).unwrap();
    data[..8].copy_from_slice(&version.0.to_le_bytes());
    let write = |(page, found): (&PageId, &crate::page_tier::Found)| {
        let changes = found.changes | Changes::of(0..8, PAGE_SIZE);
        PageWrite::back(*page, version, version, &data).changed_since(found.base, changes)
    };
    let mut writes: Vec<PageWrite<'_>> = pages.iter().zip(&found).map(write).collect();
    rig.store.write_batch(&mut writes);
    assert!(writes.iter().all(PageWrite::is_taken));
    assert_eq!(rig.store.state.lock().deltas.buffer.len(), 5);
}
