//! One run of TPC-C in virtual time.
//!
//! Until the cache has been filled twice over, devices take no time; then they do, and after a
//! while it is measured.

use super::bounds::DriveTime;
use super::found::{DeviceFound, Found};
use super::machine::{CORES, Cell, Clients, Machine, Timed, open};
use super::meter::Counts;
use super::population::Population;
use super::scan::{self, Scanned};
use crate::bench::ahead::Ahead;
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::Statistics;
use firndb_adapter::FirnEngine;
use firndb_base::clock::{self, Moment};
use firndb_console::Failure;
use firndb_workloads::tpcc::{self, ClientOptions, Mix, Terminals};
use firndb_workloads::{DriverOptions, LiveRate};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Pages taken in before it is measured, in units of the cache.
const FILLED_TIMES: u64 = 2;
/// Commits before a run without cache is measured: DRAM is full long before.
const WARM_COMMITS: u64 = 3000;

/// Everything counted, at a moment.
struct Sample {
    at: Moment,
    commits: u64,
    retries: u64,
    scanned_rows: u64,
    database: Statistics,
    store: Counts,
    flash: Counts,
    store_busy: Duration,
    flash_busy: Duration,
}

/// Whether the cache has been filled often enough for a measurement to begin.
pub fn is_warm(cell: &Cell, engine: &Charged<FirnEngine>, live: &LiveRate) -> bool {
    let cache = engine.inner().database().statistics().cache;
    match (&cell.cache, cache) {
        // What is hot comes in once: it is not filled twice over.
        (_, Some(cache)) if cache.write_through => live.commits >= WARM_COMMITS + cache.slots / 2,
        (_, Some(cache)) => cache.dirty_enqueued + cache.clean_enqueued >= FILLED_TIMES * cache.slots,
        (_, None) => live.commits >= WARM_COMMITS,
    }
}

/// Follows a run: when the cache is full devices begin to take time, when things have settled it is
/// measured.
struct Course<'a> {
    cell: &'a Cell,
    machine: &'a Machine,
    engine: &'a Charged<FirnEngine>,
    interrupted: &'a AtomicBool,
    stop: &'a AtomicBool,
    /// Rows that scanners of a table apart have read.
    scanned_rows: &'a AtomicU64,
    /// When measuring begins.
    settled_at: Option<Moment>,
    before: Option<Sample>,
    after: Option<Sample>,
}

