//! Redo: from any state persisted before, once or more often, the same end.

use super::harness::*;
use super::model::Model;
use crate::store::journal::Journal;
use crate::{PageTier, TierErrorKind};
use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_device::{Device, MemoryDevice};
use firn_log::{Kind, Record};

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
        let error = store.redo(Lsn(9000), Record { kind: Kind(kind), body }).unwrap_err();
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
    let mut writes = [crate::PageWrite {
        page,
        version: last,
        recovery_lsn: first,
        dirty: true,
        data: &data,
        changed: None,
        base: Lsn::ZERO,
        lifetime: crate::Lifetime::Unknown,
        outcome: Ok(crate::Written::Declined),
    }];
    store.write_batch(&mut writes);
    assert_eq!(writes[0].outcome, Ok(crate::Written::Taken));
    assert_eq!(store.oldest_needed_lsn(), Some(first), "a crash now would lose the move");
    let moved = log.records().last().unwrap().lsn;
    log.flush(log.end()).unwrap();
    assert_eq!(store.oldest_needed_lsn(), Some(moved), "the move is redone, the page is not");
    store.sync().unwrap();
    assert_eq!(store.oldest_needed_lsn(), None);
}
