//! `firn lab torture kill`: kills the process that commits, again and again, and compares what is
//! left with what was acknowledged.
//!
//! A round is one to four runs of a child process (see [`child`]), each ended by SIGKILL at a drawn
//! moment: while it opens or recovers, right after a drawn number of acknowledgements, or after a
//! drawn time. Then the database is opened here, and verified: the ledger ([`ledger`]), the counts
//! and conditions of TPC-C ([`tpcc_book`]), and every page, tree, index and log block (`firn
//! check`). Where stores are over several devices, some of them are lost after kills
//! ([`store_devices`]).
//!
//! What a kill shows: that nothing a commit promised is kept only in the process. What it cannot
//! show is the loss of what the operating system or the device had not made durable; that is the
//! crash simulator's part.

mod acknowledgement;
pub mod args;
mod child;
mod child_run;
mod ledger;
mod store_devices;
mod tpcc_book;

use acknowledgement::Received;
use args::{Torture, TortureKill};
use child_run::{ChildRun, Setting};
use firndb::{CacheSettings, ErrorKind, Isolation, Options};
use firndb_cache_comparators::Compared;
use firndb_console::{Failure, commit_of_source, interrupt, progress, say, size};
use firndb_tpcc::tables;
use firndb_workloads::Random;
use firndb_workloads::results::Conditions;
use ledger::Book;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store_devices::Shape;
use tpcc_book::TpccBook;

/// A file that says that a directory is this command's own.
const MARK: &str = "made-by-firn-torture";
/// Most child processes of a round.
const KILLS_MAX: u64 = 4;
/// Kills after which devices of the store are taken away, where it has several.
const DEVICES_GO_PERCENT: u32 = 25;
/// Log devices of databases, drawn for each.
const LOG_DEVICES: [u32; 4] = [1, 2, 4, 7];

/// What is known of the database from outside.
struct Known {
    book: Book,
    tpcc: TpccBook,
    /// Whether a child was ever ready: before, the database need not even be there.
    ready: bool,
    log_devices: u32,
    /// Policy of its flash cache.
    policy: Option<Compared>,
    /// Of its store, if that is over several devices.
    shape: Option<Shape>,
}

/// What happened, over all rounds.
#[derive(Default)]
struct Totals {
    kills: u64,
    acknowledged: u64,
    unacknowledged: u64,
    recoveries: u64,
    log_bytes: u64,
    redone: u64,
    losers: u64,
    unfinished_creations: u64,
    store_devices_lost: u64,
    recovery_seconds_max: f64,
}

pub fn run(command: &Torture) -> Result<(), Failure> {
    match command {
        Torture::Kill(args) => kill(args),
        Torture::Child(args) => child::run(args),
    }
}

fn kill(args: &TortureKill) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    make_directory(args)?;
    let db = database(args);
    let mut random = Random::new(args.seed);
    let mut totals = Totals::default();
    let mut rows: Vec<Value> = Vec::new();
    let mut known = None;
    let started = Instant::now();
    let config = json!({
        "rounds": args.rounds, "longest_ms": args.longest_ms, "clients": args.clients,
        "tpcc_clients": args.tpcc_clients, "warehouses": args.warehouses, "fresh_every": args.fresh_every,
        "cache": args.cache, "store_array": args.store_array,
    });
    let mut conditions = Conditions::now("firn-torture/1", commit_of_source(), config, args.seed);
    let bar = progress::bar("killing", u64::from(args.rounds));
    for round in 0..args.rounds {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        if round % args.fresh_every == 0 {
            known = None;
        }
        if known.is_none() && db.exists() {
            std::fs::remove_dir_all(&db)?;
        }
        let seed = args.seed + u64::from(round / args.fresh_every);
        let known = known.get_or_insert_with(|| Known {
            book: Book::new(seed, args.clients),
            tpcc: TpccBook::default(),
            ready: false,
            log_devices: LOG_DEVICES[random.between(0, LOG_DEVICES.len() as u64 - 1) as usize],
            policy: args
                .cache
                .map(|_| Compared::ALL[random.between(0, Compared::ALL.len() as u64 - 1) as usize]),
            shape: args.store_array.then(|| Shape::draw(&mut random)),
        });
        let outcome = one_round(args, (seed, stop), known, &mut random, &mut totals);
        rows.push(outcome.map_err(|failure| {
            bar.finish_and_clear();
            Failure::new(format!(
                "round {}, seed {}: {failure}. The database is kept in {}",
                round + 1,
                args.seed,
                db.display()
            ))
        })?);
        bar.inc(1);
        bar.set_message(format!("{} commits acknowledged", totals.acknowledged));
    }
    bar.finish_and_clear();
    conditions.seconds = started.elapsed().as_secs_f64();
    report(&rows, &totals, conditions.seconds);
    if let Some(path) = &args.json {
        let mut result =
            serde_json::to_value(&conditions).map_err(|error| Failure::new(error.to_string()))?;
        result["rounds"] = Value::Array(rows);
        result["failures"] = json!(0);
        firndb_console::output::write_json(path, &result)?;
    }
    if !args.keep {
        std::fs::remove_dir_all(&args.dir)?;
    }
    Ok(())
}

