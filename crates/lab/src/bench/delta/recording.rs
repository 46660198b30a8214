//! Recording a stream: the paper's setting. TPC-C over 10 warehouses by 100 clients, on devices in
//! memory that take no time; the processors' time is charged by Firn's cost model.
//!
//! A stream depends on the space that the buffer has, and on nothing below it.

use super::recorder::{Recorder, Recording};
use super::tap::{Tap, Tapped};
use super::timed::Timed;
use crate::bench::cache::machine::CORES;
use crate::bench::cache::population::Population;
use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Deltas, Devices, Hiding, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_page_comparators::stream::Head;
use firndb_tier::TierStatistics;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use firndb_workloads::{DriverOptions, LiveRate};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of log: what is never written takes no memory, and six times a run's log stays below.
const LOG_BYTES: u64 = 8 << 30;
/// DRAM for pages while loading.
const LOAD_BUFFER: usize = 128 << 20;
/// The whole page map is in DRAM, beside the buffer: its share is taken off the buffer.
const MAP_BYTES: usize = 64 << 20;

/// How much is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    pub name: &'static str,
    pub scale: Scale,
    pub clients: usize,
    /// All memory: frames, write buffer, tables.
    pub memory: u64,
    /// Transactions before the measurement, and in it.
    pub warm: u64,
    pub measured: u64,
}

impl Extent {
    /// The paper's.
    pub const FULL: Extent = Extent {
        name: "full",
        scale: Scale { warehouses: 10, items: 100_000, customers: 3_000 },
        clients: 100,
        memory: 100 << 20,
        warm: 40_000,
        measured: 120_000,
    };
    /// A tenth of it.
    pub const QUICK: Extent = Extent {
        name: "quick",
        scale: Scale { warehouses: 10, items: 10_000, customers: 300 },
        clients: 20,
        memory: 10 << 20,
        warm: 4_000,
        measured: 12_000,
    };
    /// For tests.
    pub const TINY: Extent = Extent {
        name: "tiny",
        scale: Scale { warehouses: 2, items: 2_000, customers: 60 },
        clients: 4,
        memory: 2 << 20,
        warm: 300,
        measured: 900,
    };

    /// Log between checkpoints where there are any: PostgreSQL's three segments of 16 MB for 100 MB
    /// of memory. They come long before its five minutes are over.
    fn checkpoint_bytes(self) -> u64 {
        self.memory * 48 / 100
    }

    /// A write buffer in proportion to the memory: its part of the paper's 100 MB.
    pub fn buffer_bytes(self, megabytes: u64) -> u64 {
        self.memory * megabytes / 100
    }
}

/// What decides a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    pub extent: Extent,
    pub page_size: u64,
    /// Bytes for frames.
    pub frames: u64,
    pub checkpoints: bool,
}

/// How the store itself is run: without deltas, or with a write buffer for them.
#[derive(Clone, Debug)]
pub enum Writes {
    Whole,
    /// At the cost of a second read that holds without a profile.
    Deltas {
        buffer_bytes: u64,
    },
    /// As this profile of the store's device decides.
    Auto {
        buffer_bytes: u64,
        profile: &'static str,
    },
}

impl Writes {
    fn buffer_bytes(&self) -> u64 {
        match *self {
            Writes::Whole => 0,
            Writes::Deltas { buffer_bytes } | Writes::Auto { buffer_bytes, .. } => buffer_bytes,
        }
    }

    /// The options, with what they say of deltas; a profile is written to `dir`.
    fn options(&self, options: Options, dir: &Path) -> Result<Options, Failure> {
        let bytes = self.buffer_bytes() as usize;
        Ok(match self {
            Writes::Whole => options.tuning(|tuning| tuning.deltas(Deltas::Off)),
            Writes::Deltas { .. } => options.tuning(|tuning| tuning.deltas(Deltas::On).delta_bytes(bytes)),
            Writes::Auto { profile, .. } => {
                let path = dir.join("store.toml");
                let profile = crate::tpcc::machine::profile(profile)?;
                profile.save(&path).map_err(|error| Failure::new(error.to_string()))?;
                options.tuning(|tuning| tuning.deltas(Deltas::Auto).delta_bytes(bytes).store_profile(path))
            }
        })
    }
}

