//! The whole engine, its own threads and eight clients, in the simulator: one seed is one run, to
//! the byte of every device; another seed is another run; and in every one of them money is neither
//! made nor lost.

use crate::support::bed::Bed;
use firndb::device::Device;
use firndb::{Database, Devices, Error, Options, Table, Transaction};
use firndb_base::clock;
use firndb_base::hash::hash_bytes;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, Policy, SimOptions, SimOutcome};
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_testkit::bytes::contents;
use firndb_testkit::hooked::{Call, Hooked};
use firndb_testkit::seeds::number_from;
use std::time::Duration;

const ACCOUNTS: u64 = 48;
const OPENING: u64 = 1000;
const CLIENTS: u64 = 8;
const TRANSFERS: u64 = 25;

/// A device that takes its time, drawn from a seed. Calls wait side by side.
fn over(inner: Arc<dyn Device>, seed: u64) -> Arc<dyn Device> {
    let times = Mutex::new(Rng::new(seed));
    Hooked::over(inner, move |call| {
        let least_us = match call {
            Call::Read { .. } => 20,
            Call::Write { .. } => 50,
            Call::Sync => 200,
            _ => return Ok(()),
        };
        let us = times.lock().between(least_us, 4 * least_us);
        clock::sleep(Duration::from_micros(us));
        Ok(())
    })
}

fn slow(bed: &Bed, seed: u64) -> Devices {
    let Devices { superblock, logs, store, cache, .. } = bed.plain();
    let logs = (0..).zip(logs).map(|(i, log)| over(log, seed + 2 + i)).collect();
    Devices {
        superblock: over(superblock, seed),
        logs,
        store: over(store, seed + 1),
        store_others: Vec::new(),
        cache,
    }
}

/// Small enough that the cleaner and the checkpointer have work.
fn options() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(96 << 10)
        .tuning(|tuning| tuning.version_bytes(8 << 10).checkpoint_log_bytes(64 << 10))
        .log(|log| log.devices(2).bytes(512 << 10))
}

fn balance(tx: &mut Transaction, table: &Table, account: u64) -> Result<u64, Error> {
    let row = tx.get(table, &account.to_be_bytes())?.expect("accounts are never removed");
    Ok(u64::from_be_bytes(row[..8].try_into().expect("eight bytes")))
}

fn set(tx: &mut Transaction, table: &Table, account: u64, balance: u64) -> Result<(), Error> {
    let mut row = vec![account as u8; 200];
    row[..8].copy_from_slice(&balance.to_be_bytes());
    tx.put(table, &account.to_be_bytes(), &row).map(drop)
}

fn total(db: &Database, table: &Table) -> u64 {
    let mut tx = db.snapshot();
    (0..ACCOUNTS).map(|account| balance(&mut tx, table, account).expect("readable")).sum()
}

fn client(db: &Database, table: &Table, seed: u64, no: u64) {
    let mut rng = Rng::new(seed << 8 | no);
    for _ in 0..TRANSFERS {
        let (from, to, amount) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.between(1, 100));
        if rng.one_in(8) {
            assert_eq!(total(db, table), ACCOUNTS * OPENING, "a snapshot shows whole transfers");
        }
        sim::charge(Duration::from_micros(15));
        db.transact(|tx| {
            let (source, target) = (balance(tx, table, from)?, balance(tx, table, to)?);
            if from != to && source >= amount {
                set(tx, table, from, source - amount)?;
                set(tx, table, to, target + amount)?;
            }
            Ok::<_, Error>(())
        })
        .expect("transfers succeed in the end");
    }
}

/// Clients against each other, a crash of the process under them as seen from a copy of the
/// devices, a recovery of that copy, a close.
fn life(bed: &Bed, seed: u64) {
    let db = options().create_on(slow(bed, seed)).expect("creates");
    let table = db.create_table("accounts").expect("creates");
    db.transact(|tx| (0..ACCOUNTS).try_for_each(|account| set(tx, &table, account, OPENING))).expect("loads");
    thread::scope(|scope| {
        for no in 0..CLIENTS {
            let (db, table) = (&db, &table);
            scope.spawn(move || client(db, table, seed, no));
        }
    });
    assert_eq!(total(&db, &table), ACCOUNTS * OPENING);
    recover(&bed.duplicate(), seed);
    let report = db.check(&mut |_| {}).expect("checks");
    assert!(report.is_clean(), "{}", report.damage.join("; "));
    drop(table);
    db.close().expect("closes");
}

