//! One restart for table 6 and figure 6: a kill, and what comes after it.
//!
//! Engines with and without a cache are killed after equal work: a given number of transactions
//! after a checkpoint, however long they took. (The paper kills after equal seconds, in which its
//! engine with the cache had done several times as much.) Then the database is opened and one
//! Payment commits: the time from the beginning of the opening to that commit is the time of a
//! restart. By default pages are redone when they are touched, and the rest in the background;
//! beside it the same crash is recovered from as the paper's engine does, with all of redo and undo
//! before the opening returns. A third part has the default options, automatic checkpoints among
//! them.
//!
//! The process is killed, not the power: what had been written is there. Reading and repeating the
//! log is charged no processor time.

use super::machine::{CORES, Cell, Machine, open, open_with};
use super::population::Population;
use super::run::{driver, is_warm};
use crate::bench::cells::Cellular;
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{CacheStatistics, RecoveryReport};
use firndb_adapter::FirnEngine;
use firndb_base::clock::{self, Moment};
use firndb_console::Failure;
use firndb_profile::VariantName;
use firndb_workloads::tpcc::{self, ClientOptions, Mix, TpccClient};
use firndb_workloads::{Attempt, Client, Commit, CommitMode, EngineError, LiveRate};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Watched after the opening began.
const AFTERWARDS: Duration = Duration::from_secs(20);
const EACH: Duration = Duration::from_secs(1);
/// Redo in the background is not watched for longer.
const REDONE_WITHIN: Duration = Duration::from_secs(200);
/// And after the first commit.
const AFTER_COMMIT: Duration = Duration::from_secs(10);
/// Attempts of the first transaction: rows of what had not committed are locked until it is undone.
const ATTEMPTS_MAX: u32 = 100_000;

/// What a kill left, and what was before it.
struct Killed {
    left: Population,
    per_second: f64,
    hit_rate: f64,
    /// Commits since the checkpoint, or since measuring began.
    commits: u64,
}

/// A machine and a load, killed after each of these numbers of transactions.
#[derive(Clone, Debug)]
pub struct RestartCell {
    pub cell: Cell,
    pub work: Vec<u64>,
}

/// What was found of each of its kills.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestartFound {
    pub restarts: Vec<Restart>,
}

impl Cellular for RestartCell {
    type Found = RestartFound;

    fn name(&self) -> String {
        let work: Vec<String> = self.work.iter().map(u64::to_string).collect();
        format!("{}, killed after {} transactions", self.cell.name(), work.join(", "))
    }

    fn at_end(&self, end: VariantName) -> Option<RestartCell> {
        Some(RestartCell { cell: self.cell.at_end(end)?, work: self.work.clone() })
    }
}

/// A part of an opening.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub seconds: f64,
    pub log_reads: u64,
    pub cache_reads: u64,
    pub store_reads: u64,
}

/// A kill, and what came after it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Restart {
    /// Transactions a second and hit rate before the kill.
    pub before_per_second: f64,
    pub before_hit_rate: f64,
    /// Transactions since the checkpoint, or since measuring began.
    pub commits: u64,
    pub frames: u64,
    pub database_bytes: u64,
    /// From the beginning of opening until it returns, and until a transaction has committed.
    pub opened_seconds: f64,
    pub first_commit_seconds: f64,
    /// And until nothing is left to be redone or undone, beside other transactions; `None` if that
    /// did not end while it was watched.
    pub all_redone_seconds: Option<f64>,
    /// And until the checkpoint that ends recovery was taken, likewise.
    pub complete_seconds: Option<f64>,
    /// Until a transaction has committed, if all of recovery is done before the opening returns.
    pub eager_first_commit_seconds: f64,
    pub log_bytes: u64,
    pub page_changes_redone: u64,
    /// Pages that the log names and that flash has as they should be: not read.
    pub pages_current_in_flash: u64,
    pub pages_from_flash: u64,
    pub pages_from_disks: u64,
    pub parts: Vec<Part>,
    /// What came after the first commit, second by second or nearly so.
    pub course: Vec<Second>,
}

/// An interval after a restart, of a second or a little more.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Its end, in seconds since opening began.
    pub at: f64,
    pub transactions_per_second: f64,
    pub hit_rate: f64,
}

fn hits(cache: Option<CacheStatistics>) -> (u64, u64) {
    cache.map_or((0, 0), |cache| (cache.hits, cache.misses))
}

impl Restart {
    /// Of the pages that redo read, those that came from flash, %.
    pub fn read_from_flash(&self) -> f64 {
        percent(self.pages_from_flash, self.pages_from_disks)
    }

    /// Of the pages that the log names and that were not up to date in the store, those found in
    /// flash, up to date or not, %: what an engine reads that redoes every page.
    pub fn found_in_flash(&self) -> f64 {
        percent(self.pages_from_flash + self.pages_current_in_flash, self.pages_from_disks)
    }

