//! A power cut at every event of a run with deltas: the pages are those of the surviving log, with
//! their images, and what was taken is there or in log that is kept.

use super::crash::Known;
use super::delta_model::{DeltaModel, image_in, policy};
use super::harness::*;
use crate::page_tier::PageTier;
use crate::store::Journal;
use firndb_base::Lsn;
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_device::{CrashPlan, Survival};

fn run(seed: u64, steps: u64, every: u64) {
    let plan = CrashPlan::new();
    let policy = policy(&mut Rng::new(seed));
    let mut model = DeltaModel::new(seed, plan.device("store"), 100, policy);
    model.log.set_plan(&plan);
    plan.settle();
    for _ in 0..steps {
        model.step();
    }
    let (facts, records) = (model.log.facts(), model.log.records());
    let image_of = image_in(&model.history);
    let mut rng = Rng::new(seed);
    let mut replay = plan.replay();
    loop {
        let known = Known::of(&facts, replay.marks());
        for survival in Survival::ALL {
            if !rng.one_in(every) {
                continue;
            }
            let (left, cut) = known.log_left(&records, &mut rng);
            let device = replay.image(survival, &mut rng).remove(0);
            let contained = if rng.one_in(4) { Lsn::ZERO } else { known.contained };
            let from = known.truncated;
            let store = recover_under(policy, device.clone(), &left, contained, from, cut).unwrap();
            let pages = fold(&left, cut);
            compare_images(&store, &pages, &image_of);
            known.assert_rebuilt(&pages);
            // Work continues, and the next recovery starts from the state that this one left.
            let log = TestLog::with(left);
            store.attach_journal(log.clone());
            let some: Vec<PageId> =
                pages.iter().filter(|(_, (_, placed))| *placed).map(|(page, _)| *page).collect();
            store.write_whole(&some[..some.len().min(9)]).unwrap();
            while store.learn_step(true).unwrap() == firndb_base::Progress::Worked {}
            let found = allocate(&store, &log, 3).unwrap();
            assert!(found.iter().all(|page| !pages.contains_key(page)));
            publish(&store, &log, &[], &found).unwrap();
            log.flush(log.end()).unwrap();
            if rng.one_in(2) {
                store.sync().unwrap();
            }
            let again = recover_under(policy, device, &log.records(), contained, from, log.end()).unwrap();
            compare_images(&again, &fold(&log.records(), log.end()), &image_of);
        }
        if replay.step().is_none() {
            break;
        }
    }
}

#[test]
fn a_power_cut_at_any_event_of_deltas_loses_nothing() {
    for seed in 0..6 {
        run(seed, 110, 14);
    }
}

#[test]
#[ignore = "long"]
fn a_power_cut_at_any_event_of_long_runs_with_deltas() {
    for seed in 100..160 {
        run(seed, 400, 10);
    }
}
