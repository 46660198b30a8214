//! What a device keeps although it was asked: it is asked again, and no place counts as having
//! space that has none.

use super::blocks::Blocks;
use super::discards::{mostly_freed, wait_no_longer};
use super::harness::*;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::store::geometry::Place;
use crate::store::meta_page::MetaId;
use crate::testing::Took;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::Device;

const ALL: std::ops::Range<u64> = 0..u64::MAX;

fn store_of(device: &Arc<Blocks>) -> (Arc<TestLog>, Store) {
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    (log, store)
}

/// As after a power cut when all log was durable.
fn reopen(device: &Arc<Blocks>, log: &Arc<TestLog>) -> Store {
    log.flush(log.end()).unwrap();
    let store = recover(device.clone(), &log.records(), Lsn::FIRST, log.end()).unwrap();
    store.attach_journal(log.clone());
    store
}

fn free(store: &Store, log: &TestLog, pages: &[PageId]) {
    publish(store, log, &[], pages).unwrap();
    log.flush(log.end()).unwrap();
}

fn give_back_all(store: &Store) {
    store.learn_all().unwrap();
    assert!((0..1000).any(|_| store.give_back_step().unwrap() == Progress::Idle));
}

fn compact(store: &Store) {
    store.begin_compaction();
    assert!((0..10_000).any(|_| store.compact_step().unwrap() == Progress::Idle));
    store.abandon_compaction();
}

fn end_of_groups(store: &Store) -> u64 {
    store.geometry.group_offset(store.state.lock().space.groups()).unwrap()
}

/// Puts pages into all places that the store has, and into those that it gets.
fn fill(store: &Store, log: &TestLog, batches: usize) {
    for _ in 0..batches {
        let pages = allocate(store, log, 50).unwrap();
        write(store, log, &pages).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    }
    log.flush(log.end()).unwrap();
}

/// Cause: that the file was not cut was known in memory only. Effect: it stayed long for good.
#[test]
fn a_tail_that_was_not_cut_is_cut_after_a_restart() {
    let device = Blocks::new();
    let (log, store) = store_of(&device);
    mostly_freed(&store, &log, &[]);
    device.set(|state| state.refuses_cuts = true);
    compact(&store);
    assert!(device.len() > end_of_groups(&store));
    drop(store);
    device.set(|state| state.refuses_cuts = false);
    let store = reopen(&device, &log);
    assert_eq!(store.give_back_step().unwrap(), Progress::Worked);
    assert_eq!(device.len(), end_of_groups(&store));
}

/// Cause: a group that was not cut off may be a hole, and `grow` of a device that is long enough
/// gives it no space. Effect: a write found the file system full, rather than growth.
#[test]
fn growth_into_a_hole_that_was_not_cut_gives_it_space() {
    for restarts in [false, true] {
        let device = Blocks::new();
        let (log, store) = store_of(&device);
        let last = *mostly_freed(&store, &log, &[499]).last().unwrap();
        give_back_all(&store);
        assert!(device.set(|state| state.discards) > 3);
        free(&store, &log, &[last]);
        device.set(|state| state.refuses_cuts = true);
        let groups = store.state.lock().space.groups();
        compact(&store);
        assert!(store.state.lock().space.groups() < groups - 2, "holes are beyond the end");
        let store = if restarts { reopen(&device, &log) } else { store };
        fill(&store, &log, 14);
        assert!(store.state.lock().space.groups() > groups);
        assert_eq!(device.set(|state| state.written_into_holes), 0, "after a restart: {restarts}");
        compare(&store, &fold(&log.records(), log.end()));
        assert!(!store.state.lock().discards.is_uncut, "all of the tail is in use");
    }
}

/// At each discard and each cut the power is cut: what counts as having space then has it. So the
/// record of a hole is durable before its discard, and the header before the cut.
#[test]
fn what_counts_as_having_space_has_it_after_a_power_cut() {
    let device = Blocks::new();
    let (log, store) = store_of(&device);
    let last = *mostly_freed(&store, &log, &[499]).last().unwrap();
    device.set(|state| state.log = Some(log.clone()));
    give_back_all(&store);
    let holes = device.set(|state| state.images.len());
    free(&store, &log, &[last]);
    give_back_all(&store);
    let images = std::mem::take(&mut device.set(|state| std::mem::take(&mut state.images)));
    assert!(holes > 3 && images.len() > holes + 3, "{holes} of {}", images.len());
    for (nth, (image, durable)) in images.into_iter().enumerate() {
        let image = Arc::new(image);
        let again = TestLog::with(log.records().into_iter().filter(|it| it.end <= durable).collect());
        let store = recover(image.clone(), &log.records(), Lsn::FIRST, durable).unwrap();
        store.attach_journal(again.clone());
        fill(&store, &again, 9);
        assert_eq!(image.set(|state| state.written_into_holes), 0, "event {nth}");
    }
}

