//! Table 6 and figure 6: a kill in the middle between two checkpoints, and what comes after it.
//!
//! Transactions begin as soon as the opening returns; pages are redone when they are touched, and
//! the rest in the background. Beside it the same crash is recovered from as the paper's engine
//! does: all of redo and undo before anything else.
//!
//! The process is killed, not the power: what had been written is there. Reading and repeating the
//! log is charged no processor time.

use super::Bench;
use super::compared::GSC;
use super::machine::{CORES, Cell, Machine, driver, is_warm, open, open_with};
use super::population::{Population, load};
use super::sizes::{MLC, title};
use crate::bench::cells::{Cellular, Judged, Measured};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{CacheStatistics, RecoveryReport};
use firndb_adapter::FirnEngine;
use firndb_base::clock::{self, Moment};
use firndb_cache_comparators::Compared;
use firndb_console::Failure;
use firndb_profile::VariantName;
use firndb_workloads::LiveRate;
use firndb_workloads::tpcc;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seconds between checkpoints, and what the paper printed for FaCE+GSC and for disks only.
const INTERVALS: [(f64, f64, f64); 3] = [(60.0, 93.0, 604.0), (120.0, 118.0, 786.0), (180.0, 188.0, 823.0)];
/// The same with `--quick`.
const QUICK: f64 = 20.0;
/// 4 GB of the paper's 50.
const PERCENT: f64 = 8.0;
/// Watched after the opening began.
const AFTERWARDS: Duration = Duration::from_secs(20);
const EACH: Duration = Duration::from_secs(1);

/// What a kill left, and what was before it.
struct Killed {
    left: Population,
    per_second: f64,
    hit_rate: f64,
}

/// A kill in the middle between two checkpoints so many seconds apart, and the opening after it.
#[derive(Clone, Debug)]
struct Restart {
    cell: Cell,
    interval: f64,
}

impl Cellular for Restart {
    type Found = Found;

    fn name(&self) -> String {
        format!("{}, killed {} s after a checkpoint", self.cell.name(), self.interval / 2.0)
    }

    fn at_end(&self, end: VariantName) -> Option<Restart> {
        self.cell.at_end(end).map(|cell| Restart { cell, ..self.clone() })
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    before_transactions_per_second: f64,
    before_hit_rate: f64,
    /// From the beginning of opening until transactions may begin.
    restart_seconds: f64,
    /// And until nothing is left to be redone, beside those transactions, if that ended.
    all_redone_seconds: Option<f64>,
    /// From the beginning of opening until it returns, if all of recovery is done before.
    eager_seconds: f64,
    log_bytes: u64,
    page_changes_redone: u64,
    pages_on_demand: u64,
    pages_in_background: u64,
    pages_current_in_flash: u64,
    pages_from_flash: u64,
    pages_from_store: u64,
    reads_before_answer: u64,
    parts: Vec<Part>,
    /// Transactions a second and hit rate in each second since opening began.
    course: Vec<(f64, f64)>,
}

/// What a part of the opening took.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    part: String,
    seconds: f64,
    log_reads: u64,
    cache_reads: u64,
    store_reads: u64,
}

fn hits(cache: Option<CacheStatistics>) -> (u64, u64) {
    cache.map_or((0, 0), |cache| (cache.hits, cache.misses))
}

impl Found {
    /// With what recovery reports.
    fn reporting(self, report: &RecoveryReport) -> Found {
        let parts = report.parts().into_iter().map(|(name, cost)| Part {
            part: name.to_owned(),
            seconds: cost.time.as_secs_f64(),
            log_reads: cost.log_reads,
            cache_reads: cost.cache_reads,
            store_reads: cost.store_reads,
        });
        Found {
            all_redone_seconds: report
                .complete
                .then_some(self.restart_seconds + report.rest_time.as_secs_f64()),
            log_bytes: report.log_bytes,
            page_changes_redone: report.redone,
            pages_on_demand: report.redo.pages_on_demand,
            pages_in_background: report.redo.pages_in_background,
            pages_current_in_flash: report.redo.pages_current,
            pages_from_flash: report.redo.pages_from_cache,
            pages_from_store: report.redo.pages_from_store,
            reads_before_answer: report.before_transactions().reads(),
            parts: parts.collect(),
            ..self
        }
    }

