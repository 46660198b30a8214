//! One TPC-C run in virtual time: the real engine on emulated log devices.
//!
//! The papers' databases lie in memory, and nothing but the log is to limit: the page store's
//! device takes no time. The population is loaded once for each number of log devices, on devices
//! that take no time, and every run begins with a copy of it.

use super::devices::Partition;
use super::stream::Fault;
use crate::bench::simulation::{self, emulated};
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Devices, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_emulate::{Emulated, Model};
use firndb_log::LogStatistics;
use firndb_log::archive::WrapDevice;
use firndb_log_comparators::{Comparator, Compose, Hedging, LogPolicy};
use firndb_profile::DeviceProfile;
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use firndb_workloads::{DriverOptions, Latency};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Warehouses of the paper's database.
pub const WAREHOUSES: u32 = 20;
/// The paper's population would take minutes to load and gigabytes to hold, and the log does not
/// see its size: rows and log records are the specification's, the tables are shorter.
const SCALE: Scale = Scale { warehouses: WAREHOUSES, items: 4000, customers: 60 };
/// Of online log, on all devices together. The paper has 900 MB, of which a run here would fill a
/// small part.
const LOG_BYTES: u64 = 256 << 20;
const BUFFER_BYTES: usize = 192 << 20;
/// The paper's server has two cores.
pub const CORES: usize = 2;

/// What a transaction costs in processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpu {
    /// Its name in tables and files.
    pub name: &'static str,
    /// How many times as slow as Firn's own measured cost.
    pub factor: f64,
}

#[derive(Clone, Debug)]
pub enum Logs {
    /// This number of devices of a kind.
    Each(DeviceProfile, usize),
    /// One device, cut into this number of partitions.
    Partitions(DeviceProfile, usize),
}

impl Logs {
    pub fn count(&self) -> usize {
        match self {
            Logs::Each(_, count) | Logs::Partitions(_, count) => *count,
        }
    }

    pub fn profile(&self) -> &DeviceProfile {
        match self {
            Logs::Each(profile, _) | Logs::Partitions(profile, _) => profile,
        }
    }

    /// The devices, over bytes in memory. To be made inside the simulation that uses them.
    pub fn emulated(&self, memories: Vec<MemoryDevice>, seed: u64) -> Result<EmulatedLogs, Failure> {
        let mut whole = Vec::new();
        let devices = match self {
            Logs::Each(profile, _) => {
                for (at, memory) in memories.into_iter().enumerate() {
                    whole.push(emulated(memory, profile, seed + at as u64)?);
                }
                whole.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
            }
            Logs::Partitions(profile, _) => {
                let parts = Partition::split(memories, profile, seed)?;
                parts.into_iter().map(|part| part as Arc<dyn Device>).collect()
            }
        };
        Ok(EmulatedLogs { devices, whole })
    }
}

/// The log's devices in a simulation.
pub struct EmulatedLogs {
    pub devices: Vec<Arc<dyn Device>>,
    /// Those that are whole devices.
    whole: Vec<Arc<Emulated>>,
}

