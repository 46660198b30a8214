//! A power cut at every event of a run: the pages are those of the surviving log, with their
//! images.

use super::harness::*;
use super::map_damage::unreadable;
use super::model::Model;
use crate::page_tier::PageTier;
use crate::store::geometry::Slot;
use crate::store::meta_page::MetaId;
use crate::store::{Journal, Store, StoreOptions};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{CrashPlan, Device, MemoryDevice, Survival};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;

/// State known at the power cut.
#[derive(Default)]
pub(crate) struct Known {
    pub appended: Lsn,
    pub durable: Lsn,
    pub truncated: Lsn,
    pub contained: Lsn,
    taken: BTreeMap<PageId, (Lsn, Lsn)>,
}

impl Known {
    pub(crate) fn of(facts: &[Fact], marks: &[u64]) -> Known {
        let mut known = Known {
            appended: Lsn::FIRST,
            durable: Lsn::FIRST,
            truncated: Lsn::FIRST,
            contained: Lsn::ZERO,
            taken: BTreeMap::new(),
        };
        for mark in marks {
            match facts[*mark as usize] {
                Fact::Appended(end) => known.appended = end,
                Fact::Durable(lsn) => known.durable = lsn,
                Fact::Truncated(lsn) => known.truncated = lsn,
                Fact::Contained(lsn) => known.contained = lsn,
                Fact::Taken(page, version, needed) => drop(known.taken.insert(page, (version, needed))),
            }
        }
        known
    }

    /// Some log that may be left, and its end: any log past the durable LSN may survive or not, but
    /// as whole records in order.
    pub(crate) fn log_left(&self, records: &[Logged], rng: &mut Rng) -> (Vec<Logged>, Lsn) {
        let ends = records.iter().map(|record| record.end).chain([self.durable]);
        let possible: Vec<Lsn> = ends.filter(|end| (self.durable..=self.appended).contains(end)).collect();
        let cut = possible[rng.below(possible.len() as u64) as usize];
        (records.iter().filter(|record| record.end <= cut).cloned().collect(), cut)
    }

    /// What was taken is in `pages`, or redo rebuilds it from log that is kept.
    pub(crate) fn assert_rebuilt(&self, pages: &Pages) {
        for (page, (version, needed)) in &self.taken {
            let found = pages.get(page).map(|(version, _)| *version);
            let rebuilt = found.is_none_or(|found| found >= *version) || self.truncated <= *needed;
            assert!(rebuilt, "{page}: version {version} was taken, {found:?} is left, its log is gone");
        }
    }
}

/// What a store lies on in a run that is cut.
pub(super) trait Medium {
    /// Its device, made of a plan's.
    fn make(&self, plan: &CrashPlan) -> Arc<dyn Device>;

    /// The device, opened on what is left of the plan's: once after the cut, and again after more
    /// work.
    fn open(&mut self, left: &[Arc<MemoryDevice>], again: bool, rng: &mut Rng) -> Arc<dyn Device>;
}

/// One device.
struct Alone;

impl Medium for Alone {
    fn make(&self, plan: &CrashPlan) -> Arc<dyn Device> {
        plan.device("store")
    }
    fn open(&mut self, left: &[Arc<MemoryDevice>], _: bool, _: &mut Rng) -> Arc<dyn Device> {
        left[0].clone()
    }
}

fn run(seed: u64, steps: u64, every: u64) {
    run_over(&mut Alone, seed, steps, every);
}

