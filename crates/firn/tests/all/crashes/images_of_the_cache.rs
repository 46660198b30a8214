//! Whatever a power cut leaves of a database with a flash cache, at any moment and in any mixture
//! of sectors: the database opens, holds every acknowledged commit and nothing that was not
//! committed, and is not damaged.
//!
//! The caches are as small as can be, so that groups, laps, replacements, segments and checkpoints
//! follow each other within one script. The usual run takes a sample of moments and mixtures,
//! `many_images` more.

use crate::support::caches::{CACHES, roomy};
use crate::support::images::{Case, Walk, record, walk_all};
use crate::support::scripts;
use firndb::Devices;
use firndb::device::{Calls, CrashPlan, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_testkit::watchdog::Watchdog;
use std::sync::Arc;

/// Scripts in which pages leave DRAM, are freed and come again, and recovery has something to do.
const WALKED: [&str; 13] = [
    "updates of more than fits into DRAM",
    "scans of more than fits into DRAM",
    "inserts over two log devices",
    "deletes",
    "secondary indexes",
    "splits in the middle",
    "merges",
    "space given back",
    "before-images spill, rollback",
    "tables are dropped",
    "closing and opening",
    "recovery of more than fits into DRAM",
    "work while recovery goes on",
];
const LONG: [&str; 2] = ["the log goes around", "a bit of everything, in little DRAM"];

fn walk(walk: Walk) {
    let only = std::env::var("FIRN_CACHE").ok();
    let caches = CACHES.iter().filter(|(what, _)| only.as_ref().is_none_or(|only| what == only));
    let cases = caches.flat_map(|(what, cache)| {
        // Their pages are larger than the others' and do not fit into the smallest caches.
        let long = if *what == "roomy" { &LONG[..] } else { &[] };
        WALKED.iter().chain(long).map(move |name| Case {
            name: format!("{what}, {name}"),
            script: scripts::named(name).over_cache(*cache),
            reopened: |options| options,
        })
    });
    walk_all(cases, walk).failures.assert_none("crash images with a cache");
}

#[test]
fn a_sample_of_images() {
    walk(Walk { images: 4, again_one_in: 6, go_on_one_in: 4, seed: 1 });
}

/// Minutes. `FIRN_SEED` chooses other moments and mixtures, `FIRN_IMAGES` how many of each script,
/// `FIRN_SCRIPT` one script, `FIRN_CACHE` one kind of cache.
#[test]
#[ignore = "takes minutes"]
fn many_images() {
    walk(Walk::long(300, 6));
}

/// The harness sees it if the cache's writes are not durable when they should be.
#[test]
fn a_cache_whose_durable_writes_lie_is_caught() {
    let faults = FaultPlan::new(1);
    faults.add(FaultRule {
        calls: Calls::Writes,
        device: Some("cache".to_owned()),
        when: When::From(30),
        fault: Fault::Lost,
    });
    let lying = |devices: Devices| Devices {
        cache: devices.cache.map(|cache| Arc::new(Faulty::new(cache, &faults)) as _),
        ..devices
    };
    let script = scripts::named("updates of more than fits into DRAM").over_cache(roomy);
    let record = record(&script, script.options_for(), CrashPlan::new(), &lying);
    let dog = Watchdog::start();
    let found =
        record.walk(Walk { images: 100, again_one_in: 1 << 40, go_on_one_in: 1 << 40, seed: 5 }, &dog);
    assert!(faults.fired() > 0, "nothing was written");
    let noticed = found.failures.count() + record.session.errors.len() + record.session.broken.len();
    assert!(noticed > 0, "writes of the cache were lost, and nothing showed it");
}
