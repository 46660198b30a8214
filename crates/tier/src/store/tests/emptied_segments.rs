//! The cleaner empties the segments that it chose: what it moves goes elsewhere, and what failed is
//! tried again.

use super::harness::*;
use super::segments::{SEGMENTS, reopened_and_learned, wide, write_alike};
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::PageTier;
use crate::store::geometry::SEGMENT_PLACES;
use crate::store::{Journal, Placement, Policy, Store};
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_device::{
    Calls, Device, DeviceError, DeviceErrorKind, Durability, FaultPlan, Faulty, MemoryDevice,
};
use firndb_log::LogClass;
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;

/// The segment where a page's image lies.
fn segment_of(store: &Store, page: PageId) -> (u64, usize) {
    let place = store.entry_of(page).unwrap().place().expect("it has an image");
    let index = store.geometry.index_of_place(place);
    (store.geometry.group_of_place(place), (index / SEGMENT_PLACES) as usize)
}

/// Ends the circle that begins with the next step, however fast others write.
fn one_circle(store: &Store, mut failed: impl FnMut(TierError)) {
    loop {
        store.clean_space().map_or_else(&mut failed, drop);
        match &mut store.cleaning.lock().circle {
            Some(circle) => circle.others = 0,
            None => return,
        }
    }
}

/// A device with space for the header and this number of groups.
fn of_groups(groups: u64) -> Arc<dyn Device> {
    let grown = AtomicU64::new(0);
    Hooked::over(Arc::new(MemoryDevice::new("store")), move |call| match call {
        Call::Grow if grown.fetch_add(1, Relaxed) >= groups => {
            Err(DeviceError::new(DeviceErrorKind::NoSpace, "on purpose"))
        }
        _ => Ok(()),
    })
}

/// Cause: without whole segments one was emptied at a time. Effect: others took what that freed
/// before there was another, and the writes of a store that was written in runs stayed scattered.
#[test]
fn without_whole_segments_a_circle_empties_as_many_as_have_place_elsewhere() {
    let (log, device) = (TestLog::new(), of_groups(12));
    let store = wide(Policy { placement: Placement::Threaded, ..SEGMENTS }, device.clone(), &log);
    let mut pages = Vec::new();
    while let Ok(page) = allocate(&store, &log, 1) {
        pages.extend(page);
    }
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    let mut rng = Rng::new(5);
    let (free, kept): (Vec<PageId>, Vec<PageId>) = pages.into_iter().partition(|_| rng.below(10) < 3);
    publish(&store, &log, &[], &free).unwrap();
    log.flush(log.end()).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = reopened_and_learned(device, &log);
    let loose = store.state.lock().space.segments.loose_places();
    assert!(loose > 1000 && store.state.lock().space.segments.whole() == 0, "{loose} loose places");
    one_circle(&store, |error| panic!("{error}"));
    let after = store.statistics();
    assert!(after.segments_emptied > 3, "{} segments", after.segments_emptied);
    assert_eq!(store.state.lock().space.segments.whole(), after.segments_emptied);
    assert!(after.images_moved <= 48 * after.segments_emptied, "{} moved", after.images_moved);
    kept.iter().for_each(|page| assert!(store.version_of(*page).unwrap().is_some()));
    compare(&store, &fold(&log.records(), log.end()));
}