pub(super) fn run_over(medium: &mut dyn Medium, seed: u64, steps: u64, every: u64) {
    let plan = CrashPlan::new();
    let mut model = Model::new(seed, medium.make(&plan), 120);
    model.log.set_plan(&plan);
    plan.settle();
    for _ in 0..steps {
        model.step();
    }
    let (facts, records) = (model.log.facts(), model.log.records());
    let mut rng = Rng::new(seed);
    let mut replay = plan.replay();
    loop {
        let known = Known::of(&facts, replay.marks());
        for survival in Survival::ALL {
            if !rng.one_in(every) {
                continue;
            }
            let (left, cut) = known.log_left(&records, &mut rng);
            let images = replay.image(survival, &mut rng);
            // Skipping records that the metadata contains, or not, must make no difference.
            let contained = if rng.one_in(4) { Lsn::ZERO } else { known.contained };
            let (from, image) = (known.truncated, medium.open(&images, false, &mut rng));
            let store = recover_under(model.policy, image, &left, contained, from, cut).unwrap();
            let pages = fold(&left, cut);
            compare(&store, &pages);
            known.assert_rebuilt(&pages);
            // Work continues, and the next recovery starts from the state that this one left.
            let log = TestLog::with(left);
            store.attach_journal(log.clone());
            let some: Vec<PageId> = pages.keys().copied().take(9).collect();
            assert!(write(&store, &log, &some).iter().all(|(_, outcome)| outcome.is_ok()));
            allocate(&store, &log, 3).unwrap();
            while store.learn_step(true).unwrap() == Progress::Worked {}
            log.flush(log.end()).unwrap();
            let (mut contained, mut from) = (contained, from);
            if rng.one_in(2) {
                contained = store.metadata_version();
                store.sync().unwrap();
                log.flush(log.end()).unwrap();
                from = store.oldest_needed_lsn().unwrap_or(log.end()).min(log.end());
            }
            let (records, device) = (log.records(), medium.open(&images, true, &mut rng));
            let again = recover_under(model.policy, device, &records, contained, from, log.end()).unwrap();
            compare(&again, &fold(&records, log.end()));
        }
        if replay.step().is_none() {
            break;
        }
    }
}

#[test]
fn a_power_cut_at_any_event_leaves_the_pages_of_the_durable_log() {
    for seed in 0..3 {
        run(seed, 120, 12);
    }
}

#[test]
fn a_power_cut_while_growing_leaves_a_whole_store() {
    let plan = CrashPlan::new();
    let device = plan.device("store");
    let log = TestLog::new();
    let store = create(device, &log);
    plan.settle();
    for _ in 0..6 {
        allocate(&store, &log, 60).unwrap();
        log.flush(log.end()).unwrap();
        plan.mark(log.end().0);
    }
    let (mut replay, mut rng) = (plan.replay(), Rng::new(1));
    loop {
        let durable = Lsn(replay.marks().last().copied().unwrap_or(Lsn::FIRST.0));
        for survival in Survival::ALL {
            let store =
                recover(replay.image(survival, &mut rng).remove(0), &log.records(), Lsn::FIRST, durable)
                    .unwrap();
            compare(&store, &fold(&log.records(), durable));
        }
        if replay.step().is_none() {
            break;
        }
    }
}

/// Cause: what a process had written when it ended, and not synced, was taken for durable by the
/// next one. Effect: the slot before it was written over, and a power cut could tear both.
#[test]
fn a_power_cut_after_a_process_has_ended_before_a_sync_leaves_a_whole_store() {
    let (plan, log) = (CrashPlan::new(), TestLog::new());
    let disk = plan.device("store");
    let store = create(disk.clone(), &log);
    // As many metadata pages as a totals page names in its second sector, too.
    allocate(&store, &log, 2000).unwrap();
    log.flush(log.end()).unwrap();
    let totals = [Slot::A, Slot::B].map(|slot| store.geometry.meta_offset(MetaId::Totals, slot));
    drop(store);
    plan.settle();
    let written = AtomicBool::new(false);
    let hooked = Hooked::over(disk, move |call| match call {
        Call::Write { offset, .. } => {
            written.fetch_or(totals.contains(&offset), Relaxed);
            Ok(())
        }
        Call::Sync if written.swap(false, Relaxed) => Err(unreadable()),
        _ => Ok(()),
    });
    let (records, end) = (log.records(), log.end());
    for _ in 0..2 {
        // Each process ends when it has written the totals page.
        let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
        let store = Store::open_with(hooked.clone(), DATABASE, options, POLICY).unwrap();
        for logged in records.iter().filter(|logged| logged.kind != OTHER) {
            store.redo(logged.lsn, logged.record()).unwrap();
        }
        store.finish_redo(end).unwrap();
        store.attach_journal(log.clone());
        assert!(store.sweep_round(&mut store.write_back.lock()).is_err());
    }
    let (mut replay, mut rng, pages) = (plan.replay(), Rng::new(1), fold(&records, end));
    loop {
        for survival in Survival::ALL.into_iter().cycle().take(4 * Survival::ALL.len()) {
            let image = replay.image(survival, &mut rng).remove(0);
            compare(&recover(image, &records, Lsn::FIRST, end).unwrap(), &pages);
        }
        if replay.step().is_none() {
            break;
        }
    }
}

#[test]
#[ignore = "long"]
fn a_power_cut_at_any_event_of_long_runs() {
    for seed in 100..140 {
        run(seed, 400, 8);
    }
}
