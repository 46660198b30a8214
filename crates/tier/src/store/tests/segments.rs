//! Placement by whole segments: what is written is one run, the cleaner makes segments whole and
//! harms no page, and nothing is `Full` earlier.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::{Journal, Layout, Placement, Policy, Store};
use crate::testing::Took;
use crate::testing::small_store::read_many;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{
    AlignedBuf, Calls, Device, DeviceErrorKind, Durability, FaultPlan, Faulty, MemoryDevice,
};
use firndb_log::LogClass;
use firndb_testkit::hooked::Trap;

pub(super) const SEGMENTS: Policy = Policy { placement: Placement::Segments, batch_pages: 16, ..POLICY };
/// Eight segments a group, and a map that fits into memory.
const WIDE: Layout = Layout { meta_bytes: 4096, maps_per_group: 3 };

pub(super) fn wide(policy: Policy, device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let options = crate::store::StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 1 << 20 };
    let store = Store::create_with(device, DATABASE, options, WIDE, policy).unwrap();
    store.attach_journal(log.clone());
    store
}

/// Writes pages drawn by a seed, a tenth of them most of the time, with the cleaner at
/// work after each batch.
fn churn(store: &Store, log: &TestLog, pages: &[PageId], batches: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..batches {
        let among = if rng.below(10) < 8 { pages.len() / 10 } else { pages.len() };
        let mut some: Vec<PageId> = (0..16).map(|_| pages[rng.below(among as u64) as usize]).collect();
        some.sort_unstable();
        some.dedup();
        write_alike(store, log, &some);
        clean(store, log);
    }
}

/// Gives pages new versions, and writes them as one batch.
pub(super) fn write_alike(store: &Store, log: &TestLog, pages: &[PageId]) {
    let versions: Vec<Lsn> = pages.iter().map(|_| log.tick()).collect();
    log.flush(log.end()).unwrap();
    for outcome in offer(store, pages, &versions, true) {
        assert_eq!(outcome, Ok(Took::Taken), "an allocated page can always be written");
    }
}

/// As far as it is due.
fn clean(store: &Store, log: &TestLog) {
    log.flush(log.end()).unwrap();
    while store.learn_step(true).unwrap() == Progress::Worked {}
}

fn whole_store(policy: Policy, log: &Arc<TestLog>, count: usize) -> (Store, Vec<PageId>) {
    let store = wide(policy, Arc::new(MemoryDevice::new("store")), log);
    let pages: Vec<PageId> = (0..count / 50).flat_map(|_| allocate(&store, log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| drop(write(&store, log, some)));
    (store, pages)
}

#[test]
fn what_is_written_is_in_long_runs_and_the_cleaner_copies_less_than_it_may() {
    let mut runs = Vec::new();
    for placement in [Placement::Threaded, Placement::Segments] {
        let log = TestLog::new();
        let (store, pages) = whole_store(Policy { placement, ..SEGMENTS }, &log, 6000);
        churn(&store, &log, &pages, 400, 1);
        let before = store.statistics();
        churn(&store, &log, &pages, 800, 2);
        let after = store.statistics();
        let written = after.pages_written - before.pages_written;
        let moved = after.images_moved - before.images_moved;
        runs.push(written as f64 / (after.write_runs - before.write_runs) as f64);
        match placement {
            Placement::Threaded => assert_eq!((moved, after.segments_opened), (0, 0)),
            Placement::Segments => {
                assert!(moved > 0 && moved < 3 * (written - moved), "{moved} moved of {written}");
                let scattered = after.places_scattered - before.places_scattered;
                assert!(scattered * 10 < written, "{scattered} of {written} found no whole segment");
                assert!(after.segments_emptied > 0 && after.segments_whole > 0, "{after:?}");
            }
        }
        log.flush(log.end()).unwrap();
        compare(&store, &fold(&log.records(), log.end()));
    }
    assert!(runs[1] > 2.0 * runs[0] && runs[1] > 8.0, "pages in a run: {runs:?}");
}

/// A store that was written in runs has no whole segment: the cleaner makes some when it is opened
/// with the other placement, within what the file may grow by.
#[test]
fn a_store_written_in_runs_gets_whole_segments_when_it_is_opened_for_them() {
    let log = TestLog::new();
    let device = Arc::new(MemoryDevice::new("store"));
    let store = wide(Policy { placement: Placement::Threaded, ..SEGMENTS }, device.clone(), &log);
    let pages: Vec<PageId> = (0..120).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    churn(&store, &log, &pages, 1500, 3);
    store.sync().unwrap();
    let before = store.statistics();
    drop(store);
    let store = reopened(device, &log);
    churn(&store, &log, &pages, 600, 4);
    let after = store.statistics();
    assert!(after.segments_whole > 0 && after.segments_opened > 20, "{after:?}");
    assert!(after.places <= before.places * 5 / 4, "{} places, before {}", after.places, before.places);
    compare(&store, &fold(&log.records(), log.end()));
}

/// As `full.rs` has it with the other placement.
#[test]
fn a_full_device_is_as_full_as_with_runs_and_every_page_is_written_on_it() {
    let mut counts = Vec::new();
    for placement in [Placement::Threaded, Placement::Segments] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with("small", 512, 256 * 1024 + 2 * 900_000));
        let log = TestLog::new();
        let store = wide(Policy { placement, ..SEGMENTS }, device, &log);
        let mut pages = Vec::new();
        let error = loop {
            match allocate(&store, &log, 1) {
                Ok(page) => pages.extend(page),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, TierErrorKind::Full);
        counts.push(pages.len());
        for round in 0..6 {
            churn(&store, &log, &pages, 60, round);
        }
        let rollback = store.reserve(LogClass::Rollback).unwrap();
        publish(&store, &log, &[rollback], &[]).unwrap();
        assert!(store.reserve(LogClass::Normal).is_err());
        publish(&store, &log, &[], &pages.split_off(40)).unwrap();
        assert_eq!(allocate(&store, &log, 5).unwrap().len(), 5);
        log.flush(log.end()).unwrap();
        compare(&store, &fold(&log.records(), log.end()));
    }
    assert_eq!(counts[0], counts[1]);
    assert!(counts[0] > 500, "{counts:?}");
}