/// Cause: without a whole segment images went to the first group with a place, be it the one that
/// the cleaner was emptying. Effect: it moved them within that segment, and gained nothing.
#[test]
fn nothing_is_moved_into_the_segment_that_is_being_emptied() {
    let log = TestLog::new();
    let device = of_groups(2);
    let store = wide(Policy { placement: Placement::Threaded, ..SEGMENTS }, device.clone(), &log);
    let mut pages = Vec::new();
    while let Ok(page) = allocate_as(LogClass::Removal, &store, &log, 1) {
        pages.extend(page);
    }
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    log.flush(log.end()).unwrap();
    store.sync().unwrap();
    drop(store);
    let store = reopened_and_learned(device, &log);
    let groups = store.state.lock().space.groups();
    assert!(groups >= 2, "{groups} groups");
    // Group 0 is filled, but for half of a segment; the others have some places everywhere.
    for page in &pages {
        if store.state.lock().space.segments.loose_group().is_none_or(|(group, _)| group > 0) {
            break;
        }
        if segment_of(&store, *page).0 > 0 {
            write_alike(&store, &log, &[*page]);
        }
        log.flush(log.end()).unwrap();
    }
    let mut left: BTreeMap<(u64, usize), Vec<PageId>> = BTreeMap::new();
    pages.iter().for_each(|page| left.entry(segment_of(&store, *page)).or_default().push(*page));
    let free: Vec<PageId> = left
        .iter()
        .flat_map(|(at, pages)| match at {
            (0, 5) => &pages[32..],
            (0, _) => &[],
            _ => &pages[pages.len().min(44)..],
        })
        .copied()
        .collect();
    publish(&store, &log, &[], &free).unwrap();
    log.flush(log.end()).unwrap();
    assert_eq!(store.state.lock().space.segments.whole(), 0);
    let before = store.statistics();
    one_circle(&store, |error| panic!("{error}"));
    let after = store.statistics();
    assert_eq!(after.segments_emptied - before.segments_emptied, 1);
    assert_eq!(after.images_moved - before.images_moved, 32);
    assert!(store.state.lock().space.segments.was_whole((0, 5), u32::MAX));
    pages.retain(|page| !free.contains(page));
    compare(&store, &fold(&log.records(), log.end()));
}

/// Writes pages, and some of them again, so that segments are sparse, and learns what is free;
/// returns the pages.
fn sparse_segments(store: &Store, log: &Arc<TestLog>) -> Vec<PageId> {
    let pages: Vec<PageId> = (0..20).flat_map(|_| allocate(store, log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| write_alike(store, log, some));
    (0..4).for_each(|round| {
        pages.chunks(16).for_each(|some| write_alike(store, log, &some[..some.len().min(4 + round)]));
    });
    log.flush(log.end()).unwrap();
    let groups = store.state.lock().space.groups();
    (0..groups).for_each(|group| store.learn(group).unwrap());
    pages
}

/// Cause: a step that failed had moved on in the map. Effect: what it had found stayed, and its
/// segments were not emptied by this circle.
#[test]
fn a_step_of_the_cleaner_that_failed_is_repeated() {
    let emptied = |fails: bool| {
        let (log, plan) = (TestLog::new(), FaultPlan::new(0));
        let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("store")), &plan));
        let store = wide(SEGMENTS, device, &log);
        sparse_segments(&store, &log);
        if fails {
            plan.fail_nth(0, Calls::Writes, DeviceErrorKind::NoSpace);
        }
        let mut errors = 0;
        one_circle(&store, |error| {
            assert_eq!(error.kind, TierErrorKind::Full);
            errors += 1;
        });
        assert_eq!(errors, u64::from(fails));
        compare(&store, &fold(&log.records(), log.end()));
        store.statistics().segments_emptied
    };
    let without = emptied(false);
    assert!(without > 0 && emptied(true) == without, "{without} segments");
}

/// Cause: a step counted what it had moved only if all of it could be. Effect: one damaged image,
/// and `firn stat` did not tell of the others.
#[test]
fn what_is_moved_beside_a_damaged_image_is_counted() {
    let moved = |harmed: Option<PageId>| {
        let (log, device) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
        let store = wide(SEGMENTS, device.clone(), &log);
        let pages = sparse_segments(&store, &log);
        let place = |page: PageId| store.entry_of(page).unwrap().place().expect("it was written");
        let before: Vec<_> = pages.iter().map(|page| place(*page)).collect();
        if let Some(page) = harmed {
            let offset = store.geometry.place_offset(place(page));
            device.write(offset, &[0x77; PAGE_SIZE], Durability::Later).unwrap();
        }
        one_circle(&store, |error| panic!("{error}"));
        let moved = pages.iter().zip(before).filter(|(page, before)| place(**page) != *before);
        let moved: Vec<PageId> = moved.map(|(page, _)| *page).collect();
        assert_eq!(store.statistics().images_moved, moved.len() as u64);
        moved
    };
    let all = moved(None);
    assert!(all.len() > 2);
    assert!(moved(Some(all[1])).len() + 1 >= all.len(), "but for one, all are moved");
}
