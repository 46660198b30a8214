//! Space is returned to the file system, and used again later.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::geometry::{Geometry, Slot};
use crate::store::give_back::Search;
use crate::store::meta_page::MetaId;
use crate::store::{Store, StoreOptions};
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Lsn, Progress};
use firndb_device::{
    Calls, Counting, Device, DeviceCounts, DeviceErrorKind, Durability, FaultPlan, Faulty, MemoryDevice,
};
use firndb_testkit::hooked::{Call, Hooked};

/// A device that fails by the plan, and counts its calls.
fn failing_and_counting() -> (FaultPlan, Arc<Counting>) {
    let plan = FaultPlan::new(1);
    let failing = Faulty::new(Arc::new(MemoryDevice::new("store")), &plan);
    (plan, Arc::new(Counting::new(Arc::new(failing))))
}

#[test]
fn free_groups_at_the_end_are_cut_off_and_grow_again() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    for _ in 0..3 {
        let pages = allocate(&store, &log, 500).unwrap();
        write(&store, &log, &pages[..200]);
        let large = device.len();
        log.flush(log.end()).unwrap();
        publish(&store, &log, &[], &pages).unwrap();
        log.flush(log.end()).unwrap();
        let mut steps = 0;
        while store.give_back_step().unwrap() == Progress::Worked {
            steps += 1;
        }
        assert!(steps > 3 && device.len() < large / 2, "{steps} steps to {} bytes", device.len());
        assert_eq!(store.check(true, &mut |_| {}).unwrap().damage, Vec::<String>::new());
        // Redo from the very beginning meets groups that are gone.
        let redone = recover(device.clone(), &log.records(), Lsn::FIRST, log.end()).unwrap();
        compare(&redone, &fold(&log.records(), log.end()));
    }
}

#[test]
fn redo_keeps_a_new_group_apart_from_an_earlier_one_of_its_number() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    // All metadata stays in memory, so that the new groups are on the device as they were
    // formatted.
    let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
    let store = Store::create_with(device.clone(), DATABASE, options, LAYOUT, POLICY).unwrap();
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, 300).unwrap();
    let allocated = log.end();
    publish(&store, &log, &[], &pages).unwrap();
    log.flush(log.end()).unwrap();
    while store.give_back_step().unwrap() == Progress::Worked {}
    let cut_off = device.len();
    allocate(&store, &log, 250).unwrap();
    assert!(device.len() > cut_off);
    log.flush(log.end()).unwrap();
    for from in [Lsn::FIRST, allocated] {
        let redone = recover(copy(&*device), &log.records(), from, log.end()).unwrap();
        compare(&redone, &fold(&log.records(), log.end()));
    }
}

/// Cause: a group that gets its space back does not change the number of groups, by which a thread
/// saw whether others had added space. Effect: each thread that had waited filled another group.
#[test]
fn threads_that_wait_for_space_share_what_the_first_one_adds() {
    let log = TestLog::new();
    let store = Arc::new(create(Arc::new(MemoryDevice::new("store")), &log));
    let pages = allocate(&store, &log, 500).unwrap();
    publish(&store, &log, &[], &pages[10..499]).unwrap();
    log.flush(log.end()).unwrap();
    while store.give_back_step().unwrap() == Progress::Worked {}
    let backed = || store.backed_places(&mut store.state.lock());
    let (seen, group) = (backed(), store.geometry.places_per_group);
    for _ in 0..5 {
        // As threads do that all saw that many.
        store.add_space(seen, Search::Everywhere).unwrap();
    }
    assert_eq!(backed(), seen + group);
}

