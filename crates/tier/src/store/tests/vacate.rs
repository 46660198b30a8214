//! Sparse groups are emptied and their space comes back, in the background and by compaction; what
//! is needed meanwhile is there, and no fault on the way loses a page.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::{Journal, Store};
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Calls, Counting, Device, DeviceErrorKind, FaultPlan, Faulty, MemoryDevice};

const PAGES: usize = 600;

/// A store of which nine in ten pages were freed, all over the file; and the pages that are left.
fn sparse(device: Arc<dyn Device>, log: &Arc<TestLog>) -> (Store, Vec<PageId>) {
    let store = create(device, log);
    let mut pages = Vec::new();
    for _ in 0..PAGES / 50 {
        pages.extend(allocate(&store, log, 50).unwrap());
    }
    pages.chunks(6).for_each(|some| drop(write(&store, log, some)));
    log.flush(log.end()).unwrap();
    let (left, freed): (Vec<PageId>, Vec<PageId>) =
        pages.iter().partition(|page| page.0 * 7 % 10 == 3 || page.0 == PAGES as u64);
    freed.chunks(40).for_each(|some| _ = publish(&store, log, &[], some).unwrap());
    log.flush(log.end()).unwrap();
    store.sync().unwrap();
    (store, left)
}

/// Bytes of the file that are not given back.
fn backed_bytes(store: &Store) -> u64 {
    store.statistics().places * PAGE_SIZE as u64
}

fn compact(store: &Store) -> u64 {
    store.begin_compaction();
    (0..10_000).take_while(|_| store.compact_step().unwrap() == Progress::Worked).count() as u64
}

#[test]
fn compaction_leaves_no_more_free_places_than_growth_aims_at() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let counting = Arc::new(Counting::new(memory.clone()));
    let (store, left) = sparse(counting.clone(), &log);
    let before = backed_bytes(&store);
    let would = store.vacancy().unwrap();
    assert!(would.groups > 4 && would.places_used <= left.len() as u64, "{would:?}");
    assert!(compact(&store) > 3);
    let after = store.statistics();
    assert_eq!(before - backed_bytes(&store), would.bytes, "as it said before");
    let slack = 3 * POLICY.batch_pages as u64;
    let kept = ((left.len() as u64 + slack) * 10).div_ceil(8).next_multiple_of(80);
    assert_eq!(after.places, kept, "whole groups");
    assert!(after.images_moved <= left.len() as u64, "each page is copied once at most: {after:?}");
    assert_eq!(after.groups_emptied, would.groups);
    // Page numbers of most groups are in use, so the file has holes.
    assert!(counting.snapshot().discards.ops > 2 && after.places_returned > 2 * 80, "{after:?}");
    assert_eq!(after.places_returned + after.places, store.state.lock().space.groups() * 80);
    assert_eq!(store.vacancy().unwrap().bytes, 0);
    compare(&store, &fold(&log.records(), log.end()));
    log.flush(log.end()).unwrap();
    let redone = recover(memory, &log.records(), Lsn::FIRST, log.end()).unwrap();
    compare(&redone, &fold(&log.records(), log.end()));
}

#[test]
fn nothing_is_moved_while_the_log_has_none_to_spare() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let (store, _) = sparse(memory, &log);
    log.set_short(true);
    let records = log.records().len();
    assert_eq!(store.vacate_step().unwrap(), Progress::Idle);
    store.begin_compaction();
    assert_eq!(store.compact_step().unwrap_err().kind, TierErrorKind::LogFull);
    log.set_short(false);
    assert_eq!(store.compact_step().unwrap(), Progress::Worked);
    log.set_short(true);
    let (moved, logged) = (store.statistics().images_moved, log.records().len());
    assert!(moved > 0 && logged > records);
    assert_eq!(store.vacate_step().unwrap(), Progress::Idle, "nor is it gone on with");
    assert_eq!((store.statistics().images_moved, log.records().len()), (moved, logged));
    log.set_short(false);
    assert!(compact(&store) > 2);
}

#[test]
fn groups_at_the_end_without_page_numbers_are_cut_off_once_they_are_emptied() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let (store, left) = sparse(memory.clone(), &log);
    let (stay, high): (Vec<PageId>, Vec<PageId>) = left.iter().partition(|page| page.0 < 60);
    // What is left has low numbers, and lies anywhere.
    publish(&store, &log, &[], &high).unwrap();
    log.flush(log.end()).unwrap();
    let before = memory.len();
    compact(&store);
    // But for the header and two groups, nothing is left.
    let group = store.geometry.group_offset(1).unwrap() - store.geometry.group_offset(0).unwrap();
    assert!(memory.len() + 6 * group < before, "{before} became {}", memory.len());
    assert_eq!(store.statistics().places_returned, 0);
    let redone = recover(memory.clone(), &log.records(), Lsn::FIRST, log.end()).unwrap();
    compare(&redone, &fold(&log.records(), log.end()));
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
    assert!(write(&store, &log, &stay).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
}