    /// Of the pages that redo read, those that came from flash, %.
    fn read_from_flash(&self) -> f64 {
        percent(self.pages_from_flash, self.pages_from_store)
    }

    /// Of the pages that the log names and that were not up to date in the store, those found in
    /// flash, up to date or not, %: what an engine reads that redoes every page.
    fn found_in_flash(&self) -> f64 {
        percent(self.pages_from_flash + self.pages_current_in_flash, self.pages_from_store)
    }

    /// Hit rate soon after the opening over that before the kill, %.
    fn hits_again(&self) -> f64 {
        let opened = self.restart_seconds.floor() as usize;
        let within = self.course.iter().skip(opened).take(10).map(|(_, hits)| *hits);
        within.fold(0.0, f64::max) / self.before_hit_rate * 100.0
    }

    /// What opening took, part by part.
    fn parts(&self) -> String {
        let part = |part: &Part| {
            let reads = [("log", part.log_reads), ("flash", part.cache_reads), ("disk", part.store_reads)];
            let reads: Vec<String> = reads
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            format!("{} {:.3} s ({})", part.part, part.seconds, reads.join(", "))
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join("; ")
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
    cell: &Cell,
    engine: &Charged<FirnEngine>,
    interrupted: &AtomicBool,
    look: &mut dyn FnMut(&LiveRate) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (driver, clients) = driver(cell);
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

/// Warm, a checkpoint, an interval, a checkpoint, half an interval, and a kill.
fn killed(
    cell: &Cell,
    population: Population,
    interval: Duration,
    interrupted: &AtomicBool,
) -> Result<Killed, Failure> {
    let bytes = population.bytes;
    let (machine, devices) = Machine::new(cell, population)?;
    let engine = Charged::new(open(cell, devices, bytes)?, CostModel::FIRN);
    let db = engine.inner().database();
    let mut checkpoints = 0;
    let mut next: Option<Moment> = None;
    let mut at_last = (Moment::ZERO, 0, (0, 0));
    let mut found = None;
    run_until(cell, &engine, interrupted, &mut |live| {
        let due = match next {
            None => {
                let warm = is_warm(cell, &engine, live);
                machine.measure(warm);
                warm
            }
            Some(next) => clock::now() >= next,
        };
        if !due {
            return Ok(false);
        }
        if checkpoints < 2 {
            db.checkpoint()?;
            checkpoints += 1;
            at_last = (clock::now(), live.commits, hits(db.statistics().cache));
            next = clock::now().after(if checkpoints == 2 { interval / 2 } else { interval });
            return Ok(false);
        }
        let left = machine.killed();
        let (since, commits, before) = at_last;
        let per_second = (live.commits - commits) as f64 / since.elapsed().as_secs_f64();
        let hit_rate = share(hits(db.statistics().cache), before);
        found = Some(Killed { left, per_second, hit_rate });
        Ok(true)
    })?;
    machine.measure(false);
    engine.into_inner().into_database().close()?;
    found.ok_or_else(|| Failure::new("nothing was killed"))
}

fn restarted(cell: &Cell, killed: Killed, interrupted: &AtomicBool) -> Result<Found, Failure> {
    let bytes = killed.left.bytes;
    let (machine, devices) = Machine::new(cell, killed.left)?;
    machine.measure(true);
    let began = clock::now();
    let engine = open(cell, devices, bytes)?;
    let seconds = began.elapsed().as_secs_f64();
    let mut found = Found {
        before_transactions_per_second: killed.per_second,
        before_hit_rate: killed.hit_rate,
        restart_seconds: seconds,
        course: vec![(0.0, 0.0); began.elapsed().as_secs() as usize],
        ..Found::default()
    };
    let engine = Charged::new(engine, CostModel::FIRN);
    let db = engine.inner().database();
    let mut last = (clock::now(), 0, hits(db.statistics().cache));
    run_until(cell, &engine, interrupted, &mut |live| {
        let (at, commits, before) = last;
        if at.elapsed() >= EACH {
            let now = hits(db.statistics().cache);
            let rate = (live.commits - commits) as f64 / at.elapsed().as_secs_f64();
            found.course.push((rate, share(now, before)));
            last = (clock::now(), live.commits, now);
        }
        Ok(began.elapsed() >= AFTERWARDS.max(Duration::from_secs_f64(seconds) + Duration::from_secs(11)))
    })?;
    let found = found.reporting(&db.recovery_report());
    machine.measure(false);
    engine.into_inner().into_database().close()?;
    Ok(found)
}

/// How long it takes to open what is left by a kill, with all of recovery done before the opening
/// returns.
fn eager(cell: &Cell, left: Population) -> Result<f64, Failure> {
    let bytes = left.bytes;
    let (machine, devices) = Machine::new(cell, left)?;
    machine.measure(true);
    let began = clock::now();
    let engine = open_with(cell, devices, bytes, true)?;
    let seconds = began.elapsed().as_secs_f64();
    machine.measure(false);
    engine.into_database().close()?;
    Ok(seconds)
}

impl Bench<'_> {
    fn restart(&self, cell: Cell, interval: f64) -> Result<Measured<Found>, Failure> {
        let (population, stop) = (self.population.clone(), self.stop);
        self.cells.of(&Restart { cell, interval }, Judged::Yes, move |restart, seed| {
            let size = restart.cell.size;
            let population = population.get((), || load(size, restart.cell.seed, CORES))?.duplicate();
            let interval = Duration::from_secs_f64(restart.interval);
            let cell = Cell { seed, ..restart.cell.clone() };
            let of = cell.clone();
            let (left, _) = simulate(seed, CORES, move || killed(&of, population, interval, stop))?;
            let (of, copy) = (cell.clone(), left.left.duplicate());
            let (eager_seconds, _) = simulate(seed, CORES, move || eager(&of, copy))?;
            let (found, _) = simulate(seed, CORES, move || restarted(&cell, left, stop))?;
            Ok(Found { eager_seconds, ..found })
        })
    }
}

/// Of all intervals; "without" is on disks alone.
#[derive(Default)]
struct Intervals {
    /// Seconds until transactions begin with the cache, and over those without, %.
    seconds: Vec<Sampled>,
    ratio: Vec<Sampled>,
    /// Until all is redone, and until an opening that redoes all returns, over those without, %.
    all_ratio: Vec<Sampled>,
    eager_ratio: Vec<Sampled>,
    /// Of the pages that the log names, and of those redone, from flash, %.
    found_in_flash: Vec<Sampled>,
    read_from_flash: Vec<Sampled>,
    /// Hit rate soon after the opening over that before the kill, %.
    hits: Vec<Sampled>,
}

impl Intervals {
    fn note(&mut self, cached: &Measured<Found>, alone: &Measured<Found>) {
        let ratio =
            |of: fn(&Found) -> f64| cached.value(of).over(&alone.value(of)).map(|ratio| ratio * 100.0);
        self.seconds.push(cached.value(|found| found.restart_seconds));
        self.ratio.push(ratio(|found| found.restart_seconds));
        self.all_ratio.push(ratio(|found| found.all_redone_seconds.unwrap_or(f64::NAN)));
        self.eager_ratio.push(ratio(|found| found.eager_seconds));
        self.read_from_flash.push(cached.value(Found::read_from_flash));
        self.found_in_flash.push(cached.value(Found::found_in_flash));
        self.hits.push(cached.value(Found::hits_again));
    }

    fn targets(&self, table: &mut Figure) {
        // Not a number if redo did not end: then it is no maximum, and the target is missed.
        let larger = |one: f64, two: f64| if one.is_nan() || two.is_nan() { f64::NAN } else { one.max(two) };
        let most = |all: &[Sampled]| {
            all.iter().cloned().reduce(|one, two| one.with(&two, larger)).unwrap_or_default()
        };
        let mut at_most = |what, values: &[Sampled], limit| table.at_most(what, &most(values), limit);
        at_most("seconds until transactions begin, most over intervals", &self.seconds, 1.0);
        at_most("restart with the cache over without, %, most over intervals", &self.ratio, 15.0);
        at_most(
            "until all is redone, with the cache over without, %, most over intervals",
            &self.all_ratio,
            15.0,
        );
        at_most(
            "all before the opening returns, with the cache over without, %, most over intervals",
            &self.eager_ratio,
            15.0,
        );
        let least = |all: &[Sampled]| Sampled::least(all).unwrap_or_default();
        let mut at_least = |what, values: &[Sampled], limit| table.at_least(what, &least(values), limit);
        at_least(
            "pages that the log names found in flash, %, least over intervals",
            &self.found_in_flash,
            98.0,
        );
        at_least("pages redone that came from flash, %, least over intervals", &self.read_from_flash, 98.0);
        at_least("hit rate within 10 s of opening over that before, %, least", &self.hits, 95.0);
    }
}

/// What the table does not show of one interval, of the first seed.
fn notes(interval: f64, policy: Compared, cached: &Found, alone: &Found) -> Vec<String> {
    let redone = |(name, found): (&str, &Found)| {
        format!(
            "interval {interval} s, {name}: {}. Pages redone from flash {}, from disks {}, current in flash {}; all \
             before the opening returns {:.2} s",
            found.parts(),
            found.pages_from_flash,
            found.pages_from_store,
            found.pages_current_in_flash,
            found.eager_seconds
        )
    };
    let mut notes: Vec<String> = [(title(policy), cached), ("HDD only", alone)].map(redone).into();
    let all = |found: &Found| found.all_redone_seconds.unwrap_or(f64::NAN);
    notes.push(format!(
        "interval {interval} s: {:.1} MiB of log and {} page changes with the cache, {:.1} MiB and {} without; {:.0} and \
         {:.0} transactions a second before the kill; transactions begin after {:.2} and {:.2} s, all is redone after \
         {:.2} and {:.2} s",
        cached.log_bytes as f64 / 1048576.0,
        cached.page_changes_redone,
        alone.log_bytes as f64 / 1048576.0,
        alone.page_changes_redone,
        cached.before_transactions_per_second,
        alone.before_transactions_per_second,
        cached.restart_seconds,
        alone.restart_seconds,
        all(cached),
        all(alone),
    ));
    notes
}

/// Table 6, and figure 6 from its longest interval.
pub fn restarts(bench: &Bench) -> Result<[Figure; 2], Failure> {
    let mut table = Figure::table("6", "time to restart after a kill");
    let mut figure = Figure::new("6", "throughput after a restart");
    let mut panel =
        Panel::new("face-table-6", "Table 6", "seconds between checkpoints", "seconds to restart");
    let mut course =
        Panel::new("face-figure-6", "Figure 6", "seconds since opening began", "transactions a second");
    panel.digits = 2;
    let quick = [(QUICK, f64::NAN, f64::NAN)];
    let intervals = if bench.args.quick { &quick[..] } else { &INTERVALS[..] };
    let policy = GSC;
    let mut all = Intervals::default();
    for (at, (interval, gsc, disks)) in intervals.iter().enumerate() {
        let cached = bench.restart(bench.cached(policy, MLC, PERCENT)?, *interval)?;
        let alone = bench.restart(bench.cell(bench.disks()?, None)?, *interval)?;
        for (name, found) in [(title(policy), &cached), ("HDD only", &alone)] {
            let seconds = found.value(|found| found.restart_seconds);
            panel.add(name, Point::new(*interval, interval.to_string(), &seconds));
            if at + 1 == intervals.len() {
                for (second, (rate, _)) in found.first().course.iter().enumerate() {
                    let x = second as f64 + 1.0;
                    course.add(name, Point::new(x, x.to_string(), &Sampled::once(*rate)));
                }
            }
        }
        if !gsc.is_nan() {
            let cell = format!("FaCE+GSC / HDD only, interval {interval} s");
            let ratio = cached.value(|found| found.restart_seconds);
            let ratio = ratio.over(&alone.value(|found| found.restart_seconds));
            table.beside(cell, &format!("{:.3}", gsc / disks), &ratio);
        }
        all.note(&cached, &alone);
        table.notes.extend(notes(*interval, policy, cached.first(), alone.first()));
    }
    table.panels.push(panel);
    figure.panels.push(course);
    all.targets(&mut table);
    Ok([table, figure])
}