#[test]
fn a_group_without_pages_gives_its_space_back_until_it_is_needed() {
    let (plan, counting) = failing_and_counting();
    let device: Arc<dyn Device> = counting.clone();
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 500).unwrap();
    // The last number stays in use, so the file cannot become shorter.
    publish(&store, &log, &[], &pages[10..499]).unwrap();
    log.flush(log.end()).unwrap();
    let places = store.statistics().places;
    while store.give_back_step().unwrap() == Progress::Worked {}
    let after = store.statistics();
    assert!(after.places * 2 < places, "{places} places became {}", after.places);
    assert!(counting.snapshot().discards.ops > 3);
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
    let store = recover(device.clone(), &log.records(), Lsn::FIRST, log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
    store.attach_journal(log.clone());
    let len = device.len();
    // Other files use the space meanwhile: the store returns an error and stays consistent.
    plan.fail_from(0, Calls::Writes, DeviceErrorKind::NoSpace);
    plan.fail_from(0, Calls::Grows, DeviceErrorKind::NoSpace);
    assert_eq!(allocate(&store, &log, 200).unwrap_err().kind, TierErrorKind::Full);
    plan.heal();
    let before = counting.snapshot();
    let again = allocate(&store, &log, 200).unwrap();
    write(&store, &log, &again);
    assert!(store.statistics().places > after.places);
    let large_writes = |counts: DeviceCounts| counts.writes_by_size[7..].iter().sum::<u64>();
    assert!(
        large_writes(counting.snapshot()) > large_writes(before),
        "zeros went to the places before they were counted on"
    );
    assert_eq!(device.len(), len, "its own space is used before the file grows");
    log.flush(log.end()).unwrap();
    compare(&store, &fold(&log.records(), log.end()));
}

/// A store whose last group returned its space, and is not in use any more.
fn with_a_hole_at_the_end(device: Arc<dyn Device>, log: &Arc<TestLog>) -> Store {
    let store = create(device, log);
    let pages = allocate(&store, log, 500).unwrap();
    // The last number stays in use, so the file cannot become shorter.
    publish(&store, log, &[], &pages[10..499]).unwrap();
    log.flush(log.end()).unwrap();
    while store.give_back_step().unwrap() == Progress::Worked {}
    publish(&store, log, &[], &pages[499..]).unwrap();
    log.flush(log.end()).unwrap();
    let last = store.state.lock().space.groups() - 1;
    store.learn(last).unwrap();
    let mut state = store.state.lock();
    state.space.release_freed(&store.geometry, log.durable());
    assert!(state.space.is_hole(&store.geometry, last));
    drop(state);
    store
}

/// Cause: a group was taken for present because the header that could not be written counted it.
/// Effect: a failed write of that header ended the process.
#[test]
fn a_write_that_fails_while_a_hole_is_cut_off_is_an_error() {
    let mut cut = Vec::new();
    for nth in 0.. {
        let (inner, log, plan) = (Arc::new(MemoryDevice::new("store")), TestLog::new(), FaultPlan::new(nth));
        let store = with_a_hole_at_the_end(Arc::new(Faulty::new(inner.clone(), &plan)), &log);
        let groups = store.state.lock().space.groups();
        plan.fail_nth(nth, Calls::Writes, DeviceErrorKind::Failed);
        let outcome = store.give_back_step();
        let is_done = plan.fired() == 0;
        assert_eq!(outcome.is_ok(), is_done, "{nth}: {outcome:?}");
        cut.push(store.state.lock().space.groups() < groups);
        plan.heal();
        drop(store);
        log.flush(log.end()).unwrap();
        let redone = recover(inner, &log.records(), Lsn::FIRST, log.end()).unwrap();
        compare(&redone, &fold(&log.records(), log.end()));
        if is_done {
            break;
        }
    }
    // The header's two slots are the last writes.
    assert!(cut.ends_with(&[false, true, true, true]) && cut.len() > 4, "{cut:?}");
}

/// Cause: a hole was closed, and counted twice, before the record that makes it count as backed.
/// Effect: while that waited for a device there seemed to be a group less of places, so that a
/// store grew, or was full, without need.
#[test]
fn a_hole_that_is_being_cut_off_takes_no_places_from_others() {
    let watched: Arc<Mutex<Option<Arc<Store>>>> = Arc::default();
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let device = Hooked::over(Arc::new(MemoryDevice::new("store")), {
        let (watched, seen) = (watched.clone(), seen.clone());
        move |_| {
            let store = watched.lock().clone();
            if let Some(store) = store {
                seen.lock().push(store.backed_places(&mut store.state.lock()));
            }
            Ok(())
        }
    });
    let log = TestLog::new();
    let store = Arc::new(with_a_hole_at_the_end(device, &log));
    sweep(&store);
    let last = store.state.lock().space.groups() - 1;
    store.state.lock().cache.forget([MetaId::Bitmap(last)].into_iter());
    let before = store.backed_places(&mut store.state.lock());
    *watched.lock() = Some(store.clone());
    assert_eq!(store.give_back_step(), Ok(Progress::Worked));
    *watched.lock() = None;
    let seen = seen.lock();
    assert!(seen.len() > 6 && seen.iter().all(|places| *places == before), "{seen:?} of {before}");
    assert_eq!(store.state.lock().space.groups(), last);
}

