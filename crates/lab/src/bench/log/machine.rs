//! One TPC-C run in virtual time: the real engine on emulated log devices.
//!
//! The papers' databases lie in memory, and nothing but the log is to limit: the page store's
//! device takes no time. The population is loaded once for each number of log devices, on devices
//! that take no time, and every run begins with a copy of it.

use super::devices::Partition;
use super::found::{LogFound, TpccFound};
use super::stream::Fault;
use crate::bench::cells::{Cellular, end_of};
use crate::bench::made::Made;
use crate::bench::simulation::{self, emulated};
use crate::cost::charged::Charged;
use crate::cost::model::CostModel;
use firndb::{Database, Devices, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_emulate::{Emulated, Model};
use firndb_log::archive::WrapDevice;
use firndb_log_comparators::{Comparator, Compose, Hedging, LogPolicy};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals};
use firndb_workloads::{DriverOptions, Length};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

impl Cpu {
    /// For the titles of pictures.
    pub fn title(self) -> &'static str {
        match self.name {
            "firn" => "Firn's own processor time",
            "paper-slow" => "the paper's server, slow estimate",
            "paper-fast" => "the paper's server, fast estimate",
            _ => "the paper's server",
        }
    }
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

    /// The same with another profile.
    fn with(&self, profile: DeviceProfile) -> Logs {
        match self {
            Logs::Each(_, count) => Logs::Each(profile, *count),
            Logs::Partitions(_, count) => Logs::Partitions(profile, *count),
        }
    }

    /// The same with what is estimated at this end of its band; `None` if nothing is.
    pub fn at_end(&self, end: VariantName) -> Option<Logs> {
        end_of(self.profile(), end).map(|profile| self.with(profile))
    }

    /// For people: `2 x flash-a`, `4 parts of ssd-2008`.
    pub fn name(&self) -> String {
        match self {
            Logs::Each(profile, count) => format!("{count} x {}", profile.name),
            Logs::Partitions(profile, count) => format!("{count} parts of {}", profile.name),
        }
    }

    /// The devices, over bytes in memory. To be made inside the simulation that uses them.
    pub fn emulated(&self, memories: Vec<Arc<MemoryDevice>>, seed: u64) -> Result<EmulatedLogs, Failure> {
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
}

impl Cell {
    /// The engine's own way to use these devices.
    pub fn new(logs: Logs, hiding: Hedging, clients: usize, cpu: Cpu, time: Duration) -> Cell {
        let (policy, compose) = (LogPolicy::default(), Compose::default());
        Cell { logs, policy, compose, hiding, archive: None, clients, cpu, time }
    }
}

impl Cellular for Cell {
    type Found = TpccFound;

    fn name(&self) -> String {
        let policy = match self.policy {
            LogPolicy::Array => String::new(),
            other => format!(", {other:?}"),
        };
        let archive = self.archive.as_ref().map(|profile| format!(" and archive on {}", profile.name));
        format!(
            "TPC-C, {}{}{policy}, {:?}, hiding {:?}, {} clients, processor {}",
            self.logs.name(),
            archive.unwrap_or_default(),
            self.compose,
            self.hiding,
            self.clients,
            self.cpu.name
        )
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        let archive = self.archive.as_ref().and_then(|profile| end_of(profile, end));
        let logs = self.logs.at_end(end);
        logs.as_ref().map(drop).or(archive.as_ref().map(drop))?;
        Some(Cell {
            logs: logs.unwrap_or_else(|| self.logs.clone()),
            archive: archive.or_else(|| self.archive.clone()),
            ..self.clone()
        })
    }
}

/// Empty of everything but a loaded population, by the number of log devices and whether they have
/// areas for re-issues. All runs begin with the same, whatever their seed.
pub struct Populations {
    seed: u64,
    loaded: Made<(usize, bool), Population>,
}

/// A database's devices, at rest.
pub struct Population {
    superblock: MemoryDevice,
    logs: Vec<MemoryDevice>,
    store: MemoryDevice,
}

/// The same while a database is open on them.
pub struct Memories {
    superblock: Arc<MemoryDevice>,
    logs: Vec<Arc<MemoryDevice>>,
    store: Arc<MemoryDevice>,
}