fn recover(bed: &Bed, seed: u64) {
    let db = options().open_on(slow(bed, seed + 100)).expect("recovers");
    let table = db.table("accounts").expect("is there");
    assert_eq!(total(&db, &table), ACCOUNTS * OPENING, "what was committed was whole");
    drop(table);
    db.close().expect("closes");
}

/// A hash of every byte of every device.
fn hash_of(bed: &Bed) -> Vec<u64> {
    let devices = bed.plain();
    let hash = |device: &Arc<dyn Device>| hash_bytes(1, &contents(&**device));
    std::iter::once(&devices.superblock).chain(&devices.logs).chain([&devices.store]).map(hash).collect()
}

fn simulated(options: SimOptions) -> (SimOutcome<()>, Vec<u64>) {
    let bed = Arc::new(Bed::new(2));
    let (inside, seed) = (bed.clone(), options.seed);
    let outcome =
        sim::run(options, move || life(&inside, seed)).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(outcome.leaked, Vec::<String>::new(), "a closed database has no threads");
    (outcome, hash_of(&bed))
}

/// Runs each seed twice; the hashes of their traces.
fn replay(seeds: std::ops::Range<u64>, policy: Policy) -> std::collections::BTreeSet<u64> {
    let mut seen = std::collections::BTreeSet::new();
    for seed in seeds {
        let options = SimOptions {
            policy,
            // From almost every scheduling point to few.
            preempt_one_in: [8, 2, 64, 1][seed as usize % 4],
            // Every second run has waits that end without a notification.
            spurious_one_in: if seed % 2 == 1 { 10 } else { 0 },
            step_limit: 5_000_000,
            ..SimOptions::seeded(seed)
        };
        let ((a, a_bytes), (b, b_bytes)) = (simulated(options.clone()), simulated(options));
        assert_eq!(
            (a.trace_hash, a.steps, a.switches, a.virtual_time),
            (b.trace_hash, b.steps, b.switches, b.virtual_time),
            "seed {seed} under {policy:?} replays"
        );
        assert_eq!(a_bytes, b_bytes, "seed {seed} under {policy:?} leaves the same bytes");
        // Read by the test that compares processes.
        println!(
            "{policy:?} seed {seed}: {} steps, {} switches, {:?}, trace {:016x}, bytes {a_bytes:016x?}",
            a.steps, a.switches, a.virtual_time, a.trace_hash
        );
        seen.insert(a.trace_hash);
    }
    seen
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    match (number_from("FIRN_SEED"), number_from("FIRN_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, many) => 0..many.unwrap_or(count),
    }
}

#[test]
fn twenty_seeds_replay_to_the_byte_and_differ_from_each_other() {
    let range = seeds(20);
    let count = range.end - range.start;
    assert_eq!(replay(range, Policy::Random).len() as u64, count, "each seed is a run of its own");
}

#[test]
fn runs_by_priorities_and_without_preemption_replay_too() {
    replay(seeds(4), Policy::Priorities { changes: 5, over_steps: 100_000 });
    replay(seeds(2), Policy::Fair);
}

/// Within one process addresses repeat more than they do between two, where the system draws them
/// anew.
#[test]
fn another_process_replays_the_same_run() {
    let told = || {
        let this = std::env::current_exe().expect("the test's own path");
        let output = std::process::Command::new(this)
            .args([
                "--exact",
                "a_seed_replays_the_whole_engine::twenty_seeds_replay_to_the_byte_and_differ_from_each_other",
                "--nocapture",
            ])
            .env("FIRN_SEED", "3")
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("Random seed 3:")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no account of seed 3 in {text}"))
    };
    assert_eq!(told(), told());
}

/// Real files take no virtual time and behave alike, so a database in a directory replays, too.
#[test]
fn a_database_in_files_replays_too() {
    let run = || {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().to_owned();
        let outcome = sim::run(SimOptions::seeded(11), move || {
            let db = options().log(|log| log.devices(1)).open(&path).expect("creates");
            let table = db.create_table("accounts").expect("creates");
            db.transact(|tx| (0..ACCOUNTS).try_for_each(|account| set(tx, &table, account, OPENING)))
                .expect("loads");
            thread::scope(|scope| {
                for no in 0..4 {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || client(db, table, 11, no));
                }
            });
            assert_eq!(total(&db, &table), ACCOUNTS * OPENING);
            drop(table);
            db.close().expect("closes");
        });
        let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
        (outcome.trace_hash, outcome.steps, outcome.virtual_time)
    };
    assert_eq!(run(), run());
}