/// Cause: growth looked through all bitmap pages for a hole, one after the other. Effect: after an
/// opening, threads that wanted space in a file of 1 TB waited for minutes.
#[test]
fn growth_looks_for_a_hole_in_few_groups_unless_the_device_is_full() {
    let (plan, counting) = failing_and_counting();
    let device: Arc<dyn Device> = counting.clone();
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 1500).unwrap();
    pages[..600].chunks(6).for_each(|some| drop(write(&store, &log, some)));
    publish(&store, &log, &[], &pages[600..1499]).unwrap();
    log.flush(log.end()).unwrap();
    while store.give_back_step().unwrap() == Progress::Worked {}
    store.learn_all().unwrap();
    let hole = store.state.lock().space.unbacked_group().expect("some are holes");
    log.flush(log.end()).unwrap();
    let store = recover(device, &log.records(), Lsn::FIRST, log.end()).unwrap();
    store.attach_journal(log.clone());
    let at_once = store.state.lock().cache.read_together() as u64;
    let seen = || store.backed_places(&mut store.state.lock());
    let groups = || store.state.lock().space.groups();
    let (before, had) = (groups(), counting.snapshot().reads);
    store.add_space(seen(), Search::Everywhere).unwrap();
    let read = counting.snapshot().reads.ops - had.ops;
    assert!(hole > 3 * at_once && read <= 2 * at_once, "hole {hole}, {read} reads, {at_once} at once");
    assert!(groups() > before, "the file has grown");

    plan.fail_from(0, Calls::Grows, DeviceErrorKind::NoSpace);
    let (before, backed) = (groups(), seen());
    store.add_space(backed, Search::Everywhere).unwrap();
    assert_eq!((groups(), seen()), (before, backed + store.geometry.places_per_group), "a hole is used");
}

/// Cause: a change of the header that a crash had cut short was completed by the next change only.
/// Effect: when the file had been cut off, the slot that counted more groups was no use any more,
/// and a flipped bit in the other made a restore necessary.
#[test]
fn a_change_of_the_header_that_a_crash_cut_short_is_completed() {
    let device = Arc::new(MemoryDevice::new("store"));
    let (inner, log) = (device.clone(), TestLog::new());
    // What a crash leaves between the writes of the slots.
    let image: Arc<Mutex<Option<Arc<MemoryDevice>>>> = Arc::default();
    let (taken, writes) = (image.clone(), Arc::new(AtomicU64::new(u64::MAX / 2)));
    let seen = writes.clone();
    let offsets = [Slot::A, Slot::B].map(Geometry::header_offset);
    let hooked = Hooked::over(device, move |call| {
        if let Call::Write { offset, .. } = call
            && offsets.contains(&offset)
            && seen.fetch_add(1, Relaxed) == 1
        {
            *taken.lock() = Some(copy(&*inner));
        }
        Ok(())
    });
    let store = create(hooked, &log);
    let pages = allocate(&store, &log, 500).unwrap();
    publish(&store, &log, &[], &pages).unwrap();
    log.flush(log.end()).unwrap();
    writes.store(0, Relaxed);
    while store.give_back_step().unwrap() == Progress::Worked {}
    let image = image.lock().take().expect("the header was written");

    let (records, end) = (log.records(), log.end());
    let before = image.len();
    let store = recover(image.clone(), &records, Lsn::FIRST, end).unwrap();
    store.attach_journal(log.clone());
    store.give_back_step().unwrap();
    assert!(image.len() < before, "it was cut off");
    drop(store);
    for offset in offsets {
        let rotten = copy(&*image);
        rotten.write(offset, &[0xA5; 512], Durability::Later).unwrap();
        let store = recover(rotten, &log.records(), Lsn::FIRST, log.end()).unwrap();
        compare(&store, &fold(&log.records(), log.end()));
    }
}
