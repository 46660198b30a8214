//! What a run of TPC-C is measured on: the real engine over an emulated disk array and an emulated
//! flash drive.
//!
//! No checkpoint falls into a run unless it is asked for: one that did would cost lazy cleaning
//! most.

use super::compared::KEEP;
use super::found::Found;
use super::in_place::InPlace;
use super::meter::Meter;
use super::population::{Population, Size, default_options, options};
use super::scan::Scanned;
use crate::bench::cells::{Cellular, end_of};
use clap::ValueEnum;
use firndb::{CacheSettings, Deltas, Devices, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sync::Arc;
use firndb_cache_comparators::Compared;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_emulate::Emulated;
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::tpcc;
use std::path::Path;
use std::time::Duration;

/// Cores of the paper's processor.
pub const CORES: usize = 4;
/// DRAM for pages, in the paper's proportion: 200 MB of a database of 50 GB, as the paper counts
/// it.
pub const DRAM_PERCENT: f64 = 0.4;
/// The array's capacity over the database's: 1,170 GB over 50 GB.
const ARRAY_OVER_DATABASE: f64 = 1170.0 / 50.0;
/// Of a page in a flash cache with seals.
const SEALED_PAGE: u64 = 4096 + 56;
const PAGE: u64 = 4096;
/// What a pool needs at least: only tiny databases, which measure nothing, have it.
pub const DRAM_LEAST: usize = 512 << 10;
/// A cache with space for few groups of the usual size, likewise.
const SMALL_CACHE: u64 = 4 << 20;
/// Pages of a group of all others.
const GROUP_PAGES: usize = 64;
/// Log between two checkpoints: none falls into a run.
const NO_CHECKPOINT: u64 = 640 << 20;
/// Log between two automatic checkpoints of a database whose log has its default size.
const DEFAULT_CHECKPOINT: u64 = 32 << 20;

/// Which warehouses a client works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clients {
    /// Each on one of its own, as the terminals of BenchmarkSQL, the paper's tool, do
    Pinned,
    /// Each on all alike, as TPC-C has it with a pool of connections
    Everywhere,
}

impl Clients {
    pub const ALL: [Clients; 2] = [Clients::Pinned, Clients::Everywhere];

    /// For titles.
    pub fn title(self) -> &'static str {
        match self {
            Clients::Pinned => "each client in its own warehouse",
            Clients::Everywhere => "clients in all warehouses",
        }
    }

    /// For the names of files and targets.
    pub fn name(self) -> &'static str {
        match self {
            Clients::Pinned => "pinned",
            Clients::Everywhere => "everywhere",
        }
    }
}

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
    pub clients: Clients,
    /// Clients beside those that scan a table.
    pub scanners: usize,
    /// Which table.
    pub scanned: Scanned,
    /// Whether all options are the engine's defaults, but for DRAM and the cache's size: automatic
    /// checkpoints come then, and the page map has its share of DRAM.
    pub default_options: bool,
    /// Virtual time that is measured.
    pub time: Duration,
}

impl Data {
    fn profile(&self) -> &DeviceProfile {
        match self {
            Data::Disks(profile)
            | Data::DisksInPlace(profile)
            | Data::Flash(profile)
            | Data::FlashInPlace(profile) => profile,
        }
    }

    fn with(&self, profile: DeviceProfile) -> Data {
        match self {
            Data::Disks(_) => Data::Disks(profile),
            Data::DisksInPlace(_) => Data::DisksInPlace(profile),
            Data::Flash(_) => Data::Flash(profile),
            Data::FlashInPlace(_) => Data::FlashInPlace(profile),
        }
    }
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let data = match &self.data {
            Data::Disks(profile) => format!("{}, in runs", profile.name),
            Data::DisksInPlace(profile) => profile.name.clone(),
            Data::Flash(profile) => format!("all on {}, in runs", profile.name),
            Data::FlashInPlace(profile) => format!("all on {}", profile.name),
        };
        let cache = self.cache.as_ref().map_or("no cache".to_owned(), |cache| {
            format!("{} {} % on {}", cache.policy.name(), cache.percent, cache.profile.name)
        });
        let scans = match self.scanners {
            0 => String::new(),
            scanners => format!(", {scanners} scanning"),
        };
        let options = if self.default_options { ", default options" } else { "" };
        let clients = self.clients.name();
        format!("{data}, {cache}, {:.1} % DRAM, clients {clients}{scans}{options}", self.dram_percent)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        let data = end_of(self.data.profile(), end);
        let log = end_of(&self.log, end);
        let cache = self.cache.as_ref().and_then(|cache| {
            end_of(&cache.profile, end).map(|profile| CacheCell { profile, ..cache.clone() })
        });
        if data.is_none() && log.is_none() && cache.is_none() {
            return None;
        }
        Some(Cell {
            data: data.map_or_else(|| self.data.clone(), |profile| self.data.with(profile)),
            log: log.unwrap_or_else(|| self.log.clone()),
            cache: cache.or_else(|| self.cache.clone()),
            ..self.clone()
        })
    }
}