impl Course<'_> {
    fn sample(&self, live: &LiveRate) -> Sample {
        Sample {
            at: clock::now(),
            commits: live.commits,
            retries: live.retries,
            scanned_rows: self.scanned_rows.load(Ordering::Relaxed),
            database: self.engine.inner().database().statistics(),
            store: self.machine.store.counts(),
            flash: self.machine.flash.counts(),
            store_busy: self.machine.timed[0].busy(),
            flash_busy: self.machine.timed.get(2).map_or(Duration::ZERO, Timed::busy),
        }
    }

    fn is_warm(&self, live: &LiveRate) -> bool {
        is_warm(self.cell, self.engine, live)
    }

    fn look(&mut self, live: &LiveRate) {
        if self.interrupted.load(Ordering::Relaxed) {
            self.stop.store(true, Ordering::Relaxed);
        }
        let Some(settled_at) = self.settled_at else {
            if self.is_warm(live) {
                self.machine.measure(true);
                self.settled_at = clock::now().after(self.cell.time / 4);
            }
            return;
        };
        match &self.before {
            None if clock::now() >= settled_at => self.before = Some(self.sample(live)),
            Some(before) if self.after.is_none() && before.at.elapsed() >= self.cell.time => {
                self.after = Some(self.sample(live));
                self.stop.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// One run of the cell, over a copy of the database.
pub fn run(
    cell: &Cell,
    population: Population,
    seed: u64,
    interrupted: &'static AtomicBool,
) -> Result<Found, Failure> {
    let cell = cell.clone();
    let (mut found, trace_hash) =
        simulate(seed, CORES, move || simulated(&cell, population, seed, interrupted))?;
    found.trace_hash = format!("{trace_hash:016x}");
    Ok(found)
}

/// Clients that run until they are stopped.
pub fn driver(cell: &Cell, seed: u64) -> (DriverOptions, ClientOptions) {
    let mut driver = DriverOptions::new(cell.size.clients, Duration::from_secs(90 * 3600));
    driver.warm_up = Duration::ZERO;
    driver.report_every = Duration::from_millis(20);
    let terminals = match cell.clients {
        Clients::Pinned => Terminals::Pinned,
        Clients::Everywhere => Terminals::Drawn,
    };
    (driver, ClientOptions { mix: Mix::default(), terminals, seed })
}

fn simulated(
    cell: &Cell,
    population: Population,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Found, Failure> {
    let bytes = population.bytes;
    let (machine, devices) = Machine::new(cell, population, seed)?;
    let engine = Charged::new(open(cell, devices, bytes)?, CostModel::FIRN);
    let (driver, clients) = driver(cell, seed);
    let (stop, scanned_rows) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut course = Course {
        cell,
        machine: &machine,
        engine: &engine,
        interrupted,
        stop: &stop,
        scanned_rows: &scanned_rows,
        settled_at: None,
        before: None,
        after: None,
    };
    let main = || tpcc::run(&engine, &driver, &clients, &stop, &mut |live| course.look(&live));
    let report = match cell.scanned {
        Scanned::Stock => scan::beside(&engine, (cell.scanners, cell.size.scale.warehouses), &stop, main),
        Scanned::Apart(table) => {
            let db = engine.inner().database();
            scan::beside_apart(db, table, (cell.scanners, &scanned_rows), &stop, main)
        }
    }?;
    let Course { before, after, .. } = course;
    machine.measure(false);
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Failure::interrupted("stopped before all was measured"));
    };
    let new_orders = report.kinds[0].commits as f64 / report.commits().max(1) as f64;
    let mut found = found(cell, &before, &after, new_orders, bytes);
    if let Some(cache) = &cell.cache {
        found.flash.alone = DriveTime::of(&cache.profile, &found.flash.requests)?;
    }
    engine.into_inner().into_database().close()?;
    Ok(found)
}

fn found(cell: &Cell, before: &Sample, after: &Sample, new_orders: f64, bytes: u64) -> Found {
    let seconds = after.at.since(before.at).as_secs_f64();
    let commits = after.commits - before.commits;
    let each = |count: u64| count as f64 / (commits.max(1)) as f64;
    let per_second = commits as f64 / seconds;
    let (was, is) = (&before.database, &after.database);
    let mut found = Found {
        seconds,
        commits,
        per_second,
        tpm: per_second * new_orders * 60.0,
        misses: each(is.buffer.misses - was.buffer.misses),
        dirty_out: each(is.buffer.pages_written - was.buffer.pages_written),
        write_backs: each(is.store.pages_written - was.store.pages_written),
        lock_wait_share: (is.txn.lock_wait_us - was.txn.lock_wait_us) as f64
            / (seconds * 1e6 * cell.size.clients as f64),
        retries: each(after.retries - before.retries),
        helped_batches: is.buffer.batches_written_by_misses - was.buffer.batches_written_by_misses,
        fixes: each(is.buffer.hits + is.buffer.misses - was.buffer.hits - was.buffer.misses),
        tier_reads: each(is.store.pages_read - was.store.pages_read),
        scanned_rows: each(after.scanned_rows - before.scanned_rows),
        read_ahead: Ahead::of(is).since(Ahead::of(was)),
        database_bytes: bytes,
        frames: is.buffer.frames,
        ..Found::default()
    };
    let commits = commits.max(1) as f64;
    let store = after.store.since(&before.store);
    found.store = DeviceFound::of(&store, after.store_busy - before.store_busy, seconds, commits);
    found.map_reads = found.store.reads - each(is.store.read_requests - was.store.read_requests);
    if let (Some(was), Some(is)) = (&was.cache, &is.cache) {
        let (hits, misses) = (is.hits - was.hits, is.misses - was.misses);
        found.hit_rate = hits as f64 / (hits + misses).max(1) as f64;
        found.tier_reads = each(hits + misses);
        let (dirty, back) = (is.dirty_enqueued - was.dirty_enqueued, is.write_backs - was.write_backs);
        // What is written through spares the store nothing.
        found.write_reduction = if is.write_through { 0.0 } else { 1.0 - back as f64 / dirty.max(1) as f64 };
        found.duplicates = is.duplicate_share();
        found.cache_slots = is.slots;
        let flash = after.flash.since(&before.flash);
        found.flash = DeviceFound::of(&flash, after.flash_busy - before.flash_busy, seconds, commits);
    }
    found
}
