//! Measures how soon after a crash a database commits, in virtual time and in reads: with redo on
//! demand and with all of recovery before the opening returns, with a flash cache and without one.
//!
//! `cargo run --release -p firndb-lab --example first_commit [ROWS] [UPDATES]`. Equal arguments
//! give equal figures on any machine.
//!
//! The log is on an NVMe drive, the store on a disk, the cache on a SATA drive, as the shipped
//! profiles model them. Every device is ready when the crash is; updates were to random rows, and
//! no checkpoint came after the load.

use firndb::device::{Device, MemoryDevice};
use firndb::{Database, Devices, Options, RecoveryCost};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_emulate::{Emulated, profiles};
use std::sync::Arc;

/// What lies on the devices when nothing above is left.
struct Bed {
    devices: [Arc<MemoryDevice>; 4],
}

const PROFILES: [&str; 4] = ["nvme", "nvme", "disk-7200", "sata-ssd"];

impl Bed {
    fn new() -> Bed {
        Bed { devices: ["superblock", "log", "store", "cache"].map(|name| Arc::new(MemoryDevice::new(name))) }
    }

    fn duplicate(&self) -> Bed {
        Bed { devices: std::array::from_fn(|at| Arc::new(self.devices[at].duplicate())) }
    }

    fn devices(&self, timed: bool) -> Devices {
        let [superblock, log, store, cache]: [Arc<dyn Device>; 4] = std::array::from_fn(|at| {
            let profile = profiles::get(PROFILES[at]).expect("it ships");
            let device =
                Emulated::new(self.devices[at].clone(), &profile, at as u64).expect("a sound profile");
            device.run_free(!timed);
            Arc::new(device) as Arc<dyn Device>
        });
        Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: Some(cache) }
    }
}

fn options(cache: bool) -> Options {
    let options = Options::new()
        .buffer_bytes(4 << 20)
        .log(|log| log.bytes(256 << 20).devices(1))
        .background_threads(false);
    if cache { options.cache(|cache| cache.bytes(64 << 20)) } else { options }
}

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

fn crash(rows: u64, updates: u64, cache: bool) -> Bed {
    let bed = Bed::new();
    let db = options(cache).create_on(bed.devices(false)).expect("created");
    let table = db.create_table("t").expect("created");
    for from in (0..rows).step_by(1000) {
        db.transact(|tx| {
            (from..from + 1000).try_for_each(|row| tx.put(&table, &key(row), &[1; 300]).map(drop))
        })
        .expect("committed");
    }
    db.checkpoint().expect("taken");
    let mut rng = Rng::new(1);
    for _ in 0..updates / 10 {
        db.transact(|tx| {
            (0..10).try_for_each(|_| {
                tx.put(&table, &key(rng.below(rows)), &[rng.below(256) as u8; 300]).map(drop)
            })
        })
        .expect("committed");
    }
    bed.duplicate()
}

fn commit_one(db: &Database, rows: u64) {
    let table = db.table("t").expect("there");
    db.transact(|tx| tx.put(&table, &key(rows / 2), &[7; 300]).map(drop)).expect("committed");
}

fn show(what: &str, cost: RecoveryCost) {
    println!(
        "    {what:<28} {:>10.3} s  {:>6} reads of the log {:>6} of the cache {:>6} of the store",
        cost.time.as_secs_f64(),
        cost.log_reads,
        cost.cache_reads,
        cost.store_reads
    );
}

fn measure(bed: &Bed, rows: u64, cache: bool, eager: bool) {
    let begun = clock::now();
    let db = options(cache)
        .tuning(|tuning| tuning.eager_recovery(eager))
        .open_on(bed.duplicate().devices(true))
        .expect("opens");
    let opened = begun.elapsed();
    commit_one(&db, rows);
    let committed = begun.elapsed();
    let first = db.recovery_report();
    let io = db.io_counts();
    println!(
        "{}, {}: first commit after {:.3} s, {} reads ({} of the log, {} of the cache, {} of the store)",
        if cache { "flash cache" } else { "no cache" },
        if eager { "all before the opening returns" } else { "redo on demand" },
        committed.as_secs_f64(),
        io.log_total().read_ops + io.cache_total().read_ops + io.store_total().read_ops,
        io.log_total().read_ops,
        io.cache_total().read_ops,
        io.store_total().read_ops,
    );
    show("finding the log", first.scan);
    show("the cache's directory", first.cache);
    show("analysis", first.analysis);
    show("page map", first.map);
    show("opening", first.opening);
    println!("    {:<28} {:>10.3} s", "opened", opened.as_secs_f64());
    db.finish_recovery().expect("finished");
    let last = db.recovery_report();
    println!(
        "    {:<28} {:>10.3} s  {} bytes of log, {} pages pending, {} on demand before the commit; in the end {} changes \
         repeated, {} pages from the cache, {} from the store",
        "all done",
        begun.elapsed().as_secs_f64(),
        last.log_bytes,
        last.redo.pages_pending,
        first.redo.pages_on_demand,
        last.redone,
        last.redo.pages_from_cache,
        last.redo.pages_from_store
    );
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let rows = numbers.next().unwrap_or(50_000);
    let updates = numbers.next().unwrap_or(20_000);
    for cache in [false, true] {
        let options = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 4) };
        let ran = sim::run(options, move || {
            let bed = crash(rows, updates, cache);
            for eager in [true, false] {
                measure(&bed, rows, cache, eager);
            }
        });
        if let Err(failure) = ran {
            panic!("{failure}");
        }
    }
}