/// Cause: the first hole that the device had refused was tried, and no other. Effect: one that it
/// always refuses kept all others.
#[test]
fn one_hole_that_is_always_refused_keeps_no_other() {
    for compacts in [false, true] {
        let device = Blocks::new();
        let (log, store) = store_of(&device);
        mostly_freed(&store, &log, &[499]);
        device.set(|state| state.refused = ALL);
        compact(&store);
        assert!(store.statistics().groups_kept > 3, "{:?}", store.statistics());
        let first = store.state.lock().space.unbacked_group().unwrap();
        let start = store.geometry.place_offset(Place(first * store.geometry.places_per_group));
        device.set(|state| state.refused = start..start + 1);
        match compacts {
            true => compact(&store),
            false => (0..20).for_each(|_| {
                wait_no_longer(&store);
                store.give_back_step().unwrap();
            }),
        }
        assert_eq!(store.statistics().groups_kept, 1, "compaction: {compacts}");
    }
}

/// Cause: that the device refuses was forgotten with the hole that it had refused. Effect: holes
/// were made, and filled with zeros, in turn.
#[test]
fn a_device_that_cannot_discard_has_no_holes_filled_in_turn() {
    let outcome = sim::run(SimOptions::seeded(1), || {
        let device = Blocks::new();
        let (log, store) = store_of(&device);
        mostly_freed(&store, &log, &[499]);
        device.set(|state| (state.refused, state.refuses_cuts) = (ALL, true));
        let mut filled = 0;
        for _ in 0..6 {
            for _ in 0..50 {
                store.learn_step(true).unwrap();
                store.give_back_step().unwrap();
            }
            let holes = store.statistics().places_returned;
            let pages = allocate(&store, &log, 420).unwrap();
            write(&store, &log, &pages);
            filled += holes - store.statistics().places_returned;
            free(&store, &log, &pages);
        }
        (filled, store.geometry.places_per_group)
    });
    let (filled, places_per_group) = outcome.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert_eq!(filled, places_per_group, "one hole was tried");
}

/// Cause: each group that was cut off had the device asked. Effect: the rest after a failed cut had
/// none.
#[test]
fn a_device_that_cannot_be_cut_is_asked_seldom() {
    let outcome = sim::run(SimOptions::seeded(1), || {
        let device = Blocks::new();
        let (log, store) = store_of(&device);
        mostly_freed(&store, &log, &[]);
        device.set(|state| state.refuses_cuts = true);
        let groups = store.state.lock().space.groups();
        give_back_all(&store);
        let in_background = (device.set(|state| state.cuts), groups - store.state.lock().space.groups());
        compact(&store);
        (in_background, device.set(|state| state.cuts), groups - store.state.lock().space.groups())
    });
    let (in_background, cuts, groups) = outcome.unwrap_or_else(|failure| panic!("{failure}")).value;
    assert_eq!(in_background, (1, 1), "cuts and groups: what does not come back is kept in use");
    assert!(cuts == 2 && groups > 3, "compaction: {cuts} cuts, {groups} groups");
}

/// Cause: whether metadata of the last group is in use was seen after its space had been counted
/// again. Effect: each step appended two records.
#[test]
fn a_last_hole_whose_metadata_is_in_use_costs_no_records() {
    let device = Blocks::new();
    let (log, store) = store_of(&device);
    let last = *mostly_freed(&store, &log, &[499]).last().unwrap();
    give_back_all(&store);
    let end = store.state.lock().space.groups() - 1;
    assert_eq!(store.geometry.group_of_page(last), end);
    // The image of the last page moves out of the last group, whose places are returned then.
    store.state.lock().space.close_places(end);
    write(&store, &log, &[last]);
    store.release_freed_pages().unwrap();
    store.give_back_closed(end).unwrap();
    free(&store, &log, &[last]);
    store.release_freed_pages().unwrap();
    store.learn_all().unwrap();
    assert!(store.state.lock().space.is_hole(&store.geometry, end));
    let pin = store.pin(&[MetaId::Bitmap(end)]).unwrap();
    give_back_all(&store);
    let before = log.end();
    for _ in 0..5 {
        store.learn_all().unwrap();
        store.give_back_step().unwrap();
    }
    assert_eq!(log.end(), before);
    drop(pin);
    give_back_all(&store);
    assert!(store.state.lock().space.groups() <= end, "it is cut off afterwards");
}

/// A place that a record freed is used again once the record is durable: until then a crash undoes
/// the free, and the page is where it was.
#[test]
fn a_place_is_used_again_after_the_record_that_freed_it_is_durable() {
    let device = Blocks::new();
    let (log, store) = store_of(&device);
    let pages = allocate(&store, &log, 300).unwrap();
    for some in pages.chunks(6) {
        write(&store, &log, some);
    }
    let (kept, freed) = pages.split_at(6);
    // A version that is durable before the pages are freed: the write asks for no more of the log.
    let versions: Vec<Lsn> = kept.iter().map(|_| log.tick()).collect();
    log.flush(log.end()).unwrap();
    publish(&store, &log, &[], freed).unwrap();
    assert!(log.durable() < log.end());
    device.set(|state| (state.log, state.notes_writes) = (Some(log.clone()), true));
    store.release_freed_pages().unwrap();
    write_versions(&store, &log, kept, &versions);
    let images = device.set(|state| std::mem::take(&mut state.images));
    assert!(!images.is_empty());
    for (image, durable) in images {
        let after = recover(Arc::new(image), &log.records(), Lsn::FIRST, durable).unwrap();
        compare(&after, &fold(&log.records(), durable));
    }
}