/// Databases, by extent and page size, and streams in a directory.
pub struct Streams {
    dir: PathBuf,
    /// Removed with its streams, unless they are to be kept.
    _made: Option<tempfile::TempDir>,
    seed: u64,
    loaded: Made<(&'static str, u64), Population>,
    recorded: Made<String, PathBuf>,
}

impl Streams {
    /// In `dir`, where streams are kept and found again, or in a directory that is removed.
    pub fn new(dir: Option<&Path>, seed: u64) -> Result<Streams, Failure> {
        let made = if dir.is_none() { Some(tempfile::tempdir()?) } else { None };
        let dir = made.as_ref().map(|made| made.path()).or(dir).expect("one of the two is there").to_owned();
        std::fs::create_dir_all(&dir)?;
        Ok(Streams { dir, _made: made, seed, loaded: Made::default(), recorded: Made::default() })
    }

    /// Pages of the loaded database.
    pub fn pages(&self, extent: Extent, page_size: u64) -> Result<u64, Failure> {
        Ok(self.population(extent, page_size)?.bytes / page_size)
    }

    fn population(&self, extent: Extent, page_size: u64) -> Result<std::sync::Arc<Population>, Failure> {
        self.loaded.get((extent.name, page_size), || load(extent, page_size, self.seed))
    }

