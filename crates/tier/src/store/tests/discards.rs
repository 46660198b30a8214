//! Giving space back is advice: a device that fails at it costs space for a while, and nothing
//! else.

use super::harness::*;
use super::vacate::sparse;
use crate::page_tier::PageTier;
use crate::store::{Journal, Store};
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Calls, Counting, Device, DeviceErrorKind, FaultPlan, Faulty, MemoryDevice};

/// The wait between two attempts is over.
pub(crate) fn wait_no_longer(store: &Store) {
    store.state.lock().discards.end_rest();
}

fn give_back_all(store: &Store) {
    assert!((0..1000).any(|_| store.give_back_step().unwrap() == Progress::Idle));
}

/// Pages that are left after all but `kept` of 500 were freed.
pub(crate) fn mostly_freed(store: &Store, log: &Arc<TestLog>, kept: &[usize]) -> Vec<PageId> {
    let pages = allocate(store, log, 500).unwrap();
    for some in pages.chunks(6) {
        write(store, log, some);
    }
    let (left, freed): (Vec<_>, Vec<_>) = (0..500).partition(|at| *at < 10 || kept.contains(at));
    let of = |at: Vec<usize>| at.into_iter().map(|at| pages[at]).collect::<Vec<PageId>>();
    publish(store, log, &[], &of(freed)).unwrap();
    log.flush(log.end()).unwrap();
    of(left)
}

/// Cause: the error of a discard or of a cut was that of the step. Effect: the engine took the
/// store for broken.
#[test]
fn each_discard_and_each_cut_may_fail_and_no_step_does() {
    for kept in [&[][..], &[499]] {
        for kind in [DeviceErrorKind::Failed, DeviceErrorKind::NoSpace, DeviceErrorKind::OutOfRange] {
            let mut failed_at = 0;
            for nth in 0.. {
                let (inner, log, plan) =
                    (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(nth));
                let counting = Arc::new(Counting::new(inner.clone()));
                let store = create(Arc::new(Faulty::new(counting.clone(), &plan)), &log);
                let left = mostly_freed(&store, &log, kept);
                plan.fail_nth(nth, Calls::Discards, kind);
                give_back_all(&store);
                let fired = plan.fired();
                let statistics = store.statistics();
                assert_eq!(statistics.discards_failed, fired);
                let groups = store.state.lock().space.groups();
                let end = store.geometry.group_offset(groups).unwrap();
                // Of what failed something is left to do, and later it is done.
                wait_no_longer(&store);
                give_back_all(&store);
                assert!(!store.state.lock().discards.has_failed());
                assert_eq!(store.statistics().groups_kept, 0);
                assert!(inner.len() <= end, "{} of {end}", inner.len());
                write(&store, &log, &left).into_iter().for_each(|(_, it)| assert_eq!(it, Ok(Took::Taken)));
                let more = allocate(&store, &log, 200).unwrap();
                write(&store, &log, &more);
                log.flush(log.end()).unwrap();
                compare(&store, &fold(&log.records(), log.end()));
                drop(store);
                let redone = recover(inner, &log.records(), Lsn::FIRST, log.end()).unwrap();
                compare(&redone, &fold(&log.records(), log.end()));
                if fired == 0 {
                    break;
                }
                failed_at += 1;
            }
            assert!(failed_at > 3, "{failed_at} calls");
        }
    }
}

/// At every moment of a session in which every discard and cut fails, the device is one that
/// opens with what the log has.
#[test]
fn a_file_that_is_longer_than_its_header_says_opens_and_grows() {
    let mut images: Vec<(Arc<dyn Device>, Lsn)> = Vec::new();
    let (inner, log, plan) = (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(1));
    let store = create(Arc::new(Faulty::new(inner.clone(), &plan)), &log);
    let long = {
        mostly_freed(&store, &log, &[]);
        inner.len()
    };
    plan.fail_from(0, Calls::Discards, DeviceErrorKind::Failed);
    store.begin_compaction();
    for _ in 0..1000 {
        wait_no_longer(&store);
        let progress = store.compact_step().unwrap();
        log.flush(log.end()).unwrap();
        images.push((copy(&*inner), log.end()));
        if progress == Progress::Idle {
            break;
        }
    }
    assert_eq!(inner.len(), long, "nothing was cut");
    let groups = store.state.lock().space.groups();
    assert!(store.geometry.group_offset(groups).unwrap() < long / 2, "the header counts few groups");
    assert!(store.statistics().discards_failed > 3);
    // It grows into what was not cut off, and holds pages there.
    let more = allocate(&store, &log, 300).unwrap();
    write(&store, &log, &more).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
    images.push((copy(&*inner), log.end()));
    for (device, end) in images {
        for from in [Lsn::FIRST, end] {
            let outcome = recover(device.clone(), &log.records(), from, end);
            if from == Lsn::FIRST {
                compare(&outcome.unwrap(), &fold(&log.records(), end));
            }
        }
    }
}

