//! Redo from any state persisted before, once or repeatedly, ends in the same state.

use super::harness::*;
use super::model::Model;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, PageId};
use firndb_device::{Calls, Counting, Device, DeviceErrorKind, Fault, FaultPlan, Faulty, MemoryDevice};
use firndb_log::{Kind, Record};

#[test]
fn redo_may_start_earlier_than_needed_and_run_twice() {
    for seed in 0..4 {
        let mut model = Model::new(seed, Arc::new(MemoryDevice::new("store")), 150);
        for _ in 0..250 {
            model.step();
        }
        model.store.sync().unwrap();
        for _ in 0..30 {
            model.step();
        }
        model.log.flush(model.log.end()).unwrap();
        let needed = model.store.oldest_needed_lsn().unwrap_or(model.log.end());
        let (records, end) = (model.log.records(), model.log.end());
        for from in [Lsn::FIRST, Lsn((Lsn::FIRST.0 + needed.0) / 2), needed] {
            let store = recover(copy(&*model.device), &records, from, end).unwrap();
            compare(&store, &model.pages);
            let again = recover(copy(&*model.device), &records, from, end).unwrap();
            for logged in records.iter().filter(|logged| logged.lsn >= from && logged.kind.0 < 0x20) {
                again.redo(logged.lsn, logged.record()).unwrap();
            }
            again.finish_redo(end).unwrap();
            compare(&again, &model.pages);
        }
    }
}

#[test]
fn a_record_that_cannot_be_is_damage_and_no_panic() {
    let log = TestLog::new();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    drop(create(device.clone(), &log));
    let far = [1, 0xff, 0xff, 0xff, 0x7f, 0];
    for (kind, body) in
        [(0x10, &far[..]), (0x10, &[0, 1, 5, 0]), (0x11, &[1, 2, 3]), (0x13, &[]), (0x12, &[0, 1])]
    {
        let store = recover(device.clone(), &[], Lsn::FIRST, Lsn::FIRST).unwrap();
        let redone = store.redo(Lsn(9000), Record { kind: Kind(kind), body });
        let error = redone.and_then(|()| store.finish_redo(Lsn(9001))).unwrap_err();
        assert_eq!(error.kind, TierErrorKind::Damaged, "{error}");
    }
}

#[test]
fn the_log_is_needed_from_a_pages_first_change_until_its_move_is_durable() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    let page = allocate(&store, &log, 1).unwrap()[0];
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
    let (first, last) = (log.tick(), log.tick());
    log.flush(log.end()).unwrap();
    let data = image(page, last);
    let mut writes = [crate::PageWrite::back(page, last, first, &data)];
    store.write_batch(&mut writes);
    assert!(writes[0].is_taken(), "{:?}", writes[0].outcome);
    assert_eq!(store.oldest_needed_lsn(), Some(first), "a crash now would lose the move");
    let moved = log.records().last().unwrap().lsn;
    log.flush(log.end()).unwrap();
    assert_eq!(store.oldest_needed_lsn(), Some(moved), "the move is redone, the page is not");
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
}

/// A store of many groups, with pages that were moved since its metadata was synced, and the
/// metadata's version then.
fn moved_everywhere() -> (Arc<MemoryDevice>, Arc<TestLog>, Lsn) {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 600).unwrap();
    assert!(write(&store, &log, &pages).iter().all(|(_, outcome)| outcome.is_ok()));
    let contained = store.metadata_version();
    store.sync().unwrap();
    // From one end of the map to the other and back, so that every record concerns other pages than
    // the one before.
    for at in 0..60 {
        let scattered: Vec<PageId> = (0..6).map(|step| pages[(at + step * 97) % 600]).collect();
        assert!(write(&store, &log, &scattered).iter().all(|(_, outcome)| outcome.is_ok()));
    }
    log.flush(log.end()).unwrap();
    (device, log, contained)
}

#[test]
fn redo_reads_no_map_page_and_no_bitmap_page() {
    let (device, log, contained) = moved_everywhere();
    let counting = Arc::new(Counting::new(device));
    let store = recover_after(counting.clone(), &log.records(), contained, contained, log.end()).unwrap();
    let groups = store.growth.lock().groups;
    let (live, reads) = (store.state.lock().map_log.live(), counting.snapshot().reads);
    let pages = store.counters.metadata_pages_read.load(Ordering::Relaxed);
    assert!(
        groups > 8 && store.state.lock().overlay.bytes() > 0,
        "{groups} groups, or the test shows nothing"
    );
    assert_eq!(pages, 1, "the totals page");
    // Two slots of the header and of the totals, and the map log: a block a group, and those
    // before.
    assert!(reads.ops <= 4 + live + 2, "{} reads for {groups} groups, {live} blocks", reads.ops);
    compare(&store, &fold(&log.records(), log.end()));
}

#[test]
fn records_that_the_metadata_contains_cost_nothing() {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 600).unwrap();
    assert!(write(&store, &log, &pages).iter().all(|(_, outcome)| outcome.is_ok()));
    let contained = store.metadata_version();
    sweep(&store);
    let records = log.records();
    let counting = Arc::new(Counting::new(device));
    let reopened = recover_after(counting.clone(), &records, contained, Lsn::FIRST, log.end()).unwrap();
    assert!(records.iter().filter(|logged| logged.kind.0 < 0x20).count() > 100);
    assert_eq!(
        counting.snapshot().reads.ops,
        5,
        "two slots of the header and of the totals, and the map log"
    );
    compare(&reopened, &fold(&records, log.end()));
}

#[test]
fn a_request_that_fails_is_repeated_block_by_block() {
    let (device, log, contained) = moved_everywhere();
    let wanted = fold(&log.records(), log.end());
    let plan = FaultPlan::new(1);
    let faulty = Arc::new(Faulty::new(Arc::new(device.duplicate()), &plan));
    // After two slots of the header and of the totals.
    plan.nth(4, Calls::Reads, Fault::Fail(DeviceErrorKind::Failed));
    let store = recover_after(faulty, &log.records(), contained, contained, log.end()).unwrap();
    assert_eq!(plan.fired(), 1, "the map log was read");
    compare(&store, &wanted);
}