    /// The file of the stream, which is recorded if it is not there.
    pub fn of(&self, setting: Setting, seed: u64, stop: &'static AtomicBool) -> Result<PathBuf, Failure> {
        let Setting { extent, page_size, frames, checkpoints } = setting;
        let checkpoints = if checkpoints { "checkpoints" } else { "none" };
        let name = format!("{}-{page_size}-{frames}-{checkpoints}-{seed}.pages", extent.name);
        let path = self.dir.join(&name);
        let recorded = self.recorded.get(name, || {
            if !path.exists() {
                let population = self.population(extent, page_size)?;
                // Whole or not at all.
                let unfinished = path.with_extension("new");
                record(setting, &population, seed, &unfinished, stop)?;
                std::fs::rename(&unfinished, &path)?;
            }
            Ok(path)
        })?;
        Ok(recorded.to_path_buf())
    }
}

impl Streams {
    /// What the store counts in this setting, without a recorder.
    /// Its requests are replayed on these drives.
    pub fn drive(
        &self,
        setting: Setting,
        writes: &Writes,
        drives: &[&'static str],
        seed: u64,
        stop: &'static AtomicBool,
    ) -> Result<Driven, Failure> {
        let population = self.population(setting.extent, setting.page_size)?.duplicate();
        let timed = Timed::new(drives, seed)?;
        let to = To::Store(writes.clone(), timed);
        Ok(simulate(seed, CORES, move || driven(setting, population, seed, to, stop))?.0)
    }
}

fn options(buffer_bytes: u64, page_size: u64) -> Options {
    let options = Options::new().page_size(page_size as usize).buffer_bytes(buffer_bytes as usize);
    options
        .log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
        .recovery_time(Duration::MAX)
        .tuning(|tuning| tuning.map_bytes(MAP_BYTES))
}

fn load(extent: Extent, page_size: u64, seed: u64) -> Result<Population, Failure> {
    let (population, _) = simulate(seed, CORES, move || {
        let memory = |name: &str| Arc::new(MemoryDevice::new(name));
        let (superblock, log, store) = (memory("superblock"), memory("log"), memory("store"));
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options(LOAD_BUFFER as u64, page_size).create_on(devices)?;
        let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?;
        tpcc::load(&engine, &LoadOptions::new(extent.scale, seed), &|_| ())?;
        let db = engine.into_database();
        let bytes = db.statistics().store.pages_allocated * page_size;
        db.close()?;
        Ok(Population {
            superblock: superblock.duplicate(),
            log: log.duplicate(),
            store: store.duplicate(),
            cache: MemoryDevice::new("cache"),
            bytes,
            loaded: tpcc::Population::new(extent.scale, seed),
        })
    })?;
    Ok(population)
}

/// Records a stream.
fn record(
    setting: Setting,
    population: &Population,
    seed: u64,
    path: &Path,
    stop: &'static AtomicBool,
) -> Result<(), Failure> {
    let (population, path) = (population.duplicate(), path.to_owned());
    simulate(seed, CORES, move || driven(setting, population, seed, To::Stream(path), stop))?;
    Ok(())
}

/// What the store itself counted while it ran.
#[derive(Clone, Debug)]
pub struct Driven {
    pub frames: u64,
    pub commits: u64,
    /// When the measurement began and when it ended.
    pub store: [TierStatistics; 2],
    /// What its device was asked for.
    pub asked: Tapped,
}

/// Where the traffic of a run goes.
enum To {
    /// To a store whose traffic is recorded in this file.
    Stream(PathBuf),
    /// To a store alone, whose requests are counted and replayed on drives.
    Store(Writes, Timed),
}

fn driven(
    setting: Setting,
    population: Population,
    seed: u64,
    to: To,
    interrupted: &AtomicBool,
) -> Result<Driven, Failure> {
    let Setting { extent, page_size, frames, checkpoints } = setting;
    let recording = Arc::new(Recording::new());
    let [superblock, log, store, cache] =
        [population.superblock, population.log, population.store, population.cache].map(Arc::new);
    let (path, writes, timed) = match to {
        To::Stream(path) => (Some(path), Writes::Whole, Timed::new(&[], seed)?),
        To::Store(writes, timed) => (None, writes, timed),
    };
    let cache = path.as_ref().map(|_| cache as Arc<dyn Device>);
    let tap = Arc::new(Tap::new(store, timed));
    let devices =
        Devices { superblock, logs: vec![log], store: tap.clone(), store_others: Vec::new(), cache };
    let checkpoint_bytes = if checkpoints { extent.checkpoint_bytes() } else { LOG_BYTES / 6 };
    let options = options(frames + writes.buffer_bytes(), page_size)
        .create(false)
        .tuning(|tuning| tuning.checkpoint_log_bytes(checkpoint_bytes));
    let dir = tempfile::tempdir()?;
    let mut options = writes.options(options, dir.path())?;
    if path.is_some() {
        let kind = Recorder(recording.clone());
        options = options.cache(|cache| cache.bytes(1 << 20).kind(Arc::new(kind)));
    }
    let db = options.open_on(devices)?;
    let frames = db.statistics().buffer.frames;
    if let Some(path) = &path {
        let note = format!("TPC-C, seed {seed}, {setting:?}");
        let pages = population.bytes / page_size;
        recording.begin(path, &Head { page_size: page_size as u32, pages, frames, note })?;
    }
    let engine = Charged::new(FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?, CostModel::FIRN);
    let mut driver = DriverOptions::new(extent.clients, Duration::from_secs(90 * 3600));
    driver.warm_up = Duration::ZERO;
    driver.report_every = Duration::from_millis(2);
    let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed };
    let stop = AtomicBool::new(false);
    let (mut before, mut after) = (None, None);
    let mut look = |live: LiveRate| {
        recording.committed(live.commits);
        let now = || (live.commits, engine.inner().database().statistics().store);
        if live.commits >= extent.warm && before.is_none() {
            before = Some(now());
            recording.measure();
            tap.restart();
        }
        if live.commits >= extent.warm + extent.measured && after.is_none() {
            after = Some((now(), tap.tapped()));
        }
        if after.is_some() || interrupted.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let ran = tpcc::run(&engine, &driver, &clients, &stop, &mut look);
    recording.end()?;
    ran?;
    let (Some((from, before)), Some(((to, after), asked))) = (before, after) else {
        return Err(Failure::interrupted("stopped before all was measured"));
    };
    engine.into_inner().into_database().close()?;
    Ok(Driven { frames, commits: to - from, store: [before, after], asked })
}