/// A device that never takes anything back: it is asked now and then, and no more holes are made.
#[test]
fn a_device_that_cannot_discard_is_asked_seldom() {
    let (log, plan) = (TestLog::new(), FaultPlan::new(1));
    let counting = Arc::new(Counting::new(Arc::new(MemoryDevice::new("store"))));
    let faulty: Arc<dyn Device> = Arc::new(Faulty::new(counting, &plan));
    let asked = Arc::new(Counting::new(faulty));
    let store = create(asked.clone(), &log);
    mostly_freed(&store, &log, &[499]);
    plan.fail_from(0, Calls::Discards, DeviceErrorKind::Failed);
    let before = asked.snapshot().discards.ops;
    for _ in 0..50 {
        store.give_back_step().unwrap();
        store.learn_step(true).unwrap();
    }
    assert_eq!(asked.snapshot().discards.ops - before, 1);
    let statistics = store.statistics();
    let failed = statistics.discards_failed;
    assert!(
        failed <= 4 && statistics.groups_kept == 1,
        "a few groups at the end are cut off: {statistics:?}"
    );
    assert_eq!(statistics.places_returned, store.geometry.places_per_group, "one hole was tried");
    assert!(!store.is_vacating(), "nothing is copied for space that does not come back");
    // Once it can, all comes back.
    plan.heal();
    wait_no_longer(&store);
    give_back_all(&store);
    let statistics = store.statistics();
    assert_eq!((statistics.discards_failed, statistics.groups_kept), (failed, 0));
    assert!(statistics.places_returned > 4 * store.geometry.places_per_group);
}

/// A hole that is used again is not discarded by an attempt that comes late.
#[test]
fn a_hole_that_is_used_again_is_not_discarded_later() {
    let (inner, log, plan) = (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(1));
    let store = create(Arc::new(Faulty::new(inner.clone(), &plan)), &log);
    mostly_freed(&store, &log, &[499]);
    plan.fail_from(0, Calls::Discards, DeviceErrorKind::Failed);
    give_back_all(&store);
    store.learn_all().unwrap();
    let group = store.state.lock().space.unbacked_group().unwrap();
    while store.statistics().places_returned > 0 {
        let pages = allocate(&store, &log, 10).unwrap();
        write(&store, &log, &pages);
    }
    // As if it were still remembered.
    store.state.lock().discards.remember(group);
    plan.heal();
    let pages = allocate(&store, &log, 60).unwrap();
    write(&store, &log, &pages).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    log.flush(log.end()).unwrap();
    wait_no_longer(&store);
    give_back_all(&store);
    assert!(!store.state.lock().discards.has_failed());
    compare(&store, &fold(&log.records(), log.end()));
}

/// A crash between the record that makes a hole and its discard leaves space that only compaction
/// looks for.
#[test]
fn compaction_discards_holes_again_that_a_crash_left() {
    let (inner, log, plan) = (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(1));
    let (store, left) = sparse(Arc::new(Faulty::new(inner.clone(), &plan)), &log);
    plan.fail_from(0, Calls::Discards, DeviceErrorKind::Failed);
    store.begin_compaction();
    assert!((0..10_000).any(|_| store.compact_step().unwrap() == Progress::Idle));
    assert!(store.statistics().groups_kept > 3, "{:?}", store.statistics());
    drop(store);
    log.flush(log.end()).unwrap();
    let counting = Arc::new(Counting::new(inner));
    let store = recover(counting.clone(), &log.records(), Lsn::FIRST, log.end()).unwrap();
    store.attach_journal(log.clone());
    let holes = store.statistics().places_returned / store.geometry.places_per_group;
    store.begin_compaction();
    assert!((0..10_000).any(|_| store.compact_step().unwrap() == Progress::Idle));
    assert!(counting.snapshot().discards.ops >= holes && holes > 3, "{holes}");
    write(&store, &log, &left).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    compare(&store, &fold(&log.records(), log.end()));
}