/// The cleaner moves a page, and its place is written anew, while a reader has the old place.
#[test]
fn a_read_overtaken_by_the_cleaner_is_repeated() {
    let log = TestLog::new();
    let trap = Trap::default();
    let store = Arc::new(wide(SEGMENTS, trap.over_reads(Arc::new(MemoryDevice::new("store"))), &log));
    let pages: Vec<PageId> = (0..40).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    let seldom = pages[1];
    let place = store.entry_of(seldom).unwrap().place();
    let (beside, others) = (store.clone(), pages[2..].to_vec());
    trap.set(move || {
        let mut rng = Rng::new(5);
        for _ in 0..4000 {
            let mut some: Vec<PageId> =
                (0..16).map(|_| others[rng.below(others.len() as u64) as usize]).collect();
            some.sort_unstable();
            some.dedup();
            write_alike(&beside, &log, &some);
            clean(&beside, &log);
            let reused = |page: &PageId| beside.entry_of(*page).unwrap().place() == place;
            if others.iter().any(reused) {
                return;
            }
        }
        panic!("the cleaner moves every page sooner or later");
    });
    let (version, bytes) = read(&store, seldom).unwrap();
    assert!(!trap.is_set() && store.entry_of(seldom).unwrap().place() != place);
    assert_eq!(bytes, image(seldom, version));
}

/// The cleaner moves a page away and back while a reader has its place, which another page's image
/// had in between: the map says the same before and after.
#[test]
fn an_image_that_was_away_while_it_was_read_is_read_once_more() {
    let log = TestLog::new();
    let (trap, device) = (Trap::default(), Arc::new(MemoryDevice::new("store")));
    let store = wide(SEGMENTS, trap.over_reads(device.clone()), &log);
    let pages = allocate(&store, &log, 8).unwrap();
    write_alike(&store, &log, &pages);
    let place = store.entry_of(pages[3]).unwrap().place().unwrap();
    let offset = store.geometry.place_offset(place);
    for together in [&pages[3..4], &pages[2..5]] {
        let (device, again) = (device.clone(), trap.clone());
        trap.set(move || {
            let mut image = AlignedBuf::zeroed(PAGE_SIZE);
            device.read(offset, &mut image).unwrap();
            device.write(offset, &[0x77; PAGE_SIZE], Durability::Later).unwrap();
            again.set(move || device.write(offset, &image, Durability::Later).unwrap());
        });
        for (page, found) in together.iter().zip(read_many(&store, together)) {
            let ((version, _), bytes) = found.unwrap();
            assert_eq!(bytes, image(*page, version));
        }
        assert!(!trap.is_set());
    }
    device.write(offset, &[0x77; PAGE_SIZE], Durability::Later).unwrap();
    assert_eq!(read(&store, pages[3]).unwrap_err().kind, TierErrorKind::Damaged);
}

