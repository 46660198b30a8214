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
use super::population::Population;
use super::sizes::{MLC, title};
use crate::bench::figure::{Figure, Panel, Point, round};
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{CacheStatistics, RecoveryCost, RecoveryReport};
use firndb_adapter::FirnEngine;
use firndb_base::clock::{self, Moment};
use firndb_cache_comparators::Compared;
use firndb_console::Failure;
use firndb_console::report::recovery_parts_json;
use firndb_workloads::LiveRate;
use firndb_workloads::tpcc;
use serde_json::json;
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

#[derive(Clone, Debug)]
struct Found {
    before_per_second: f64,
    before_hit_rate: f64,
    /// From the beginning of opening until transactions may begin.
    seconds: f64,
    /// And until nothing is left to be redone, beside those transactions.
    all_seconds: f64,
    /// From the beginning of opening until it returns, if all of recovery is done before.
    eager_seconds: f64,
    report: RecoveryReport,
    /// Transactions a second and hit rate in each second since opening began.
    course: Vec<(f64, f64)>,
}

fn hits(cache: Option<CacheStatistics>) -> (u64, u64) {
    cache.map_or((0, 0), |cache| (cache.hits, cache.misses))
}

impl Found {
    /// Of the pages that redo read, those that came from flash, %.
    fn read_from_flash(&self) -> f64 {
        let redo = &self.report.redo;
        percent(redo.pages_from_cache, redo.pages_from_store)
    }

    /// Of the pages that the log names and that were not up to date in the store, those found in
    /// flash, up to date or not, %: what an engine reads that redoes every page.
    fn found_in_flash(&self) -> f64 {
        let redo = &self.report.redo;
        percent(redo.pages_from_cache + redo.pages_current, redo.pages_from_store)
    }

