//! One run of TPC-C in virtual time: the real engine over an emulated disk array and an emulated
//! flash drive.
//!
//! Until the cache has been filled twice over, devices take no time; then they do, and after a
//! while it is measured. No checkpoint falls into a run unless it is asked for: one that did would
//! cost lazy cleaning most.

use super::found::{DeviceFound, Found};
use super::in_place::InPlace;
use super::meter::{Counts, Meter};
use super::population::{Population, Size, options};
use super::scan;
use crate::bench::cells::{Cellular, end_of};
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{CacheSettings, Devices, Isolation, Statistics};
use firndb_adapter::FirnEngine;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Arc;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_emulate::Emulated;
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::tpcc::{self, ClientOptions, Mix, Terminals};
use firndb_workloads::{DriverOptions, LiveRate};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Cores of the paper's processor.
pub const CORES: usize = 4;
/// DRAM for pages, in the paper's proportion: 200 MB of a database of 50 GB, as the paper counts
/// it.
pub const DRAM_PERCENT: f64 = 0.4;
/// The array's capacity over the database's: 1,170 GB over 50 GB.
const ARRAY_OVER_DATABASE: f64 = 1170.0 / 50.0;
/// Of a page in a flash cache with seals.
const SEALED_PAGE: u64 = 4096 + 32;
const PAGE: u64 = 4096;
/// What a pool needs at least: only tiny databases, which measure nothing, have it.
const DRAM_LEAST: usize = 512 << 10;
/// A cache with space for few groups of the usual size, likewise.
const SMALL_CACHE: u64 = 4 << 20;
/// Pages taken in before it is measured, in units of the cache.
const FILLED_TIMES: u64 = 2;
/// Commits before a run without cache is measured: DRAM is full long before.
const WARM_COMMITS: u64 = 3000;
/// Commits before a run is measured whose DRAM holds the whole database.
const DRAM_FULL_COMMITS: u64 = 60_000;
/// Log between two checkpoints: none falls into a run.
pub const NO_CHECKPOINT: u64 = 640 << 20;

/// What the pages are on.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// The disk array, in runs as Firn writes them.
    Disks(DeviceProfile),
    /// The disk array, and written in place.
    DisksInPlace(DeviceProfile),
    /// All on a flash drive, in runs as Firn writes them.
    Flash(DeviceProfile),
    /// All on a flash drive, and written in place.
    FlashInPlace(DeviceProfile),
}

#[derive(Clone, Debug, PartialEq)]
pub struct CacheCell {
    pub policy: Compared,
    pub profile: DeviceProfile,
    /// In per cent of the database.
    pub percent: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub size: Size,
    pub data: Data,
    pub cache: Option<CacheCell>,
    /// In per cent of the database.
    pub dram_percent: f64,
    /// Where redo logs go.
    pub log: DeviceProfile,
    /// Whether each client keeps to a warehouse of its own, as the terminals of BenchmarkSQL, the
    /// paper's tool, do.
    pub pinned: bool,
    /// Clients beside those that scan a table.
    pub scanners: usize,
    /// Log between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Whether it is measured once the cache has been filled, or once all that is used is in DRAM.
    pub fills: bool,
    /// Virtual time that is measured.
    pub time: Duration,
    pub seed: u64,
}

impl Cell {
    /// For people, and for finding a measurement again.
    pub fn name(&self) -> String {
        let data = match &self.data {
            Data::Disks(profile) => format!("{}, in runs", profile.name),
            Data::DisksInPlace(profile) => profile.name.clone(),
            Data::Flash(profile) => format!("all on {}, in runs", profile.name),
            Data::FlashInPlace(profile) => format!("all on {}", profile.name),
        };
        let cache = self.cache.as_ref().map_or("no cache".to_owned(), |cache| {
            format!("{} {} % on {}", cache.policy.name(), cache.percent, cache.profile.name)
        });
        let clients = if self.pinned { "" } else { ", clients everywhere" };
        let scans = match self.scanners {
            0 => String::new(),
            scanners => format!(", {scanners} scanning"),
        };
        let checkpoints = match self.checkpoint_bytes {
            NO_CHECKPOINT => String::new(),
            bytes => format!(", checkpoints every {} MiB", bytes >> 20),
        };
        format!("{data}, {cache}, {:.1} % DRAM{clients}{scans}{checkpoints}", self.dram_percent)
    }
}