/// An empty directory of this command's own.
fn make_directory(args: &TortureKill) -> Result<(), Failure> {
    let dir = &args.dir;
    if dir.exists() && !dir.join(MARK).exists() {
        return Err(Failure::bad_argument(format!(
            "{} is there and was not made by this command: choose another --dir",
            dir.display()
        )));
    }
    let made = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(dir.join(MARK), []));
    made.map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    match std::fs::remove_dir_all(dir.join("db")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Starts and kills children, and verifies what they left.
fn one_round(
    args: &TortureKill,
    (seed, stop): (u64, &AtomicBool),
    known: &mut Known,
    random: &mut Random,
    totals: &mut Totals,
) -> Result<Value, Failure> {
    let mut received = Received::new(args.clients);
    received.ready = known.ready;
    for client in 0..args.clients {
        received.transfers[usize::from(client)] = known.book.last_known(client);
    }
    let kills = random.between(1, KILLS_MAX);
    let mut transfers_in_flight = 0;
    for _ in 0..kills {
        let setting = Setting::draw(random, known.log_devices, (known.policy, known.shape));
        transfers_in_flight += u64::from(setting.window) + 1;
        let longest = Duration::from_millis(args.longest_ms);
        let child = ChildRun { args, seed, setting: &setting, fresh: !received.ready, longest };
        child.start_and_kill(random, &mut received)?;
        if received.ready && known.shape.is_some() && random.percent(DEVICES_GO_PERCENT) {
            totals.store_devices_lost += store_devices::take_away(&database(args), random)?;
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    known.ready = received.ready;
    totals.kills += kills;
    totals.acknowledged += received.commits;
    let verified = verify(args, known, &received, (transfers_in_flight, kills), totals)?;
    Ok(json!({
        "kills": kills, "acknowledged": received.commits, "log_devices": known.log_devices,
        "cache_policy": known.policy.map(Compared::name), "store": known.shape.map(Shape::name),
        "transfers": known.book.transfers(), "verified": verified,
    }))
}

fn verify(
    args: &TortureKill,
    known: &mut Known,
    received: &Received,
    (transfers_in_flight, kills): (u64, u64),
    totals: &mut Totals,
) -> Result<Value, Failure> {
    let opening = Instant::now();
    let options = Options::new().create(false).buffer_bytes(16 << 20);
    let options = options
        .cache(|cache| known.policy.into_iter().flat_map(Compared::kinds).fold(cache, CacheSettings::kind));
    let db = match options.open(database(args)) {
        Err(error) if error.kind() == ErrorKind::NotFound && !known.ready => {
            totals.unfinished_creations += 1;
            return Ok(json!({"unfinished_creation": true}));
        }
        other => other?,
    };
    let seconds = opening.elapsed().as_secs_f64();
    totals.recoveries += 1;
    totals.recovery_seconds_max = totals.recovery_seconds_max.max(seconds);
    let mut unacknowledged = 0;
    if known.ready {
        unacknowledged += known.book.verify(&db, &received.transfers, transfers_in_flight)?;
        let engine = tables::open(db.clone(), Isolation::Snapshot)?;
        let in_flight = kills * u64::from(args.tpcc_clients);
        unacknowledged += known.tpcc.verify(&engine, &received.tpcc, in_flight)?;
    }
    totals.unacknowledged += unacknowledged;
    let report = db.check(&mut |_| ())?;
    // A check finishes recovery.
    let recovery = db.recovery_report();
    totals.log_bytes += recovery.log_bytes;
    totals.redone += recovery.redone;
    totals.losers += recovery.losers;
    if let Some(first) = report.damage.first() {
        return Err(Failure::new(format!("DAMAGED: {} faults, the first: {first}", report.faults)));
    }
    if known.shape.is_some() {
        let scrubbed = db.scrub(&mut |_, _| ())?;
        if let Some(first) = scrubbed.damage.first() {
            return Err(Failure::new(format!("DAMAGED: {} faults, the first: {first}", scrubbed.faults)));
        }
    }
    db.close()?;
    Ok(json!({
        "opening_seconds": seconds, "log_bytes": recovery.log_bytes, "redone": recovery.redone,
        "losers": recovery.losers, "unacknowledged": unacknowledged, "pages": report.pages,
        "leaked_pages": report.leaked_pages,
    }))
}

fn report(rows: &[Value], totals: &Totals, seconds: f64) {
    say!(
        "{} rounds in {seconds:.0} s: {} processes killed, {} recoveries verified, {} creations cut off",
        rows.len(),
        totals.kills,
        totals.recoveries,
        totals.unfinished_creations
    );
    say!(
        "{} commits acknowledged, all of them there; {} more survived unacknowledged, whole",
        totals.acknowledged,
        totals.unacknowledged
    );
    say!(
        "recovery: {} of log read, {} changes repeated, {} transactions rolled back, {:.2} s at most",
        size::show(totals.log_bytes),
        totals.redone,
        totals.losers,
        totals.recovery_seconds_max
    );
    if totals.store_devices_lost > 0 {
        say!("{} devices of stores were lost, none more than a store survives", totals.store_devices_lost);
    }
    say!("no loss, no half transaction, no damage");
}

/// Where a child finds its database.
fn database(args: &TortureKill) -> PathBuf {
    args.dir.join("db")
}
