//! A full device is an error of `reserve`; an allocated page can always be written.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_device::{Calls, Device, DeviceErrorKind, FaultPlan, Faulty, MemoryDevice};
use firndb_log::LogClass;

#[test]
fn allocated_pages_are_written_and_rewritten_on_a_full_device() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with("small", 512, 256 * 1024 + 2 * 90_000));
    let log = TestLog::new();
    let store = create(device, &log);
    let mut pages = Vec::new();
    let error = loop {
        match allocate(&store, &log, 1) {
            Ok(page) => pages.extend(page),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, TierErrorKind::Full);
    assert!(error.message.contains("Delete something"), "{error}");
    assert!(pages.len() > 50);
    for _ in 0..20 {
        for (_, outcome) in write(&store, &log, &pages) {
            assert_eq!(outcome, Ok(Took::Taken));
        }
    }
    // A batch more for removals, and no page of what rollback may need.
    let mut for_removal = Vec::new();
    while let Ok(page) = store.reserve(LogClass::Removal) {
        for_removal.push(page);
    }
    assert_eq!(for_removal.len(), POLICY.batch_pages);
    publish(&store, &log, &for_removal, &[]).unwrap();
    pages.extend(for_removal);
    // Rollback and checkpoints may continue for a while.
    let rollback = store.reserve(LogClass::Rollback).unwrap();
    let system = store.reserve(LogClass::System).unwrap();
    publish(&store, &log, &[rollback, system], &[]).unwrap();
    pages.extend([rollback, system]);
    write(&store, &log, &pages).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    assert!(store.reserve(LogClass::Normal).is_err());
    // Freeing makes space at once, even while the record is not durable.
    publish(&store, &log, &[], &pages.split_off(20)).unwrap();
    assert_eq!(allocate(&store, &log, 5).unwrap().len(), 5);
}

#[test]
fn when_space_returns_pages_are_given_out_again() {
    let plan = FaultPlan::new(1);
    let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("store")), &plan));
    let log = TestLog::new();
    let store = create(device, &log);
    plan.fail_from(0, Calls::Grows, DeviceErrorKind::NoSpace);
    let mut pages = Vec::new();
    while let Ok(page) = allocate(&store, &log, 1) {
        pages.extend(page);
    }
    assert_eq!(write(&store, &log, &pages)[0].1, Ok(Took::Taken));
    plan.heal();
    pages.extend(allocate(&store, &log, 100).unwrap());
    write(&store, &log, &pages).into_iter().for_each(|(_, outcome)| assert_eq!(outcome, Ok(Took::Taken)));
    assert_eq!(store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
}

#[test]
fn a_full_log_refuses_the_write_and_keeps_the_old_version() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    let pages = allocate(&store, &log, 6).unwrap();
    let (version, _) = write(&store, &log, &pages)[5].clone();
    let free = store.statistics().places_free;
    let later = log.tick();
    log.set_full(true);
    let outcome = write_versions(&store, &log, &pages[5..], &[later]);
    assert_eq!(outcome[0].as_ref().unwrap_err().kind, TierErrorKind::LogFull);
    assert_eq!(read(&store, pages[5]).unwrap(), (version, image(pages[5], version)));
    assert_eq!(store.statistics().places_free, free);
    log.set_full(false);
    assert_eq!(write_versions(&store, &log, &pages[5..], &[later]), [Ok(Took::Taken)]);
}

#[test]
fn reopening_a_partly_free_store_does_not_make_it_larger() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 400).unwrap();
    write(&store, &log, &pages);
    publish(&store, &log, &[], &pages[100..300]).unwrap();
    store.sync().unwrap();
    let len = device.len();
    drop(store);
    for _ in 0..10 {
        let store = recover(device.clone(), &[], log.end(), log.end()).unwrap();
        store.attach_journal(log.clone());
        let some = allocate(&store, &log, 8).unwrap();
        write(&store, &log, &some);
        write(&store, &log, &pages[..100]);
        store.sync().unwrap();
    }
    assert_eq!(device.len(), len);
}
