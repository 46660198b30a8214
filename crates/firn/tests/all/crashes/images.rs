//! Whatever a power cut leaves, at any moment and in any mixture of sectors: the database opens,
//! holds every acknowledged commit and nothing that was not committed, and is not damaged. The same
//! after a second cut while it recovers.
//!
//! The usual run takes a sample of moments and mixtures, `many_images` more. Two tests break the
//! engine on purpose, to show that this one sees it.

use crate::support::bed::Bed;
use crate::support::images::{Case, Record, Walk, record, walk_all};
use crate::support::scripts;
use firndb::Devices;
use firndb::device::{Calls, CrashPlan, Fault, FaultPlan, FaultRule, Faulty, Survival, When};
use firndb_base::rng::Rng;
use firndb_testkit::watchdog::Watchdog;
use std::sync::Arc;

/// Scripts that are walked: those in which writes of several kinds are under way.
const WALKED: [&str; 40] = [
    "inserts",
    "inserts over two log devices",
    "inserts over four log devices",
    "updates",
    "deletes",
    "updates of more than fits into DRAM",
    "secondary indexes",
    "splits in the middle",
    "merges",
    "growth by groups",
    "space given back",
    "compaction",
    "before-images spill, commit",
    "before-images spill, rollback",
    "checkpoints within transactions",
    "a transaction open while others commit",
    "checkpoints",
    "commits that are waited for later",
    "prepare and commit",
    "prepare and roll back in the next life",
    "tables are created",
    "tables are dropped",
    "an index is built",
    "closing and opening",
    "recovery of more than fits into DRAM",
    "work while recovery goes on",
    "page files: puts and parts",
    "page files: savepoints and rollbacks",
    "page files: more than fits into DRAM",
    "page files: cut and grown",
    "page files: prepared",
    "page files: created and dropped",
    "page files: recovery",
    "large values: replaced and freed",
    "large values: savepoints and prepared",
    "large values: dropped with their table",
    "large values: recovery",
    "tables are loaded",
    "loaded tables are changed",
    "recovery of a loaded table",
];
/// Walked too, but long.
const LONG: [&str; 3] =
    ["the log goes around", "the log goes around on two devices", "a bit of everything, in little DRAM"];

fn walk(walk: Walk) {
    let case = |name: &&str| Case {
        name: (*name).to_owned(),
        script: scripts::named(name),
        reopened: |options| options,
    };
    walk_all(WALKED.iter().chain(&LONG).map(case), walk).failures.assert_none("crash images");
}

#[test]
fn a_sample_of_images() {
    walk(Walk { images: 16, again_one_in: 8, go_on_one_in: 8, seed: 1 });
}

/// Minutes. `FIRN_SEED` chooses other moments and mixtures, `FIRN_IMAGES` how many of each script,
/// `FIRN_SCRIPT` one script.
#[test]
#[ignore = "takes minutes"]
fn many_images() {
    walk(Walk::long(600, 10));
}

/// What the images above are of: compaction moves page numbers in the script that is meant to show
/// it.
#[test]
fn compaction_moves_page_numbers_in_its_script() {
    let script = scripts::named("compaction");
    let mut session = script.prepare();
    session.open();
    (script.run)(&mut session);
    assert!(
        session.broken.is_empty() && session.renumbered > 10,
        "{} {:?}",
        session.renumbered,
        session.broken
    );
}

/// A power cut during a creation leaves nothing that is taken for a database with contents; after
/// it, all.
#[test]
fn a_creation_is_there_whole_or_not_at_all() {
    let options = || scripts::named("inserts over two log devices").options_for();
    let plan = CrashPlan::new();
    let db = options().create_on(Bed::new(2).crashing(&plan)).expect("creates");
    plan.mark(1);
    drop(db);
    let (mut replay, mut rng) = (plan.replay(), Rng::new(4));
    let (mut before, mut after) = (0, 0);
    loop {
        for survival in Survival::ALL {
            let bed = Bed::of_image(replay.image(survival, &mut rng));
            match options().open_on(bed.plain()) {
                Ok(db) => {
                    assert_eq!(db.table_names(), Vec::<String>::new());
                    assert!(db.check(&mut |_| {}).expect("can be checked").is_clean());
                    after += 1;
                }
                Err(error) => {
                    let at = replay.position();
                    assert!(replay.marks().is_empty(), "{survival:?} at event {at}: {error}");
                    before += 1;
                }
            }
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert!(before > 0 && after > 0, "both were seen: {before}, {after}");
}

/// How many images of a broken engine fail.
fn failures_of(record: &Record) -> usize {
    let dog = Watchdog::start();
    let walk = Walk { images: 300, again_one_in: 1 << 40, go_on_one_in: 1 << 40, seed: 5 };
    let found = record.walk(walk, &dog);
    eprintln!("{}: {} of {} images fail, as they should", record.name, found.failures.count(), found.images);
    found.failures.count()
}

#[test]
fn an_engine_that_breaks_the_write_ahead_rule_is_caught() {
    let script = scripts::named("updates of more than fits into DRAM");
    let options = script.options_for().unsafe_skip_wal_rule();
    let record = record(&script, options, CrashPlan::new(), &|devices| devices);
    assert!(failures_of(&record) > 0, "pages were written before their log, and no image showed it");
}

#[test]
fn a_store_whose_syncs_lie_is_caught() {
    let script = scripts::named("updates of more than fits into DRAM");
    let faults = FaultPlan::new(1);
    let rule = |device: &str| FaultRule {
        calls: Calls::Syncs,
        device: Some(device.to_owned()),
        when: When::From(0),
        fault: Fault::Lost,
    };
    faults.add(rule("store"));
    let lying = |devices: Devices| Devices {
        store: Arc::new(Faulty::new(devices.store.clone(), &faults)),
        ..devices
    };
    let record = record(&script, script.options_for(), CrashPlan::new(), &lying);
    assert!(faults.fired() > 0, "nothing was synced");
    assert!(failures_of(&record) > 0, "syncs of the store were lost, and no image showed it");
}