    /// What opening took, part by part.
    fn parts(&self) -> String {
        let part = |(name, cost): (&str, RecoveryCost)| {
            let reads = [("log", cost.log_reads), ("flash", cost.cache_reads), ("disk", cost.store_reads)];
            let reads: Vec<String> = reads
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            format!("{name} {:.3} s ({})", cost.time.as_secs_f64(), reads.join(", "))
        };
        self.report.parts().map(part).join("; ")
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
    let db = engine.database();
    let mut found = Found {
        before_per_second: killed.per_second,
        before_hit_rate: killed.hit_rate,
        seconds,
        all_seconds: f64::NAN,
        eager_seconds: f64::NAN,
        report: db.recovery_report(),
        course: vec![(0.0, 0.0); began.elapsed().as_secs() as usize],
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
    found.report = db.recovery_report();
    if found.report.complete {
        found.all_seconds = seconds + found.report.rest_time.as_secs_f64();
    }
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
    fn restart(&mut self, cell: &Cell, interval: f64) -> Result<Found, Failure> {
        self.load()?;
        let name = format!("{}, killed {} s after a checkpoint", cell.name(), interval / 2.0);
        self.doing(name.clone())?;
        let population = self.population.as_ref().expect("it was loaded").duplicate();
        let (stop, interval) = (self.stop, Duration::from_secs_f64(interval));
        let of = cell.clone();
        let (left, _) = simulate(cell.seed, CORES, move || killed(&of, population, interval, stop))?;
        let (of, copy) = (cell.clone(), left.left.duplicate());
        let (eager_seconds, _) = simulate(cell.seed, CORES, move || eager(&of, copy))?;
        let of = cell.clone();
        let (mut found, _) = simulate(cell.seed, CORES, move || restarted(&of, left, stop))?;
        found.eager_seconds = eager_seconds;
        if self.args.verbose {
            eprintln!("{name}: {found:?}");
        }
        self.rows.push(json!({
            "cell": name, "restart_seconds": round(found.seconds), "all_redone_seconds": round(found.all_seconds),
            "eager_seconds": round(found.eager_seconds), "parts": recovery_parts_json(&found.report),
            "log_bytes": found.report.log_bytes, "page_changes_redone": found.report.redone,
            "pages_on_demand": found.report.redo.pages_on_demand,
            "pages_in_background": found.report.redo.pages_in_background,
            "pages_current_in_flash": found.report.redo.pages_current,
            "pages_from_flash": found.report.redo.pages_from_cache,
            "pages_from_store": found.report.redo.pages_from_store,
            "reads_before_answer": found.report.before_transactions().reads(), "before_transactions_per_second": round(found.before_per_second),
            "before_hit_rate": round(found.before_hit_rate),
            "course": found.course.iter().map(|(rate, hits)| json!([round(*rate), round(*hits)])).collect::<Vec<_>>(),
        }));
        Ok(found)
    }
}

/// The worst of all intervals; "without" is on disks alone.
struct Worst {
    /// Seconds until transactions begin with the cache, and over those without, %.
    seconds: f64,
    ratio: f64,
    /// Until all is redone, and until an opening that redoes all returns, over those without, %.
    all_ratio: f64,
    eager_ratio: f64,
    /// Of the pages that the log names, and of those redone, from flash, %.
    found_in_flash: f64,
    read_from_flash: f64,
    /// Hit rate soon after the opening over that before the kill, %.
    hits: f64,
}

impl Worst {
    fn note(&mut self, cached: &Found, alone: &Found) {
        self.seconds = self.seconds.max(cached.seconds);
        self.ratio = self.ratio.max(cached.seconds / alone.seconds * 100.0);
        // Not a number if either did not end: then it is no maximum, and the target is missed.
        let all = cached.all_seconds / alone.all_seconds * 100.0;
        self.all_ratio =
            if all.is_nan() || self.all_ratio.is_nan() { f64::NAN } else { self.all_ratio.max(all) };
        self.eager_ratio = self.eager_ratio.max(cached.eager_seconds / alone.eager_seconds * 100.0);
        self.read_from_flash = self.read_from_flash.min(cached.read_from_flash());
        self.found_in_flash = self.found_in_flash.min(cached.found_in_flash());
        let opened = cached.seconds.floor() as usize;
        let within = cached.course.iter().skip(opened).take(10).map(|(_, hits)| *hits);
        self.hits = self.hits.min(within.fold(0.0, f64::max) / cached.before_hit_rate * 100.0);
    }

    fn targets(&self, table: &mut Figure) {
        let mut at_most = |what, value, most| table.at_most(what, value, most);
        at_most("seconds until transactions begin, most over intervals", self.seconds, 1.0);
        at_most("restart with the cache over without, %, most over intervals", self.ratio, 15.0);
        at_most(
            "until all is redone, with the cache over without, %, most over intervals",
            self.all_ratio,
            15.0,
        );
        at_most(
            "all before the opening returns, with the cache over without, %, most over intervals",
            self.eager_ratio,
            15.0,
        );
        let mut at_least = |what, value, least| table.at_least(what, value, least);
        at_least(
            "pages that the log names found in flash, %, least over intervals",
            self.found_in_flash,
            98.0,
        );
        at_least("pages redone that came from flash, %, least over intervals", self.read_from_flash, 98.0);
        at_least("hit rate within 10 s of opening over that before, %, least", self.hits, 95.0);
    }
}

/// What the table does not show of one interval.
fn notes(interval: f64, policy: Compared, cached: &Found, alone: &Found) -> Vec<String> {
    let redone = |(name, found): (&str, &Found)| {
        let redo = &found.report.redo;
        format!(
            "interval {interval} s, {name}: {}. Pages redone from flash {}, from disks {}, current in flash {}; all \
             before the opening returns {:.2} s",
            found.parts(),
            redo.pages_from_cache,
            redo.pages_from_store,
            redo.pages_current,
            found.eager_seconds
        )
    };
    let mut notes: Vec<String> = [(title(policy), cached), ("HDD only", alone)].map(redone).into();
    notes.push(format!(
        "interval {interval} s: {:.1} MiB of log and {} page changes with the cache, {:.1} MiB and {} without; {:.0} and \
         {:.0} transactions a second before the kill; transactions begin after {:.2} and {:.2} s, all is redone after \
         {:.2} and {:.2} s",
        cached.report.log_bytes as f64 / 1048576.0,
        cached.report.redone,
        alone.report.log_bytes as f64 / 1048576.0,
        alone.report.redone,
        cached.before_per_second,
        alone.before_per_second,
        cached.seconds,
        alone.seconds,
        cached.all_seconds,
        alone.all_seconds,
    ));
    notes
}

/// Table 6, and figure 6 from its longest interval.
pub fn restarts(bench: &mut Bench) -> Result<[Figure; 2], Failure> {
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
    let mut worst = Worst {
        seconds: 0.0,
        ratio: 0.0,
        all_ratio: 0.0,
        eager_ratio: 0.0,
        found_in_flash: f64::MAX,
        read_from_flash: f64::MAX,
        hits: f64::MAX,
    };
    for (at, (interval, gsc, disks)) in intervals.iter().enumerate() {
        let cached = bench.restart(&bench.cached(policy, MLC, PERCENT)?, *interval)?;
        let alone = bench.restart(&bench.cell(bench.disks()?, None)?, *interval)?;
        let label = format!("{interval}");
        for (name, found) in [(title(policy), &cached), ("HDD only", &alone)] {
            panel.add(name, Point { x: *interval, label: label.clone(), value: found.seconds, range: None });
            if at + 1 == intervals.len() {
                for (second, (rate, _)) in found.course.iter().enumerate() {
                    let x = second as f64 + 1.0;
                    course.add(name, Point { x, label: format!("{x}"), value: *rate, range: None });
                }
            }
        }
        if !gsc.is_nan() {
            let cell = format!("FaCE+GSC / HDD only, interval {interval} s");
            table.beside(cell, &format!("{:.3}", gsc / disks), cached.seconds / alone.seconds);
        }
        worst.note(&cached, &alone);
        table.notes.extend(notes(*interval, policy, &cached, &alone));
    }
    table.panels.push(panel);
    figure.panels.push(course);
    worst.targets(&mut table);
    Ok([table, figure])
}