#[test]
fn the_background_empties_groups_while_much_is_free() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let (store, left) = sparse(memory, &log);
    let mut steps = 0;
    loop {
        let learned = store.learn_step().unwrap();
        let given_back = store.give_back_step().unwrap();
        if learned.or(given_back) == Progress::Idle {
            break;
        }
        steps += 1;
        assert!(steps < 10_000, "it comes to rest");
    }
    let after = store.statistics();
    let slack = 3 * POLICY.batch_pages as u64;
    let kept = ((left.len() as u64 + slack) * 125).div_ceil(80).next_multiple_of(80);
    assert!(after.places <= kept + 80, "{} places for {} pages", after.places, left.len());
    assert!(after.images_moved <= left.len() as u64);
    compare(&store, &fold(&log.records(), log.end()));
    // Nothing more is to be had, and nothing is moved to and fro.
    for _ in 0..100 {
        store.learn_step().unwrap();
    }
    assert_eq!(store.statistics().images_moved, after.images_moved);
}

/// What is being emptied is used again before the file grows, or anything is full.
#[test]
fn groups_that_are_being_emptied_are_there_when_they_are_needed() {
    let (log, plan) = (TestLog::new(), FaultPlan::new(1));
    let memory = Arc::new(MemoryDevice::new("store"));
    let (store, _) = sparse(Arc::new(Faulty::new(memory.clone(), &plan)), &log);
    store.begin_compaction();
    (0..3).for_each(|_| assert_eq!(store.compact_step(), Ok(Progress::Worked)));
    assert!(store.is_vacating());
    plan.fail_from(0, Calls::Grows, DeviceErrorKind::NoSpace);
    let mut new = Vec::new();
    let error = loop {
        match allocate(&store, &log, 1) {
            Ok(page) => new.extend(page),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, TierErrorKind::Full);
    assert!(!store.is_vacating());
    assert!(new.len() > 500, "{} pages", new.len());
    for (_, outcome) in write(&store, &log, &new) {
        assert_eq!(outcome, Ok(Took::Taken));
    }
    compare(&store, &fold(&log.records(), log.end()));
    // Compaction goes on with what is left to do: nothing.
    compact(&store);
    assert_eq!(store.statistics().groups_emptied, 0);
}

#[test]
fn compaction_that_is_abandoned_leaves_all_places_in_use() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let (store, _) = sparse(memory, &log);
    let before = store.statistics().places;
    store.begin_compaction();
    (0..2).for_each(|_| assert_eq!(store.compact_step(), Ok(Progress::Worked)));
    assert!(store.is_vacating());
    store.abandon_compaction();
    assert!(!store.is_vacating());
    assert_eq!(store.statistics().places, before);
    compare(&store, &fold(&log.records(), log.end()));
    compact(&store);
    assert!(store.statistics().places < before);
}

/// A damaged image keeps its own group, which is not tried again and again.
#[test]
fn a_group_with_a_damaged_image_stays() {
    let (log, memory) = (TestLog::new(), Arc::new(MemoryDevice::new("store")));
    let (store, left) = sparse(memory.clone(), &log);
    // In the group that is emptied last.
    let harmed = left[left.len() - 2];
    let place = store.entry_of(harmed).unwrap().place();
    let offset = store.geometry.place_offset(place.unwrap());
    memory.write(offset, &[0x77; PAGE_SIZE], firndb_device::Durability::Later).unwrap();
    compact(&store);
    assert!(!store.is_vacating() && store.statistics().groups_emptied > 2);
    assert_eq!(store.entry_of(harmed).unwrap().place(), place);
    assert_eq!(read(&store, harmed).unwrap_err().kind, TierErrorKind::Damaged);
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!(report.faults, 1, "{report:?}");
}

#[test]
fn a_call_of_compaction_that_fails_loses_nothing() {
    for (calls, kind) in [
        (Calls::Reads, DeviceErrorKind::Failed),
        (Calls::Writes, DeviceErrorKind::Failed),
        (Calls::Writes, DeviceErrorKind::NoSpace),
        (Calls::Syncs, DeviceErrorKind::Failed),
        (Calls::Discards, DeviceErrorKind::Failed),
    ] {
        for nth in (0..).step_by(3) {
            let (inner, log, plan) =
                (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(nth));
            let (store, _) = sparse(Arc::new(Faulty::new(inner.clone(), &plan)), &log);
            plan.fail_nth(nth, calls, kind);
            store.begin_compaction();
            let mut failed = 0;
            for _ in 0..200 {
                match store.compact_step() {
                    Ok(Progress::Worked) => {}
                    Ok(Progress::Idle) => break,
                    Err(_) => failed += 1,
                }
            }
            let fired = plan.fired();
            plan.heal();
            drop(store);
            log.flush(log.end()).unwrap();
            let store = recover(inner, &log.records(), Lsn::FIRST, log.end()).unwrap();
            compare(&store, &fold(&log.records(), log.end()));
            if fired == 0 {
                assert!(nth > 0 && failed == 0, "{calls:?} was called");
                break;
            }
        }
    }
}

/// The file system has no space while groups are emptied: compaction needs none.
#[test]
fn compaction_works_on_a_full_file_system() {
    let (log, plan) = (TestLog::new(), FaultPlan::new(1));
    let (store, left) = sparse(Arc::new(Faulty::new(Arc::new(MemoryDevice::new("store")), &plan)), &log);
    plan.fail_from(0, Calls::Grows, DeviceErrorKind::NoSpace);
    let before = backed_bytes(&store);
    compact(&store);
    assert!(backed_bytes(&store) < before / 3);
    assert!(write(&store, &log, &left).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
    compare(&store, &fold(&log.records(), log.end()));
}