pub(super) fn reopened(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let options = crate::store::StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 1 << 20 };
    let store = Store::open_with(device, DATABASE, options, SEGMENTS).unwrap();
    store.expect_metadata(Lsn::ZERO).unwrap();
    store.finish_redo(log.end()).unwrap();
    store.attach_journal(log.clone());
    store
}

/// As `reopened`, with the free space of all groups known.
pub(super) fn reopened_and_learned(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let store = reopened(device, log);
    let groups = store.state.lock().space.groups();
    (0..groups).for_each(|group| store.learn(group).unwrap());
    store
}

/// Writes that have no whole segment leave the cleaner those that it needs.
#[test]
fn writes_without_a_whole_segment_take_the_fullest_and_leave_whole_ones() {
    let log = TestLog::new();
    let (store, pages) = whole_store(SEGMENTS, &log, 3000);
    let mut rng = Rng::new(9);
    let mut scattered = 0;
    while scattered < 200 {
        let mut some: Vec<PageId> = (0..16).map(|_| pages[rng.below(3000) as usize]).collect();
        some.sort_unstable();
        some.dedup();
        write_alike(&store, &log, &some);
        scattered = store.statistics().places_scattered;
        let whole = store.state.lock().space.segments.whole();
        assert!(whole >= 2, "{whole} whole segments after {scattered} places elsewhere");
    }
}

/// A store written in runs, on a device without space for another group: the cleaner makes whole
/// segments though it has none to begin with.
#[test]
fn whole_segments_are_made_without_any_on_a_device_that_cannot_grow() {
    let device = Arc::new(MemoryDevice::with("small", 512, 256 * 1024 + 2 * 900_000));
    let log = TestLog::new();
    let store = wide(Policy { placement: Placement::Threaded, ..SEGMENTS }, device.clone(), &log);
    let mut pages = Vec::new();
    while let Ok(page) = allocate_as(LogClass::Removal, &store, &log, 1) {
        pages.extend(page);
    }
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    let freed: Vec<PageId> = pages.iter().copied().skip(1).step_by(3).collect();
    publish(&store, &log, &[], &freed).unwrap();
    pages.retain(|page| !freed.contains(page));
    log.flush(log.end()).unwrap();
    store.sync().unwrap();
    let places = store.statistics().places;
    drop(store);
    let store = reopened_and_learned(device, &log);
    assert_eq!(store.state.lock().space.segments.whole(), 0);
    churn(&store, &log, &pages, 100, 10);
    let after = store.statistics();
    assert!(after.segments_whole > 2 && after.segments_emptied > 0, "{after:?}");
    assert_eq!(after.places, places);
    compare(&store, &fold(&log.records(), log.end()));
}

/// A damaged image in the segment that is most worth emptying does not keep others from it.
#[test]
fn a_segment_that_cannot_be_emptied_is_passed_over() {
    let log = TestLog::new();
    let device = Arc::new(MemoryDevice::new("store"));
    let store = wide(SEGMENTS, device.clone(), &log);
    let pages: Vec<PageId> = (0..40).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    let harmed = pages[0];
    let place = store.entry_of(harmed).unwrap().place();
    let offset = store.geometry.place_offset(place.unwrap());
    device.write(offset, &[0x77; PAGE_SIZE], Durability::Later).unwrap();
    // All but the harmed one leave its segment, which nothing is worth more than.
    pages[1..64].chunks(16).for_each(|some| write_alike(&store, &log, some));
    churn(&store, &log, &pages[64..], 400, 11);
    let before = store.statistics();
    churn(&store, &log, &pages[64..], 800, 12);
    let after = store.statistics();
    assert_eq!(store.entry_of(harmed).unwrap().place(), place);
    let scattered = after.places_scattered - before.places_scattered;
    let written = after.pages_written - before.pages_written;
    assert!(after.segments_emptied > before.segments_emptied, "{after:?}");
    assert!(scattered * 10 < written, "{scattered} of {written} found no whole segment");
}

#[test]
fn the_file_is_extended_by_one_group_for_whole_segments() {
    let log = TestLog::new();
    let store = wide(SEGMENTS, Arc::new(MemoryDevice::new("store")), &log);
    while store.state.lock().space.groups() < 33 {
        allocate(&store, &log, 50).unwrap();
    }
    let groups = store.state.lock().space.groups();
    assert!(store.extend_for_whole_segments().unwrap());
    assert_eq!(store.state.lock().space.groups(), groups + 1);
}