impl Population {
    fn duplicate(&self) -> Population {
        Population {
            superblock: self.superblock.duplicate(),
            logs: self.logs.iter().map(MemoryDevice::duplicate).collect(),
            store: self.store.duplicate(),
        }
    }

    pub fn shared(self) -> Memories {
        Memories {
            superblock: Arc::new(self.superblock),
            logs: self.logs.into_iter().map(Arc::new).collect(),
            store: Arc::new(self.store),
        }
    }
}

impl Memories {
    /// What a kill of the process leaves at this moment. The store is copied before the log that
    /// its pages need.
    fn killed(&self) -> Population {
        let (store, superblock) = (self.store.duplicate(), self.superblock.duplicate());
        Population { superblock, logs: self.logs.iter().map(|log| log.duplicate()).collect(), store }
    }
}

/// What a kill left: the devices, and a copy of the archive's directory.
pub struct Left {
    pub population: Population,
    pub archive: Option<tempfile::TempDir>,
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
    pub fn new(seed: u64) -> Populations {
        Populations { seed, loaded: Made::default() }
    }

    fn of(&self, cell: &Cell) -> Result<Population, Failure> {
        let areas = cell.logs.count() > 1 && cell.hiding != Hedging::Off;
        let count = cell.logs.count();
        Ok(self.loaded.get((count, areas), || load(count, areas, self.seed))?.duplicate())
    }

    /// What a kill leaves after the cell's time.
    pub fn kill(&self, cell: &Cell, seed: u64) -> Result<Left, Failure> {
        let (cell, population) = (cell.clone(), self.of(cell)?);
        Ok(simulate(seed, move || killed(&cell, seed, population))?.0)
    }

    pub fn run(&self, cell: &Cell, seed: u64) -> Result<TpccFound, Failure> {
        let (cell, population) = (cell.clone(), self.of(cell)?);
        let (mut found, trace_hash) = simulate(seed, move || run(&cell, seed, population))?;
        found.trace_hash = format!("{trace_hash:016x}");
        Ok(found)
    }
}

fn load(count: usize, areas: bool, seed: u64) -> Result<Population, Failure> {
    let hedging = if areas { Hedging::Adaptive } else { Hedging::Off };
    let (population, _) = simulate(seed, move || {
        let memories = Population {
            superblock: MemoryDevice::new("superblock"),
            logs: (0..count).map(|at| MemoryDevice::new(&format!("log {at}"))).collect(),
            store: MemoryDevice::new("store"),
        };
        let memories = memories.shared();
        let devices = Devices {
            superblock: memories.superblock.clone(),
            logs: memories.logs.iter().map(|log| log.clone() as Arc<dyn Device>).collect(),
            store: memories.store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options(count, Comparator { hedging, ..Comparator::default() }).create_on(devices)?;
        let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Serializable)?;
        tpcc::load(&engine, &LoadOptions::new(SCALE, seed), &|_| ())?;
        engine.into_database().close()?;
        Ok(memories.killed())
    })?;
    Ok(population)
}

/// A disk for the archive: its files are in a temporary directory, and take the time that the
/// profile says. One segment is written at a time.
pub struct ArchiveDisk {
    directory: tempfile::TempDir,
    wrap: WrapDevice,
}

fn archive_failed(error: std::io::Error) -> Failure {
    Failure::new(format!("a directory for the archive: {error}"))
}

impl ArchiveDisk {
    fn new(profile: &DeviceProfile, seed: u64) -> Result<ArchiveDisk, Failure> {
        ArchiveDisk::of(tempfile::tempdir().map_err(archive_failed)?, profile, seed)
    }

    /// Over files that are there.
    pub fn of(
        directory: tempfile::TempDir,
        profile: &DeviceProfile,
        seed: u64,
    ) -> Result<ArchiveDisk, Failure> {
        let profile = profile.clone();
        let model = Model::new(&profile, seed).map_err(|error| Failure::bad_argument(error.to_string()))?;
        let wrap: WrapDevice = Arc::new(move |file| Arc::new(Emulated::over(file, &profile, model.clone())));
        Ok(ArchiveDisk { directory, wrap })
    }