impl Data {
    /// The same with what is estimated at this end of its band; `None` if nothing is.
    fn at_end(&self, end: VariantName) -> Option<Data> {
        let (profile, of): (_, fn(DeviceProfile) -> Data) = match self {
            Data::Disks(profile) => (profile, Data::Disks),
            Data::DisksInPlace(profile) => (profile, Data::DisksInPlace),
            Data::Flash(profile) => (profile, Data::Flash),
            Data::FlashInPlace(profile) => (profile, Data::FlashInPlace),
        };
        end_of(profile, end).map(of)
    }
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        Cell::name(self)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        let cache = self.cache.as_ref().and_then(|cache| {
            end_of(&cache.profile, end).map(|profile| CacheCell { profile, ..cache.clone() })
        });
        let (data, log) = (self.data.at_end(end), end_of(&self.log, end));
        if cache.is_none() && data.is_none() && log.is_none() {
            return None;
        }
        Some(Cell {
            cache: cache.or_else(|| self.cache.clone()),
            data: data.unwrap_or_else(|| self.data.clone()),
            log: log.unwrap_or_else(|| self.log.clone()),
            ..self.clone()
        })
    }
}

/// A device that takes its time, or doesn't.
#[derive(Clone)]
enum Timed {
    Emulated(Arc<Emulated>),
    InPlace(Arc<InPlace>),
}

impl Timed {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Timed::Emulated(device) => device.clone(),
            Timed::InPlace(device) => device.clone(),
        }
    }
    fn run_free(&self, free: bool) {
        match self {
            Timed::Emulated(device) => device.run_free(free),
            Timed::InPlace(device) => device.run_free(free),
        }
    }
    fn busy(&self) -> Duration {
        match self {
            Timed::Emulated(device) => device.statistics().busy,
            Timed::InPlace(device) => device.statistics().busy,
        }
    }
}

/// The devices of a run.
pub struct Machine {
    timed: Vec<Timed>,
    pub store: Arc<Meter>,
    pub flash: Arc<Meter>,
    /// Superblock, log, store, cache.
    memories: [Arc<MemoryDevice>; 4],
    bytes: u64,
}

/// The paper's array of eight.
const ARRAY_BYTES: f64 = 1_174_400_000_000.0;

/// The array in the same proportion to the database as the paper's: seeks are as long as there.
fn shrunk(profile: &DeviceProfile, bytes: u64) -> DeviceProfile {
    let disks = profile.capacity_bytes as f64 / ARRAY_BYTES;
    let capacity = (bytes as f64 * ARRAY_OVER_DATABASE * disks) as u64;
    DeviceProfile { capacity_bytes: capacity.next_multiple_of(1 << 20), ..profile.clone() }
}

fn emulated(memory: &Arc<MemoryDevice>, profile: &DeviceProfile, seed: u64) -> Result<Timed, Failure> {
    let device = Emulated::new(memory.clone(), profile, seed);
    device
        .map(|device| Timed::Emulated(Arc::new(device)))
        .map_err(|error| Failure::bad_argument(error.to_string()))
}

impl Machine {
    /// Emulated devices over the bytes of `population`; they take no time yet. To be made inside
    /// the simulation.
    pub fn new(cell: &Cell, population: Population) -> Result<(Machine, Devices), Failure> {
        let bytes = population.bytes;
        let memories =
            [population.superblock, population.log, population.store, population.cache].map(Arc::new);
        let [superblock, log, store, cache] = &memories;
        let in_place = |profile: &DeviceProfile| -> Result<Timed, Failure> {
            let device = InPlace::new(store.clone(), profile, bytes, cell.seed)?;
            Ok(Timed::InPlace(Arc::new(device)))
        };
        let timed_store = match &cell.data {
            Data::Disks(profile) => emulated(store, &shrunk(profile, bytes), cell.seed)?,
            Data::DisksInPlace(profile) => in_place(&shrunk(profile, bytes))?,
            Data::Flash(profile) => emulated(store, profile, cell.seed)?,
            Data::FlashInPlace(profile) => in_place(profile)?,
        };
        let timed_log = emulated(log, &cell.log, cell.seed + 1)?;
        let mut timed = vec![timed_store.clone(), timed_log.clone()];
        let flash = match &cell.cache {
            Some(cell_cache) => {
                let device = emulated(cache, &cell_cache.profile, cell.seed + 2)?;
                timed.push(device.clone());
                let sealed = !matches!(cell_cache.policy, Compared::Other(_));
                Arc::new(Meter::new(device.device(), if sealed { SEALED_PAGE } else { PAGE }))
            }
            None => Arc::new(Meter::new(cache.clone(), PAGE)),
        };
        let meter = Arc::new(Meter::new(timed_store.device(), PAGE));
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![timed_log.device()],
            store: meter.clone(),
            cache: cell.cache.as_ref().map(|_| flash.clone() as Arc<dyn Device>),
        };
        let machine = Machine { timed, store: meter, flash, memories, bytes };
        machine.measure(false);
        Ok((machine, devices))
    }

    /// What a kill of the process at this moment leaves.
    pub fn killed(&self) -> Population {
        let [superblock, log, store, cache] = &self.memories;
        Population {
            superblock: superblock.duplicate(),
            log: log.duplicate(),
            store: store.duplicate(),
            cache: cache.duplicate(),
            bytes: self.bytes,
        }
    }

    /// Whether devices take their time.
    pub fn measure(&self, measured: bool) {
        self.timed.iter().for_each(|timed| timed.run_free(!measured));
    }
}