/// A device that takes its time, or doesn't.
#[derive(Clone)]
pub enum Timed {
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
    pub fn busy(&self) -> Duration {
        match self {
            Timed::Emulated(device) => device.statistics().busy,
            Timed::InPlace(device) => device.statistics().busy,
        }
    }
}

/// The devices of a run.
pub struct Machine {
    /// The store, the log, and the cache if there is one.
    pub timed: Vec<Timed>,
    pub store: Arc<Meter>,
    pub flash: Arc<Meter>,
    /// Superblock, log, store, cache.
    memories: [Arc<MemoryDevice>; 4],
    bytes: u64,
    loaded: tpcc::Population,
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
    pub fn new(cell: &Cell, population: Population, seed: u64) -> Result<(Machine, Devices), Failure> {
        let (bytes, loaded) = (population.bytes, population.loaded);
        let memories =
            [population.superblock, population.log, population.store, population.cache].map(Arc::new);
        let [superblock, log, store, cache] = &memories;
        let in_place = |profile: &DeviceProfile| -> Result<Timed, Failure> {
            let device = InPlace::new(store.clone(), profile, bytes, seed)?;
            Ok(Timed::InPlace(Arc::new(device)))
        };
        let timed_store = match &cell.data {
            Data::Disks(profile) => emulated(store, &shrunk(profile, bytes), seed)?,
            Data::DisksInPlace(profile) => in_place(&shrunk(profile, bytes))?,
            Data::Flash(profile) => emulated(store, profile, seed)?,
            Data::FlashInPlace(profile) => in_place(profile)?,
        };
        let timed_log = emulated(log, &cell.log, seed + 1)?;
        let mut timed = vec![timed_store.clone(), timed_log.clone()];
        let flash = match &cell.cache {
            Some(cell_cache) => {
                let device = emulated(cache, &cell_cache.profile, seed + 2)?;
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
            store_others: Vec::new(),
            cache: cell.cache.as_ref().map(|_| flash.clone() as Arc<dyn Device>),
        };
        let machine = Machine { timed, store: meter, flash, memories, bytes, loaded };
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
            loaded: self.loaded,
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

/// The options with the profiles of the store's drive and the cache's, by which Firn's own policy
/// weighs their time; files in `dir`.
fn with_profiles(
    options: Options,
    cell: &Cell,
    cache: &CacheCell,
    database_bytes: u64,
    dir: &Path,
) -> Result<Options, Failure> {
    let store = match &cell.data {
        Data::Disks(profile) | Data::DisksInPlace(profile) => shrunk(profile, database_bytes),
        Data::Flash(profile) | Data::FlashInPlace(profile) => profile.clone(),
    };
    let saved = |name: &str, profile: &DeviceProfile| {
        let path = dir.join(name);
        profile.save(&path).map(|()| path).map_err(|error| Failure::new(error.to_string()))
    };
    let (store, cache) = (saved("store.toml", &store)?, saved("cache.toml", &cache.profile)?);
    Ok(options
        .tuning(|tuning| tuning.store_profile(store).deltas(Deltas::Off))
        .cache(|settings| settings.profile(cache)))
}

/// Likewise; after a crash with all of recovery done before the opening returns, if `eager`.
pub fn open_with(
    cell: &Cell,
    devices: Devices,
    database_bytes: u64,
    eager: bool,
) -> Result<FirnEngine, Failure> {
    let share = |percent: f64| (database_bytes as f64 * percent / 100.0) as u64;
    let dram = (share(cell.dram_percent) as usize).max(DRAM_LEAST);
    let (options, checkpoint_bytes) = match cell.default_options {
        true => (default_options(dram), DEFAULT_CHECKPOINT),
        false => (options(dram), NO_CHECKPOINT),
    };
    let mut options = options
        .create(false)
        .tuning(|tuning| tuning.eager_recovery(eager).checkpoint_log_bytes(checkpoint_bytes));
    if !cell.default_options {
        options = options.recovery_time(Duration::MAX);
    }
    if let Some(cache) = &cell.cache {
        let bytes = share(cache.percent);
        options = options.cache(|settings| settings.bytes(bytes).policy(cache.policy.policy()));
        options = options.cache(|settings| cache.policy.kinds().fold(settings, CacheSettings::kind));
        let group_pages = if bytes < SMALL_CACHE { 8 } else { GROUP_PAGES };
        options = options.cache(|cache| cache.group_pages(group_pages));
    }
    let profiles = tempfile::tempdir()?;
    if let Some(cache) = cell.cache.as_ref().filter(|cache| cache.policy == KEEP) {
        options = with_profiles(options, cell, cache, database_bytes, profiles.path())?;
    }
    Ok(FirnEngine::new(options.open_on(devices)?, tpcc::schema(), Isolation::Snapshot)?)
}
