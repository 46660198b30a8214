//! A power cut at every event of a store with a damaged map page and a damaged bitmap page, and a
//! second one at every event of the opening after it: what the map page lacks is carried on, and no
//! more is lost than what it had.

use super::crash::Known;
use super::harness::*;
use super::map_damage::damage;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::meta_page::MetaId;
use crate::store::records;
use crate::store::{Journal, Store};
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{CrashPlan, Device, Survival};
use std::collections::BTreeSet;

/// The map page, of group 1, and the bitmap page, of group 0.
const MAP: MetaId = MetaId::Map(2);
const BITS: MetaId = MetaId::Bitmap(0);
/// One in this number of events has a first power cut, or a second one.
const FIRST_EVERY: u64 = 250;
const SECOND_EVERY: u64 = 50;

/// What a run does to a store.
struct Work<'a> {
    store: &'a Store,
    log: &'a Arc<TestLog>,
    pages: &'a [PageId],
    rng: &'a mut Rng,
    contained: Lsn,
}

impl Work<'_> {
    fn step(&mut self) {
        match self.rng.below(10) {
            0..6 => {
                let mut some: Vec<PageId> = (0..1 + self.rng.below(6))
                    .map(|_| self.pages[self.rng.below(self.pages.len() as u64) as usize])
                    .collect();
                some.sort_unstable();
                some.dedup();
                for (_, outcome) in write(self.store, self.log, &some) {
                    assert_eq!(outcome, Ok(Took::Taken), "every page can be written");
                }
            }
            6 => self.log.flush(self.log.end()).unwrap(),
            7..9 => self.checkpoint(),
            _ => self.sweep(),
        }
    }

    fn sweep(&mut self) {
        let rounds = &mut self.store.write_back.lock();
        match self.rng.one_in(3) {
            true => drop(self.store.sweep_all(rounds).unwrap()),
            false => self.store.sweep_round(rounds).unwrap(),
        }
    }

    fn checkpoint(&mut self) {
        let contained = self.store.metadata_version();
        self.store.sync().unwrap();
        self.contained = contained;
        let end = self.log.end();
        let needed = self.store.oldest_needed_lsn().unwrap_or(end).min(end);
        self.log.flush(end).unwrap();
        self.log.note(Fact::Contained(self.contained));
        self.log.note(Fact::Truncated(needed));
    }
}

/// Pages of which a record since `damaged` says where they are.
fn known_since(records: &[Logged], damaged: Lsn) -> BTreeSet<PageId> {
    let since = records.iter().filter(|logged| logged.lsn >= damaged && logged.kind != OTHER);
    since
        .flat_map(|logged| records::decode(logged.record()).unwrap())
        .filter_map(|change| change.page())
        .collect()
}