impl EmulatedLogs {
    /// Gives one of them its fault, from now on.
    pub fn harm(&self, fault: Fault) -> Result<(), Failure> {
        let device = self.whole.get(fault.device).ok_or_else(|| Failure::new("no such device to harm"))?;
        if let Some((share, time)) = fault.spikes {
            device.spikes(share, time);
        }
        if let Some((from, to)) = fault.frozen {
            device.freeze(from, to);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub logs: Logs,
    pub policy: LogPolicy,
    pub compose: Compose,
    pub hiding: Hedging,
    /// The disk of the archive, if there is one. It acknowledges commits when it is first.
    pub archive: Option<DeviceProfile>,
    pub clients: usize,
    pub cpu: Cpu,
    /// Virtual time that is measured.
    pub time: Duration,
    pub seed: u64,
}

impl Cell {
    /// The engine's own way to use these devices.
    pub fn new(logs: Logs, hiding: Hedging, clients: usize, cpu: Cpu, time: Duration, seed: u64) -> Cell {
        let (policy, compose) = (LogPolicy::default(), Compose::default());
        Cell { logs, policy, compose, hiding, archive: None, clients, cpu, time, seed }
    }
}

#[derive(Clone, Debug)]
pub struct Found {
    /// New-Orders a minute (the paper's NOTPM).
    pub tpm: f64,
    pub per_second: f64,
    pub new_order: Latency,
    pub log: LogStatistics,
    pub log_bytes_per_commit: f64,
    /// Writes of the archive that acknowledged commits which the log's devices did not have yet.
    pub early_writes: u64,
    /// Every scheduling point of the run.
    pub trace_hash: u64,
    pub real: Duration,
}

/// Empty of everything but a loaded population, by the number of log devices and whether they have
/// areas for re-issues.
#[derive(Default)]
pub struct Populations {
    loaded: BTreeMap<(usize, bool), Population>,
}

/// A loaded database's devices.
struct Population {
    superblock: MemoryDevice,
    logs: Vec<MemoryDevice>,
    store: MemoryDevice,
}

impl Population {
    fn duplicate(&self) -> Population {
        Population {
            superblock: self.superblock.duplicate(),
            logs: self.logs.iter().map(MemoryDevice::duplicate).collect(),
            store: self.store.duplicate(),
        }
    }
}

fn options(count: usize, comparator: Comparator) -> Options {
    Options::new().buffer_bytes(BUFFER_BYTES).log(|log| {
        log.devices(count)
            .bytes(LOG_BYTES / count as u64 / 4096 * 4096 * count as u64)
            .hiding(comparator.hiding())
            .layout(comparator.layout())
    })
}

/// Runs `body` as a simulation of the paper's processors; returns its value and the run's trace
/// hash.
pub fn simulate<T: Send + 'static>(
    seed: u64,
    body: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<(T, u64), Failure> {
    simulation::simulate(seed, CORES, body)
}

impl Populations {
    fn of(&mut self, count: usize, areas: bool, seed: u64) -> Result<Population, Failure> {
        match self.loaded.entry((count, areas)) {
            Entry::Occupied(loaded) => Ok(loaded.get().duplicate()),
            Entry::Vacant(place) => Ok(place.insert(load(count, areas, seed)?).duplicate()),
        }
    }

    pub fn run(&mut self, cell: &Cell) -> Result<Found, Failure> {
        let began = Instant::now();
        let areas = cell.logs.count() > 1 && cell.hiding != Hedging::Off;
        let population = self.of(cell.logs.count(), areas, cell.seed)?;
        let cell = cell.clone();
        let (mut found, trace_hash) = simulate(cell.seed, move || run(&cell, population))?;
        found.trace_hash = trace_hash;
        found.real = began.elapsed();
        Ok(found)
    }
}

fn load(count: usize, areas: bool, seed: u64) -> Result<Population, Failure> {
    let hedging = if areas { Hedging::Adaptive } else { Hedging::Off };
    let (population, _) = simulate(seed, move || {
        let empty = Population {
            superblock: MemoryDevice::new("superblock"),
            logs: (0..count).map(|at| MemoryDevice::new(&format!("log {at}"))).collect(),
            store: MemoryDevice::new("store"),
        };
        let whole = |memory: MemoryDevice| Arc::new(memory);
        let superblock = whole(empty.superblock);
        let store = whole(empty.store);
        let logs: Vec<Arc<MemoryDevice>> = empty.logs.into_iter().map(whole).collect();
        let devices = Devices {
            superblock: superblock.clone(),
            logs: logs.iter().map(|log| log.clone() as Arc<dyn Device>).collect(),
            store: store.clone(),
            cache: None,
        };
        let db = options(count, Comparator { hedging, ..Comparator::default() }).create_on(devices)?;
        let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Serializable)?;
        tpcc::load(&engine, &LoadOptions::new(SCALE, seed), &|_| ())?;
        engine.into_database().close()?;
        Ok(Population {
            superblock: superblock.duplicate(),
            logs: logs.iter().map(|log| log.duplicate()).collect(),
            store: store.duplicate(),
        })
    })?;
    Ok(population)
}

/// A disk for the archive: its files are in a temporary directory, and take the time that the
/// profile says. One segment is written at a time.
struct ArchiveDisk {
    directory: tempfile::TempDir,
    wrap: WrapDevice,
}

impl ArchiveDisk {
    fn new(profile: &DeviceProfile, seed: u64) -> Result<ArchiveDisk, Failure> {
        let directory = tempfile::tempdir()
            .map_err(|error| Failure::new(format!("a directory for the archive: {error}")))?;
        let profile = profile.clone();
        let model = Model::new(&profile, seed).map_err(|error| Failure::bad_argument(error.to_string()))?;
        let wrap: WrapDevice = Arc::new(move |file| Arc::new(Emulated::over(file, &profile, model.clone())));
        Ok(ArchiveDisk { directory, wrap })
    }
}

fn run(cell: &Cell, population: Population) -> Result<Found, Failure> {
    let Population { superblock, logs, store } = population;
    let devices = Devices {
        superblock: Arc::new(superblock),
        logs: cell.logs.emulated(logs, cell.seed)?.devices,
        store: Arc::new(store),
        cache: None,
    };
    let comparator = Comparator { policy: cell.policy, compose: cell.compose, hedging: cell.hiding };
    let db = options(cell.logs.count(), comparator);
    let archive = cell.archive.as_ref().map(|profile| ArchiveDisk::new(profile, cell.seed)).transpose()?;
    let db = match &archive {
        Some(disk) => db
            .archive(|archive| archive.directory(disk.directory.path()).completes(true))
            .wrap_archive(disk.wrap.clone()),
        None => db,
    };
    let db = db.open_on(devices)?;
    let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Serializable)?;
    let engine = Charged::new(engine, CostModel::FIRN.times(cell.cpu.factor));
    let mut driver = DriverOptions::new(cell.clients, cell.time);
    driver.warm_up = cell.time / 4;
    driver.report_every = Duration::from_millis(100);
    let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: cell.seed };
    let stop = AtomicBool::new(false);
    let database = |engine: &Charged<FirnEngine>| engine.inner().database().statistics();
    let before = database(&engine);
    let report = tpcc::run(&engine, &driver, &clients, &stop, &mut |_| ())?;
    let after = database(&engine);
    let commits = (after.txn.commits - before.txn.commits).max(1) as f64;
    let found = Found {
        tpm: report.per_second(report.kinds[0].commits) * 60.0,
        per_second: report.per_second(report.commits()),
        new_order: report.kinds[0].latency,
        log_bytes_per_commit: (after.log.appended_bytes - before.log.appended_bytes) as f64 / commits,
        log: after.log,
        early_writes: after.archive.map_or(0, |archive| archive.early_writes),
        trace_hash: 0,
        real: Duration::ZERO,
    };
    engine.into_inner().into_database().close()?;
    Ok(found)
}