    /// Mean hit rate soon after the first commit over that before the kill, %.
    pub fn hits_after(&self) -> f64 {
        let until = self.first_commit_seconds + AFTER_COMMIT.as_secs_f64();
        let rates: Vec<f64> = self.course.iter().filter(|it| it.at <= until).map(|it| it.hit_rate).collect();
        rates.iter().sum::<f64>() / rates.len() as f64 / self.before_hit_rate * 100.0
    }

    /// What opening took, part by part.
    pub fn parts(&self) -> String {
        let part = |part: &Part| {
            let reads = [("log", part.log_reads), ("flash", part.cache_reads), ("disk", part.store_reads)];
            let reads: Vec<String> = reads
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            let reads = if reads.is_empty() { String::new() } else { format!(" ({})", reads.join(", ")) };
            format!("{} {:.3} s{reads}", part.name, part.seconds)
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join("; ")
    }

    fn note(&mut self, report: &RecoveryReport) {
        let redo = &report.redo;
        self.log_bytes = report.log_bytes;
        self.page_changes_redone = report.redone;
        self.pages_current_in_flash = redo.pages_current;
        self.pages_from_flash = redo.pages_from_cache;
        self.pages_from_disks = redo.pages_from_store;
        let part = |(name, cost): (&str, firndb::RecoveryCost)| Part {
            name: name.to_owned(),
            seconds: cost.time.as_secs_f64(),
            log_reads: cost.log_reads,
            cache_reads: cost.cache_reads,
            store_reads: cost.store_reads,
        };
        self.parts = report.parts().map(part).into();
        if report.complete {
            self.complete_seconds = Some(self.opened_seconds + report.rest_time.as_secs_f64());
        }
    }
}

fn percent(part: u64, rest: u64) -> f64 {
    part as f64 / (part + rest).max(1) as f64 * 100.0
}

fn share((hits, misses): (u64, u64), before: (u64, u64)) -> f64 {
    let (hits, misses) = (hits - before.0, misses - before.1);
    hits as f64 / (hits + misses).max(1) as f64
}

fn run_until(
    (cell, seed): (&Cell, u64),
    engine: &Charged<FirnEngine>,
    interrupted: &AtomicBool,
    look: &mut dyn FnMut(&LiveRate) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (driver, clients) = driver(cell, seed);
    let stop = AtomicBool::new(false);
    let mut outcome = Ok(false);
    tpcc::run(engine, &driver, &clients, &stop, &mut |live| {
        if matches!(outcome, Ok(false)) {
            outcome = look(&live);
        }
        if interrupted.load(Ordering::Relaxed) || !matches!(outcome, Ok(false)) {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::interrupted("stopped before all was measured")),
        Err(error) => Err(error),
    }
}

/// Whether DRAM and the cache have been filled often enough.
fn is_full(cell: &Cell, engine: &Charged<FirnEngine>, live: &LiveRate) -> bool {
    let buffer = engine.inner().database().statistics().buffer;
    buffer.misses >= 2 * buffer.frames && is_warm(cell, engine, live)
}

/// Runs until all is warm, takes a checkpoint, and returns what a kill leaves after each of these
/// numbers of transactions. Devices take no time until then: the checkpoint has none either, so
/// that no transaction runs beside it. With the default options automatic checkpoints come as they
/// do, none is asked for, and devices take their time from the opening on: by the time of reads
/// Firn decides how often a checkpoint is due.
fn killed(
    (cell, seed): (&Cell, u64),
    population: Population,
    work: &[u64],
    interrupted: &AtomicBool,
) -> Result<Vec<Killed>, Failure> {
    let bytes = population.bytes;
    let (machine, devices) = Machine::new(cell, population, seed)?;
    machine.measure(cell.default_options);
    let engine = Charged::new(open(cell, devices, bytes)?, CostModel::FIRN);
    let db = engine.inner().database();
    let mut began: Option<(Moment, u64, (u64, u64))> = None;
    let mut found = Vec::new();
    run_until((cell, seed), &engine, interrupted, &mut |live| {
        let Some((since, commits, before)) = began else {
            if is_full(cell, &engine, live) {
                if !cell.default_options {
                    db.checkpoint()?;
                }
                machine.measure(true);
                began = Some((clock::now(), live.commits, hits(db.statistics().cache)));
            }
            return Ok(false);
        };
        if live.commits - commits >= work[found.len()] {
            let left = machine.killed();
            let per_second = (live.commits - commits) as f64 / since.elapsed().as_secs_f64();
            let hit_rate = share(hits(db.statistics().cache), before);
            found.push(Killed { left, per_second, hit_rate, commits: live.commits - commits });
        }
        Ok(found.len() == work.len())
    })?;
    machine.measure(false);
    engine.into_inner().into_database().close()?;
    Ok(found)
}

/// One Payment, tried again until it has committed.
fn commit_once(
    (cell, seed): (&Cell, u64),
    engine: &Charged<FirnEngine>,
    loaded: tpcc::Population,
) -> Result<(), Failure> {
    let (_, options) = driver(cell, seed);
    let options = ClientOptions { mix: Mix([0, 1, 0, 0, 0]), ..options };
    let mut client = TpccClient::new(engine, loaded, &options, 0)?;
    client.draw();
    for _ in 0..ATTEMPTS_MAX {
        match client.attempt(CommitMode::Wait) {
            Ok(Attempt::Committed(Commit::Durable)) => return Ok(()),
            Ok(_) => break,
            Err(EngineError::Retry(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new("the first transaction after a restart did not commit"))
}

/// Opens what a kill left, commits once, and watches the clients that come then.
fn restarted(
    (cell, seed): (&Cell, u64),
    killed: Killed,
    interrupted: &AtomicBool,
) -> Result<Restart, Failure> {
    let (bytes, loaded) = (killed.left.bytes, killed.left.loaded);
    let (machine, devices) = Machine::new(cell, killed.left, seed)?;
    machine.measure(true);
    let began = clock::now();
    let engine = Charged::new(open(cell, devices, bytes)?, CostModel::FIRN);
    let opened = began.elapsed();
    commit_once((cell, seed), &engine, loaded)?;
    let first_commit = began.elapsed();
    let db = engine.inner().database();
    let mut found = Restart {
        before_per_second: killed.per_second,
        before_hit_rate: killed.hit_rate,
        commits: killed.commits,
        frames: db.statistics().buffer.frames,
        database_bytes: bytes,
        opened_seconds: opened.as_secs_f64(),
        first_commit_seconds: first_commit.as_secs_f64(),
        ..Restart::default()
    };
    let watched = AFTERWARDS.max(first_commit + AFTER_COMMIT + 2 * EACH);
    let mut last = (clock::now(), 0, hits(db.statistics().cache));
    run_until((cell, seed), &engine, interrupted, &mut |live| {
        let (at, commits, before) = last;
        if at.elapsed() >= EACH {
            let now = hits(db.statistics().cache);
            found.course.push(Second {
                at: began.elapsed().as_secs_f64(),
                transactions_per_second: (live.commits - commits) as f64 / at.elapsed().as_secs_f64(),
                hit_rate: share(now, before),
            });
            last = (clock::now(), live.commits, now);
        }
        let report = db.recovery_report();
        if found.all_redone_seconds.is_none() && report.redo.pages_left + report.losers_left == 0 {
            found.all_redone_seconds = Some(began.elapsed().as_secs_f64());
        }
        // Until all is redone, if that takes longer.
        let is_redone = found.all_redone_seconds.is_some() || began.elapsed() >= REDONE_WITHIN;
        Ok(began.elapsed() >= watched && is_redone)
    })?;
    found.note(&db.recovery_report());
    machine.measure(false);
    engine.into_inner().into_database().close()?;
    Ok(found)
}

/// How long it takes from the beginning of opening what is left by a kill, with all of recovery
/// done before the opening returns, to the first commit.
fn eager((cell, seed): (&Cell, u64), left: Population) -> Result<f64, Failure> {
    let (bytes, loaded) = (left.bytes, left.loaded);
    let (machine, devices) = Machine::new(cell, left, seed)?;
    machine.measure(true);
    let began = clock::now();
    let engine = Charged::new(open_with(cell, devices, bytes, true)?, CostModel::FIRN);
    commit_once((cell, seed), &engine, loaded)?;
    let seconds = began.elapsed().as_secs_f64();
    machine.measure(false);
    engine.into_inner().into_database().close()?;
    Ok(seconds)
}

/// All kills of the cell, and what comes after each.
pub fn run(
    of: &RestartCell,
    population: Population,
    seed: u64,
    interrupted: &'static AtomicBool,
) -> Result<RestartFound, Failure> {
    let (cell, work) = (of.cell.clone(), of.work.clone());
    let (kills, _) = simulate(seed, CORES, move || killed((&cell, seed), population, &work, interrupted))?;
    let mut restarts = Vec::new();
    for kill in kills {
        let (cell, copy) = (of.cell.clone(), kill.left.duplicate());
        let (eager, _) = simulate(seed, CORES, move || eager((&cell, seed), copy))?;
        let cell = of.cell.clone();
        let (mut found, _) = simulate(seed, CORES, move || restarted((&cell, seed), kill, interrupted))?;
        found.eager_first_commit_seconds = eager;
        restarts.push(found);
    }
    Ok(RestartFound { restarts })
}
