//! Delta pages of which the device has something else than was written, and those that were empty
//! when the store was closed: a walk of the map counts what lives on them.

use super::delta_damage::{AT_ONCE, Rig, rig};
use super::delta_model::read_found;
use super::harness::*;
use super::map_damage::{failing, slots_of};
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::geometry::Place;
use crate::store::{Journal, Store};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Device, Durability};

fn free_empty(rig: &Rig) {
    rig.log.flush(rig.log.end()).unwrap();
    rig.store.free_empty_delta_pages().unwrap();
    rig.log.flush(rig.log.end()).unwrap();
}

/// Has `pages` changed until their slots lie on the delta page at `place`, which is free.
fn change_until_at(rig: &Rig, pages: &[PageId], place: Place) {
    for round in 0..200 {
        rig.change(pages, 8 * (round % 50));
        if rig.slot(pages[0]).is_some_and(|at| at.place == place) {
            return;
        }
        free_empty(rig);
    }
    panic!("the place is used again sooner or later");
}

/// The store opened again, all delta pages looked at.
fn reopened(rig: &Rig) -> Store {
    reopened_over(rig, rig.device.clone())
}

/// As `reopened`, over another device.
fn reopened_over(rig: &Rig, device: Arc<dyn Device>) -> Store {
    rig.store.sync().unwrap();
    rig.log.flush(rig.log.end()).unwrap();
    let (records, end) = (rig.log.records(), rig.log.end());
    let store = recover_under(AT_ONCE, device, &records, Lsn::ZERO, Lsn::FIRST, end).unwrap();
    store.attach_journal(rig.log.clone());
    for _ in 0..200 {
        if store.learn_step(true).unwrap() == Progress::Idle {
            return store;
        }
    }
    panic!("learning ends");
}

/// Cause: after an opening the slots on a delta page were counted by what the page held. Effect:
/// where its write had been lost, it was freed although entries named it, and the counts of the
/// next page there were wrong: that one was freed with slots that live.
#[test]
fn a_delta_page_of_which_the_write_was_lost_is_free_when_no_entry_names_it() {
    for lost in [true, false] {
        let rig = rig(AT_ONCE, 12);
        rig.change(&rig.pages[..3], 40);
        let place = rig.slot(rig.pages[0]).expect("a delta").place;
        let mut before = vec![0; PAGE_SIZE];
        rig.device.read(rig.store.geometry.place_offset(place), &mut before).unwrap();
        rig.change(&rig.pages[..3], 80);
        free_empty(&rig);
        let there = &rig.pages[6..9];
        change_until_at(&rig, there, place);
        // What was there before; or nothing that can be read.
        let found = if lost { before } else { vec![0x5A; PAGE_SIZE] };
        rig.device.write(rig.store.geometry.place_offset(place), &found, Durability::Later).unwrap();
        let store = reopened(&rig);
        assert_eq!(store.state.lock().deltas.live.slots(&store.geometry, place), None);
        store.walk_all().unwrap();
        store.free_empty_delta_pages().unwrap();
        assert_eq!(store.state.lock().deltas.live.slots(&store.geometry, place), Some(3));
        for page in &rig.pages {
            match read_found(&store, *page) {
                Ok(_) => assert!(!there.contains(page)),
                Err(error) => assert!(there.contains(page) && error.kind == TierErrorKind::Damaged),
            }
        }
        // Written anew, its pages name it no longer.
        let before = store.state.lock().totals().delta_pages;
        assert!(write(&store, &rig.log, there).iter().all(|(_, outcome)| outcome.is_ok()));
        assert_eq!(store.state.lock().deltas.live.empty(9), [place]);
        store.free_empty_delta_pages().unwrap();
        assert_eq!(store.state.lock().totals().delta_pages, before - 1);
        assert_eq!(store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
    }
}

/// Entries cease to name a page while it is counted, on both sides of where the walk is.
#[test]
fn a_walk_counts_what_is_named_when_it_ends() {
    let rig = rig(AT_ONCE, 120);
    let far: Vec<PageId> = [1, 2, 50, 51, 110, 111].iter().map(|at| rig.pages[*at]).collect();
    rig.change(&far, 40);
    let place = rig.slot(far[0]).expect("a delta").place;
    assert!(far.iter().all(|page| rig.slot(*page).is_some_and(|at| at.place == place)));
    rig.device.write(rig.store.geometry.place_offset(place), &[0x5A; PAGE_SIZE], Durability::Later).unwrap();
    let store = reopened(&rig);
    {
        // The first two map pages.
        let _flushing = store.flushing.lock();
        for map in 0..2 {
            let _pins = store.pin(&[crate::store::meta_page::MetaId::Map(map)]).unwrap();
            let state = &mut *store.state.lock();
            assert_eq!(state.deltas.live.walk_from(), map);
            state.deltas.live.walked([place, place].into_iter());
        }
    }
    // One before, one behind.
    for page in [far[0], far[4]] {
        assert!(write(&store, &rig.log, &[page])[0].1.is_ok());
    }
    store.walk_all().unwrap();
    assert_eq!(store.state.lock().deltas.live.slots(&store.geometry, place), Some(4));
    assert!(write(&store, &rig.log, &far).iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(store.state.lock().deltas.live.empty(9), [place]);
}

#[test]
fn a_delta_page_that_was_empty_when_the_store_was_closed_becomes_free() {
    let rig = rig(AT_ONCE, 12);
    rig.change(&rig.pages[..3], 40);
    rig.store.write_whole(&rig.pages[..3]).unwrap();
    assert_eq!(rig.store.state.lock().totals().delta_pages, 1);
    let store = reopened(&rig);
    assert_eq!(store.state.lock().totals().delta_pages, 1);
    assert!(store.give_up_delta_pages().unwrap());
    assert_eq!(store.state.lock().totals().delta_pages, 0);
}

/// Cause: one failed read of a map page ended the walk, and forgot what it counted. Effect: the
/// delta pages were not freed before the next opening.
#[test]
fn a_walk_goes_on_when_the_map_page_can_be_read_that_it_met() {
    let rig = rig(AT_ONCE, 120);
    rig.change(&rig.pages[..3], 40);
    rig.store.write_whole(&rig.pages[..3]).unwrap();
    sweep(&rig.store);
    let map = rig.store.geometry.map_of_page(rig.pages[119]);
    assert_ne!(map, rig.store.geometry.map_of_page(rig.pages[0]));
    let fails = Arc::new(AtomicBool::new(false));
    let store = reopened_over(&rig, failing(&rig.device, slots_of(&rig.store, map), &fails));
    store.state.lock().cache.forget([map].into_iter());
    fails.store(true, Relaxed);
    let delta_pages = || store.state.lock().totals().delta_pages;
    assert!(!store.give_up_delta_pages().unwrap());
    assert!(!store.give_up_delta_pages().unwrap(), "it ends each time");
    fails.store(false, Relaxed);
    assert_eq!(delta_pages(), 1);
    assert!(store.give_up_delta_pages().unwrap());
    assert_eq!(delta_pages(), 0);
    assert_eq!(store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}
