//! Sparse groups are emptied and their space comes back, in the background and by compaction; what
//! is needed meanwhile is there, and no fault on the way loses a page.

use super::delta_damage::WAITING;
use super::delta_failures::change;
use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::state::SLACK_BATCHES_NORMAL;
use crate::store::{Journal, Policy, Store};
use crate::testing::Took;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{Calls, Counting, Device, DeviceErrorKind, FaultPlan, Faulty, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;

const PAGES: usize = 600;

/// A store of which nine in ten pages were freed, all over the file; and the pages that are left.
pub(crate) fn sparse(device: Arc<dyn Device>, log: &Arc<TestLog>) -> (Store, Vec<PageId>) {
    sparse_under(POLICY, device, log)
}

/// As `sparse`, with a policy.
fn sparse_under(policy: Policy, device: Arc<dyn Device>, log: &Arc<TestLog>) -> (Store, Vec<PageId>) {
    let store = create_under(policy, device, log);
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
    let slack = SLACK_BATCHES_NORMAL * POLICY.batch_pages as u64;
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
        let learned = store.learn_step(true).unwrap();
        let given_back = store.give_back_step().unwrap();
        if learned.or(given_back) == Progress::Idle {
            break;
        }
        steps += 1;
        assert!(steps < 10_000, "it comes to rest");
    }
    let after = store.statistics();
    let slack = SLACK_BATCHES_NORMAL * POLICY.batch_pages as u64;
    let kept = ((left.len() as u64 + slack) * 125).div_ceil(80).next_multiple_of(80);
    assert!(after.places <= kept + 80, "{} places for {} pages", after.places, left.len());
    assert!(after.images_moved <= left.len() as u64);
    compare(&store, &fold(&log.records(), log.end()));
    // Nothing more is to be had, and nothing is moved to and fro.
    for _ in 0..100 {
        store.learn_step(true).unwrap();
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
    // The background leaves it alone, until it is another group of that number.
    let group = store.geometry.group_of_place(place.unwrap());
    let not_emptied = || store.cleaning.lock().not_emptied.iter().copied().collect::<Vec<_>>();
    assert_eq!(not_emptied(), [group]);
    publish(&store, &log, &[], &left).unwrap();
    log.flush(log.end()).unwrap();
    let steps = || store.learn_step(true).unwrap().or(store.give_back_step().unwrap());
    assert!((0..1000).any(|_| steps() == Progress::Idle));
    assert!(store.state.lock().space.groups() <= group, "it is cut off");
    store.learn_step(true).unwrap();
    assert_eq!(not_emptied(), []);
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

/// A sparse store of which the pages that are left get a delta each, in the write buffer, at the
/// first writes after `writes` was set to their number; and what these pages hold then.
struct Busy {
    log: Arc<TestLog>,
    store: Arc<Store>,
    writes: Arc<AtomicU64>,
    changed: Arc<Mutex<Changed>>,
    watched: Arc<Mutex<Option<Watched>>>,
}

/// Versions of pages, and what they are.
type Changed = BTreeMap<PageId, (Lsn, Vec<u8>)>;
/// A store and its pages that are left.
type Watched = (Arc<Store>, Vec<PageId>);

fn busy() -> Busy {
    let log = TestLog::new();
    let (writes, changed) = (Arc::new(AtomicU64::new(0)), Arc::<Mutex<Changed>>::default());
    let watched: Arc<Mutex<Option<Watched>>> = Arc::default();
    let device = Hooked::over(Arc::new(MemoryDevice::new("store")), {
        let (log, writes, changed, watched) = (log.clone(), writes.clone(), changed.clone(), watched.clone());
        move |call| {
            let is_due = matches!(call, Call::Write { .. }) && writes.load(Relaxed) > 0;
            let others = if is_due { watched.lock().clone() } else { None };
            if let Some((store, left)) = others {
                let now = writes.fetch_sub(1, Relaxed);
                let of = |page: &PageId| (*page, change(&store, &log, *page, 8 * (now as usize % 4)));
                let all: Vec<_> = left.iter().map(of).collect();
                changed.lock().extend(all);
            }
            Ok(())
        }
    });
    let (store, left) = sparse_under(WAITING, device, &log);
    let store = Arc::new(store);
    *watched.lock() = Some((store.clone(), left));
    Busy { log, store, writes, changed, watched }
}

impl Busy {
    /// Has the background choose groups and empty them; returns how many it chose.
    fn empty_once(&self) -> u64 {
        let step = || self.store.learn_step(true).unwrap();
        assert!((0..1000).any(|_| step() == Progress::Idle || self.store.is_vacating()));
        let chosen = self.store.state.lock().space.closed();
        assert!((0..1000).any(|_| step() == Progress::Idle || !self.store.is_vacating()));
        chosen
    }

    fn check(self) {
        *self.watched.lock() = None;
        self.store.settle_deltas(Lsn(u64::MAX)).unwrap();
        let changed = self.changed.lock();
        compare_images(
            &self.store,
            &fold(&self.log.records(), self.log.end()),
            &|page, version| match changed.get(&page) {
                Some((changed, bytes)) if *changed == version => bytes.clone(),
                _ => image(page, version),
            },
        );
    }
}

/// Cause: the image of a page that was changed while it was being moved stayed, and the walk did
/// not come back to it. Effect: its group was not emptied, and never again by the background.
#[test]
fn images_of_pages_that_change_while_they_are_moved_are_moved_after_all() {
    let busy = busy();
    busy.writes.store(1, Relaxed);
    let chosen = busy.empty_once();
    assert_eq!(busy.writes.load(Relaxed), 0, "pages were changed");
    assert!(chosen > 2, "{chosen} groups");
    assert_eq!(busy.store.statistics().groups_emptied, chosen);
    assert!(busy.store.cleaning.lock().not_emptied.is_empty());
    busy.check();
}

#[test]
fn groups_of_pages_that_change_all_the_time_are_emptied_once_they_rest() {
    let busy = busy();
    // More than there are: the first look and the second meet pages that change.
    busy.writes.store(1 << 20, Relaxed);
    let chosen = busy.empty_once();
    busy.writes.store(0, Relaxed);
    let emptied = busy.store.statistics().groups_emptied;
    assert!(emptied < chosen, "{emptied} of {chosen} groups");
    assert!(busy.store.cleaning.lock().not_emptied.is_empty(), "nothing is damaged");
    busy.store.cleaning.lock().vacates_from = 0;
    let chosen = busy.empty_once();
    assert!(chosen > 0);
    assert_eq!(busy.store.statistics().groups_emptied, emptied + chosen);
    busy.check();
}