    /// A copy of its files.
    fn copied(&self) -> Result<tempfile::TempDir, Failure> {
        let copy = || -> std::io::Result<tempfile::TempDir> {
            let to = tempfile::tempdir()?;
            for entry in std::fs::read_dir(self.directory.path())? {
                let entry = entry?;
                std::fs::copy(entry.path(), to.path().join(entry.file_name()))?;
            }
            Ok(to)
        };
        copy().map_err(archive_failed)
    }
}

impl Cell {
    /// Opens the database on emulated devices; to be called inside the simulation.
    pub fn open(
        &self,
        memories: &Memories,
        archive: Option<&ArchiveDisk>,
        seed: u64,
    ) -> Result<Database, Failure> {
        let devices = Devices {
            superblock: memories.superblock.clone(),
            logs: self.logs.emulated(memories.logs.clone(), seed)?.devices,
            store: memories.store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let comparator = Comparator { policy: self.policy, compose: self.compose, hedging: self.hiding };
        let db = options(self.logs.count(), comparator);
        let db = match archive {
            Some(disk) => db
                .archive(|archive| archive.directory(disk.directory.path()).completes(true))
                .wrap_archive(disk.wrap.clone()),
            None => db,
        };
        Ok(db.open_on(devices)?)
    }

    fn archive_disk(&self, seed: u64) -> Result<Option<ArchiveDisk>, Failure> {
        self.archive.as_ref().map(|profile| ArchiveDisk::new(profile, seed)).transpose()
    }

    fn driver(&self) -> DriverOptions {
        let mut driver = DriverOptions::new(self.clients, self.time);
        driver.warm_up = self.time / 4;
        driver.report_every = Duration::from_millis(100);
        driver
    }

    /// Clients of the standard mix.
    fn terminals(seed: u64) -> ClientOptions {
        ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed }
    }
}

/// Runs the cell's clients for its time, and kills the process.
fn killed(cell: &Cell, seed: u64, population: Population) -> Result<Left, Failure> {
    let (memories, archive) = (population.shared(), cell.archive_disk(seed)?);
    let db = cell.open(&memories, archive.as_ref(), seed)?;
    let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Serializable)?;
    let engine = Charged::new(engine, CostModel::FIRN.times(cell.cpu.factor));
    let driver = DriverOptions { length: Length::Time(2 * cell.time), ..cell.driver() };
    let stop = AtomicBool::new(false);
    let mut left = None;
    tpcc::run(&engine, &driver, &Cell::terminals(seed), &stop, &mut |live| {
        if live.elapsed >= cell.time && left.is_none() {
            let population = memories.killed();
            let archive = archive.as_ref().map(ArchiveDisk::copied).transpose();
            left = Some(archive.map(|archive| Left { population, archive }));
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    engine.into_inner().into_database().close()?;
    left.ok_or_else(|| Failure::new("the run ended before it was to be killed"))?
}

fn run(cell: &Cell, seed: u64, population: Population) -> Result<TpccFound, Failure> {
    let archive = cell.archive_disk(seed)?;
    let db = cell.open(&population.shared(), archive.as_ref(), seed)?;
    let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Serializable)?;
    let engine = Charged::new(engine, CostModel::FIRN.times(cell.cpu.factor));
    let stop = AtomicBool::new(false);
    let database = |engine: &Charged<FirnEngine>| engine.inner().database().statistics();
    let before = database(&engine);
    let report = tpcc::run(&engine, &cell.driver(), &Cell::terminals(seed), &stop, &mut |_| ())?;
    let after = database(&engine);
    let commits = (after.txn.commits - before.txn.commits).max(1) as f64;
    let found = TpccFound {
        tpm: report.per_second(report.kinds[0].commits) * 60.0,
        per_second: report.per_second(report.commits()),
        new_order: report.kinds[0].latency,
        log_bytes_per_commit: (after.log.appended_bytes - before.log.appended_bytes) as f64 / commits,
        log: LogFound::of(&after.log),
        early_writes: after.archive.map_or(0, |archive| archive.early_writes),
        trace_hash: String::new(),
    };
    engine.into_inner().into_database().close()?;
    Ok(found)
}