/// What cannot be read stays in its segment, is reported where it is read, and does not keep the
/// cleaner at it.
#[test]
fn a_damaged_image_stays_and_others_are_moved() {
    let log = TestLog::new();
    let device = Arc::new(MemoryDevice::new("store"));
    let store = wide(SEGMENTS, device.clone(), &log);
    let pages: Vec<PageId> = (0..120).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
    pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
    let harmed = pages[pages.len() - 1];
    let place = store.entry_of(harmed).unwrap().place();
    let offset = store.geometry.place_offset(place.unwrap());
    device.write(offset, &[0x77; PAGE_SIZE], Durability::Later).unwrap();
    churn(&store, &log, &pages[..pages.len() - 1], 1200, 6);
    assert!(store.statistics().images_moved > 0);
    assert_eq!(store.entry_of(harmed).unwrap().place(), place);
    assert_eq!(read(&store, harmed).unwrap_err().kind, TierErrorKind::Damaged);
    let mut steps = 0;
    while store.learn_step(true).unwrap() == Progress::Worked {
        steps += 1;
        assert!(steps < 10_000, "the cleaner rests when it gains nothing");
    }
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.faults, 1, "{report:?}");
}

/// Every call of the cleaner fails once: what is left is the pages of the log.
#[test]
fn a_call_of_the_cleaner_that_fails_loses_nothing() {
    for (calls, kind) in [
        (Calls::Reads, DeviceErrorKind::Failed),
        (Calls::Writes, DeviceErrorKind::Failed),
        (Calls::Writes, DeviceErrorKind::NoSpace),
    ] {
        let mut nth = 0;
        loop {
            let (inner, log, plan) =
                (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(nth));
            let device: Arc<dyn Device> = Arc::new(Faulty::new(inner.clone(), &plan));
            let store = wide(SEGMENTS, device, &log);
            let pages: Vec<PageId> = (0..20).flat_map(|_| allocate(&store, &log, 50).unwrap()).collect();
            pages.chunks(16).for_each(|some| write_alike(&store, &log, some));
            // Until no segment is whole.
            (0..4).for_each(|round| {
                pages.chunks(16).for_each(|some| {
                    write_alike(&store, &log, &some[..some.len().min(4 + round)]);
                })
            });
            log.flush(log.end()).unwrap();
            let before = store.statistics().images_moved;
            plan.fail_nth(nth, calls, kind);
            let mut failed = 0;
            for _ in 0..40 {
                failed += u64::from(store.learn_step(true).is_err());
            }
            let (fired, moved) = (plan.fired(), store.statistics().images_moved - before);
            plan.heal();
            drop(store);
            log.flush(log.end()).unwrap();
            let options = crate::store::StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 1 << 20 };
            let store = Store::open_with(inner, DATABASE, options, SEGMENTS).unwrap();
            store.expect_metadata(Lsn::ZERO).unwrap();
            log.records().iter().for_each(|logged| {
                if logged.kind != OTHER {
                    store.redo(logged.lsn, logged.record()).unwrap();
                }
            });
            store.finish_redo(log.end()).unwrap();
            compare(&store, &fold(&log.records(), log.end()));
            if fired == 0 {
                assert!(moved > 0 && failed == 0, "the cleaner was at work");
                break;
            }
            nth += 1;
        }
        assert!(nth > 0, "{calls:?} was called");
    }
}

/// Many pages at once are read beside the cleaner's moves as before it.
#[test]
fn batches_of_reads_find_every_page_between_the_steps_of_a_circle() {
    let log = TestLog::new();
    let (store, pages) = whole_store(SEGMENTS, &log, 6000);
    churn(&store, &log, &pages, 500, 8);
    let mut versions: Vec<Lsn> = pages.iter().map(|page| store.version_of(*page).unwrap().unwrap()).collect();
    for round in 0..60 {
        churn(&store, &log, &pages[..600], 1, round);
        for (page, version) in pages.iter().zip(&mut versions).take(600) {
            *version = store.version_of(*page).unwrap().unwrap();
        }
        let from = (round as usize * 97) % (pages.len() - 100);
        let found = read_many(&store, &pages[from..from + 100]);
        for ((page, version), read) in pages[from..].iter().zip(&versions[from..]).zip(found) {
            let ((found, _), bytes) = read.unwrap();
            assert_eq!((found, bytes == image(*page, *version)), (*version, true), "{page}");
        }
    }
}