/// The pages are those of the log, but for those that only the damaged map page knows.
fn judge(store: &Store, left: &[Logged], (damaged, cut): (Lsn, Lsn)) {
    let (pages, known) = (fold(left, cut), known_since(left, damaged));
    let mut lost = 0;
    for (page, (version, _)) in &pages {
        let is_lost = store.geometry.map_of_page(*page) == MAP && !known.contains(page);
        match read(store, *page) {
            Ok((found, bytes)) => {
                assert!(!is_lost && found == *version, "{page}: {found}, and not {version}");
                assert!(bytes == image(*page, *version), "{page} in version {version}");
            }
            Err(error) => {
                assert!(is_lost && error.kind == TierErrorKind::Damaged, "{page}: {error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "some pages never moved");
    let report = store.check(true, &mut |_| {}).unwrap();
    let of_damage = |fault: &&String| !fault.contains("is damaged in both");
    assert_eq!(report.damage.iter().find(of_damage), None);
    assert!(report.faults > 0);
}

/// Opens what is left, works on, and cuts the power again.
fn second(
    device: Arc<dyn Device>,
    left: &[Logged],
    known: &Known,
    damaged: Lsn,
    pages: &[PageId],
    rng: &mut Rng,
) {
    let plan = CrashPlan::new();
    let disk = plan.device("second");
    disk.grow(device.len(), firndb_device::Fill::Sparse).unwrap();
    let bytes = firndb_testkit::bytes::contents(&*device);
    disk.write(0, &bytes, firndb_device::Durability::Later).unwrap();
    disk.sync().unwrap();
    plan.settle();
    let log = TestLog::with(left.to_vec());
    log.set_plan(&plan);
    // What is known of the first crash holds until there is something newer.
    log.note(Fact::Appended(log.end()));
    log.note(Fact::Durable(log.end()));
    log.note(Fact::Truncated(known.truncated));
    log.note(Fact::Contained(known.contained));
    let store = recover_after(disk, left, known.contained, known.truncated, log.end()).unwrap();
    store.attach_journal(log.clone());
    let mut work = Work { store: &store, log: &log, pages, rng: &mut *rng, contained: known.contained };
    work.sweep();
    work.checkpoint();
    (0..6).for_each(|_| work.step());
    let (facts, records) = (log.facts(), log.records());
    let mut replay = plan.replay();
    // (The facts above come first.)
    assert!((0..4).all(|_| replay.step().is_some()));
    loop {
        let known = Known::of(&facts, replay.marks());
        for survival in Survival::ALL {
            if rng.one_in(SECOND_EVERY) {
                let (left, cut) = known.log_left(&records, rng);
                let image = replay.image(survival, rng).remove(0);
                let store = recover_after(image, &left, known.contained, known.truncated, cut).unwrap();
                judge(&store, &left, (damaged, cut));
                known.assert_rebuilt(&fold(&left, cut));
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
}

fn run(seed: u64, steps: u64) {
    let plan = CrashPlan::new();
    let device = plan.device("store");
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 150).unwrap();
    write(&store, &log, &pages);
    log.flush(log.end()).unwrap();
    sweep(&store);
    store.sync().unwrap();
    for id in [MAP, BITS] {
        damage(&store, &*device, id);
    }
    device.sync().unwrap();
    drop(store);
    let damaged = log.end();
    let store = recover(device, &log.records(), damaged, damaged).unwrap();
    store.attach_journal(log.clone());
    plan.settle();
    log.set_plan(&plan);
    log.note(Fact::Appended(damaged));
    log.note(Fact::Durable(damaged));
    log.note(Fact::Truncated(damaged));
    // Pages that are dirty in DRAM: some of each map page, a few of the damaged one.
    let geometry = store.geometry;
    let (there, others): (Vec<PageId>, Vec<PageId>) =
        pages.iter().partition(|page| geometry.map_of_page(**page) == MAP);
    let mut changing: Vec<PageId> = others.into_iter().filter(|page| page.0 % 3 == 0).collect();
    changing.extend(&there[5..13]);
    changing.sort_unstable();
    let mut rng = Rng::new(seed);
    let mut work = Work { store: &store, log: &log, pages: &changing, rng: &mut rng, contained: Lsn::ZERO };
    (0..steps).for_each(|_| work.step());
    let (facts, records) = (log.facts(), log.records());
    let mut replay = plan.replay();
    assert!((0..3).all(|_| replay.step().is_some()));
    loop {
        let known = Known::of(&facts, replay.marks());
        for survival in Survival::ALL {
            if !rng.one_in(FIRST_EVERY) {
                continue;
            }
            let (left, cut) = known.log_left(&records, &mut rng);
            let image = replay.image(survival, &mut rng).remove(0);
            let copied = copy(&*image);
            let store = recover_after(image, &left, known.contained, known.truncated, cut).unwrap();
            judge(&store, &left, (damaged, cut));
            known.assert_rebuilt(&fold(&left, cut));
            drop(store);
            second(copied, &left, &known, damaged, &changing, &mut rng);
        }
        if replay.step().is_none() {
            break;
        }
    }
}

#[test]
fn a_power_cut_at_any_event_of_a_store_with_damaged_metadata_loses_no_more() {
    for seed in 0..2 {
        run(seed, 60);
    }
}

#[test]
#[ignore = "long"]
fn a_power_cut_at_any_event_of_long_runs_with_damaged_metadata() {
    for seed in 100..130 {
        run(seed, 200);
    }
}
