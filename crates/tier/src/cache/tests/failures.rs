//! Devices that fail while the cache is in use.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::page_tier::PageTier;
use crate::testing::Took;
use firndb_base::sync::Arc;
use firndb_device::{Calls, Device, Fault, FaultPlan, FaultRule, Faulty, When};

fn failing(plan: &FaultPlan) -> impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device> + '_ {
    |device| Arc::new(Faulty::new(device, plan))
}
fn break_from_now(plan: &FaultPlan, calls: Calls) {
    plan.add(FaultRule {
        calls,
        device: Some("cache".to_owned()),
        when: When::From(0),
        fault: Fault::Fail(firndb_device::DeviceErrorKind::Failed),
    });
}

#[test]
fn a_device_that_fails_writes_ends_writing_and_nothing_taken_is_lost() {
    let plan = FaultPlan::new(1);
    let mut rig = Rig::with(small(), failing(&plan));
    let pages = rig.allocate(60);
    pages.chunks(4).for_each(|chunk| {
        rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)))
    });
    break_from_now(&plan, Calls::Writes);
    let outcomes: Vec<_> = pages.iter().map(|page| rig.write(&[*page]).remove(0)).collect();
    let refused = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!(refused > 50, "a group's worth was taken into memory, the rest refused: {refused}");
    assert!(outcomes.iter().flatten().all(|outcome| *outcome == Took::Taken));
    let error = outcomes.last().unwrap().clone().unwrap_err();
    assert_eq!(error.kind, TierErrorKind::Failed);
    assert!(error.message.contains("until the database is opened again"), "{}", error.message);
    assert!(rig.cache.sync().is_err(), "a checkpoint cannot be taken");
    assert!(rig.cache.oldest_needed_lsn().is_some(), "the log is kept for what is in memory");
    rig.compare();
}

#[test]
fn a_device_that_is_gone_tells_of_dirty_pages_and_the_store_gives_the_others() {
    let plan = FaultPlan::new(2);
    let mut rig = Rig::with(small(), failing(&plan));
    let pages = rig.allocate(100);
    for chunk in pages.chunks(4) {
        rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
    }
    break_from_now(&plan, Calls::Any);
    let (mut gone, mut there) = (0, 0);
    for page in &pages {
        match read(&rig.cache, *page) {
            Ok(((version, _), bytes)) => {
                assert!(version == rig.written[page] && bytes == image(*page, version));
                there += 1;
            }
            Err(error) => {
                assert_eq!(error.kind, TierErrorKind::Unreadable);
                gone += 1;
            }
        }
    }
    assert!(gone > 0 && there > 0, "{gone} in the cache only, {there} in the store");
}

#[test]
fn in_write_through_mode_the_engine_goes_on_without_the_device() {
    for calls in [Calls::Writes, Calls::Any] {
        let plan = FaultPlan::new(3);
        let chosen = CacheOptions { write_through: true, ..small() };
        let mut rig = Rig::with(chosen, failing(&plan));
        let pages = rig.allocate(100);
        for chunk in pages.chunks(4) {
            rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
        }
        assert_eq!(rig.cache.cache_statistics().pages_dirty, 0);
        break_from_now(&plan, calls);
        for _ in 0..2 {
            for chunk in pages.chunks(4) {
                rig.write(chunk).into_iter().for_each(|outcome| assert_eq!(outcome, Ok(Took::Taken)));
            }
        }
        rig.compare();
        rig.cache.sync().unwrap();
        assert!(rig.cache.state().lost, "and it says so, or it would be believed after a restart");
    }
}

#[test]
fn a_store_that_fails_keeps_dirty_pages_in_the_cache() {
    let mut rig = Rig::new(small());
    let pages = rig.allocate(100);
    rig.log.set_full(false);
    let mut refused = 0;
    for (index, chunk) in pages.chunks(4).enumerate() {
        // The store cannot log the places of pages, so it accepts no page.
        rig.log.set_full(false);
        let versions: Vec<_> = chunk.iter().map(|_| rig.log.tick()).collect();
        crate::store::Journal::flush(&*rig.log, firndb_base::Lsn(versions.last().unwrap().0 + 1)).unwrap();
        rig.log.set_full(index % 2 == 1);
        for ((page, version), outcome) in chunk.iter().zip(&versions).zip(rig.offer(chunk, &versions, true)) {
            match outcome {
                Ok(Took::Taken) => drop(rig.written.insert(*page, *version)),
                Ok(Took::Declined) => panic!("a dirty page was declined"),
                Err(error) => {
                    assert_eq!(error.kind, TierErrorKind::LogFull);
                    refused += 1;
                }
            }
        }
        rig.log.set_full(false);
    }
    assert!(refused > 0, "the store was asked and refused");
    rig.compare();
    assert!(rig.write(&pages).iter().all(Result::is_ok), "and later it goes on");
    rig.compare();
}
