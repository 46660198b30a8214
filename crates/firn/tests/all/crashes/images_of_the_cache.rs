//! Whatever a power cut leaves of a database with a flash cache, at any moment and in any mixture
//! of sectors: the database opens, holds every acknowledged commit and nothing that was not
//! committed, and is not damaged.
//!
//! The caches are as small as can be, so that groups, laps, replacements, segments and checkpoints
//! follow each other within one script. The usual run takes a sample of moments and mixtures,
//! `many_images` more.

use crate::support;
use crate::support::caches::{CACHES, Cache, roomy};
use crate::support::images::{Record, Tally, Walk, record};
use crate::support::scripts;
use crate::support::watchdog::Watchdog;
use firndb::Devices;
use firndb::device::{Calls, CrashPlan, Fault, FaultPlan, FaultRule, Faulty, When};
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

fn honest(devices: Devices) -> Devices {
    devices
}

fn recorded(name: &str, cache: Cache, wrap: support::images::Wrap<'_>) -> Record {
    let script = scripts::named(name).over_cache(cache);
    let record = record(&script, script.options_for(), CrashPlan::new(), wrap);
    let session = &record.session;
    assert!(
        session.broken.is_empty() && session.errors.is_empty(),
        "{name}: {:?} {:?}",
        session.broken,
        session.errors
    );
    record
}

fn walk_all(walk: Walk) {
    let only = std::env::var("FIRN_SCRIPT").ok();
    let only_cache = std::env::var("FIRN_CACHE").ok();
    let dog = Watchdog::start();
    let mut tally = Tally::default();
    for (what, cache) in CACHES.iter().filter(|(what, _)| only_cache.as_ref().is_none_or(|only| what == only))
    {
        // Their pages are larger than the others' and do not fit into the smallest caches.
        let long = if *what == "roomy" { &LONG[..] } else { &[] };
        let names = WALKED.iter().chain(long);
        for name in names.filter(|name| only.as_ref().is_none_or(|only| *name == only)) {
            let found = recorded(name, *cache, &honest).walk(walk, &dog);
            eprintln!("{what}, {name}: {found}, {} failures", found.failures.count());
            tally.join(found);
        }
    }
    dog.end();
    eprintln!("in all: {tally}");
    tally.failures.assert_none("crash images with a cache");
}

#[test]
fn a_sample_of_images() {
    walk_all(Walk { images: 6, again_one_in: 6, go_on_one_in: 4, seed: 1 });
}

/// Minutes. `FIRN_SEED` chooses other moments and mixtures, `FIRN_IMAGES` how many of each script,
/// `FIRN_SCRIPT` one script, `FIRN_CACHE` one kind of cache.
#[test]
#[ignore = "takes minutes"]
fn many_images() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("FIRN_SEED").unwrap_or(2);
    let images = number("FIRN_IMAGES").unwrap_or(300) as usize;
    walk_all(Walk { images, again_one_in: 5, go_on_one_in: 6, seed });
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
    dog.end();
    assert!(faults.fired() > 0, "nothing was written");
    let noticed = found.failures.count() + record.session.errors.len() + record.session.broken.len();
    assert!(noticed > 0, "writes of the cache were lost, and nothing showed it");
}