/// Opens the database of a cell, with its cache.
pub fn open(cell: &Cell, devices: Devices, bytes: u64) -> Result<FirnEngine, Failure> {
    open_with(cell, devices, bytes, false)
}

/// Likewise; after a crash with all of recovery done before the opening returns, if `eager`.
pub fn open_with(cell: &Cell, devices: Devices, bytes: u64, eager: bool) -> Result<FirnEngine, Failure> {
    let share = |percent: f64| (bytes as f64 * percent / 100.0) as u64;
    let mut options = options((share(cell.dram_percent) as usize).max(DRAM_LEAST))
        .create(false)
        .tuning(|tuning| tuning.eager_recovery(eager).checkpoint_log_bytes(cell.checkpoint_bytes));
    if cell.checkpoint_bytes == NO_CHECKPOINT {
        options = options.recovery_time(Duration::MAX);
    }
    if let Some(cache) = &cell.cache {
        let bytes = share(cache.percent);
        options = options.cache(|settings| settings.bytes(bytes).policy(cache.policy.policy()));
        options = options.cache(|settings| cache.policy.kinds().fold(settings, CacheSettings::kind));
        if bytes < SMALL_CACHE {
            options = options.cache(|cache| cache.group_pages(8));
        }
    }
    Ok(FirnEngine::new(options.open_on(devices)?, tpcc::schema(), Isolation::Snapshot)?)
}

/// Everything counted, at a moment.
struct Sample {
    at: Moment,
    commits: u64,
    retries: u64,
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
        _ if !cell.fills => live.commits >= DRAM_FULL_COMMITS,
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

pub fn run(cell: &Cell, population: &Population, interrupted: &'static AtomicBool) -> Result<Found, Failure> {
    let population = population.duplicate();
    let cell = cell.clone();
    let (mut found, trace_hash) =
        simulate(cell.seed, CORES, move || simulated(&cell, population, interrupted))?;
    found.trace_hash = format!("{trace_hash:016x}");
    Ok(found)
}

/// Clients that run until they are stopped.
pub fn driver(cell: &Cell) -> (DriverOptions, ClientOptions) {
    let mut driver = DriverOptions::new(cell.size.clients, Duration::from_secs(90 * 3600));
    driver.warm_up = Duration::ZERO;
    driver.report_every = Duration::from_millis(20);
    let terminals = if cell.pinned { Terminals::Pinned } else { Terminals::Drawn };
    (driver, ClientOptions { mix: Mix::default(), terminals, seed: cell.seed })
}

fn simulated(cell: &Cell, population: Population, interrupted: &AtomicBool) -> Result<Found, Failure> {
    let bytes = population.bytes;
    let (machine, devices) = Machine::new(cell, population)?;
    let engine = Charged::new(open(cell, devices, bytes)?, CostModel::FIRN);
    let (driver, clients) = driver(cell);
    let stop = AtomicBool::new(false);
    let mut course = Course {
        cell,
        machine: &machine,
        engine: &engine,
        interrupted,
        stop: &stop,
        settled_at: None,
        before: None,
        after: None,
    };
    let report = scan::beside(&engine, (cell.scanners, cell.size.scale.warehouses), &stop, || {
        tpcc::run(&engine, &driver, &clients, &stop, &mut |live| course.look(&live))
    })?;
    let Course { before, after, .. } = course;
    machine.measure(false);
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Failure::interrupted("stopped before all was measured"));
    };
    let new_orders = report.kinds[0].commits as f64 / report.commits().max(1) as f64;
    let found = found(cell, &before, &after, new_orders, bytes);
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
        database_bytes: bytes,
        frames: is.buffer.frames,
        ..Found::default()
    };
    let commits = commits.max(1) as f64;
    let store = after.store.since(&before.store);
    found.store = DeviceFound::of(&store, after.store_busy - before.store_busy, seconds, commits);
    found.map_reads = found.store.reads - each(is.store.pages_read - was.store.pages_read);
    if let (Some(was), Some(is)) = (&was.cache, &is.cache) {
        let (hits, misses) = (is.hits - was.hits, is.misses - was.misses);
        found.hit_rate = hits as f64 / (hits + misses).max(1) as f64;
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
