//! The database that every measurement begins with a copy of.
//!
//! The paper's has 500 warehouses on 59 GB, for 50 clients. Ours has as many warehouses a client,
//! each with fewer rows, so that it fits into memory. Item and customer numbers are drawn as the
//! specification says, with constants that belong to 100,000 items and 3,000 customers; 4096 items
//! and 130 customers, a power of two or nearly so, keep what is hot together as it is in the whole
//! table.

use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use firndb::{Devices, Hiding, Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_workloads::tpcc::{self, LoadOptions, Scale};

/// Of online log: more than any run fills between two checkpoints.
const LOG_BYTES: u64 = 4 << 30;
/// DRAM for pages while loading.
const LOAD_BUFFER: usize = 96 << 20;
/// For the page map of any of these databases.
const MAP_BYTES: usize = 64 << 20;
/// Before-images in DRAM. The paper's engine keeps old versions in its pages.
const VERSION_BYTES: usize = 1 << 20;

/// How large the database is, and how many work on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub name: &'static str,
    pub scale: Scale,
    pub clients: usize,
}

impl Size {
    /// For the figures of the report.
    pub const FULL: Size =
        Size { name: "full", scale: Scale { warehouses: 200, items: 4096, customers: 130 }, clients: 20 };
    /// For restarts: 20 times a DRAM of 50,000 frames, as the paper's engine had. Its 4.8 GB are in
    /// memory, and as much log at most.
    pub const RESTART: Size = Size {
        name: "restart",
        scale: Scale { warehouses: 1050, items: 4096, customers: 130 },
        clients: 105,
    };
    /// Half of the full size, for a look.
    pub const QUICK: Size =
        Size { name: "quick", scale: Scale { warehouses: 100, items: 4096, customers: 130 }, clients: 10 };
    /// For tests: nothing in it is like the paper's.
    pub const TINY: Size =
        Size { name: "tiny", scale: Scale { warehouses: 10, items: 1024, customers: 60 }, clients: 2 };
}

/// A database's devices.
pub struct Population {
    pub superblock: MemoryDevice,
    pub log: MemoryDevice,
    pub store: MemoryDevice,
    pub cache: MemoryDevice,
    /// Bytes of its pages.
    pub bytes: u64,
    /// What it holds.
    pub loaded: tpcc::Population,
}

impl Population {
    /// A copy that costs what is changed in it.
    pub fn duplicate(&self) -> Population {
        Population {
            superblock: self.superblock.duplicate(),
            log: self.log.duplicate(),
            store: self.store.duplicate(),
            cache: self.cache.duplicate(),
            bytes: self.bytes,
            loaded: self.loaded,
        }
    }
}

/// Loaded databases, by the names of their sizes. All runs begin with the same, whatever their
/// seed.
pub struct Populations {
    seed: u64,
    loaded: Made<&'static str, Population>,
}

impl Populations {
    pub fn new(seed: u64) -> Populations {
        Populations { seed, loaded: Made::default() }
    }

    /// A copy of the database of this size, which is loaded if it was not before.
    pub fn of(&self, size: Size, cores: usize) -> Result<Population, Failure> {
        Ok(self.loaded.get(size.name, || load(size, self.seed, cores))?.duplicate())
    }
}

/// What all databases of these measurements have in common. The page map is in DRAM: the paper's
/// engine has none that would have to be read.
pub fn options(buffer_bytes: usize) -> Options {
    default_options(buffer_bytes).tuning(|tuning| tuning.map_bytes(MAP_BYTES).version_bytes(VERSION_BYTES))
}

/// The engine's own options, over one log device that is large enough for any run.
pub fn default_options(buffer_bytes: usize) -> Options {
    Options::new()
        .buffer_bytes(buffer_bytes)
        .tuning(|tuning| tuning.analyze_in_background(false))
        .log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
}

/// Loads a database without a cache.
fn load(size: Size, seed: u64, cores: usize) -> Result<Population, Failure> {
    let (population, _) = simulate(seed, cores, move || {
        let memory = |name: &str| Arc::new(MemoryDevice::new(name));
        let (superblock, log, store) = (memory("superblock"), memory("log"), memory("store"));
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options(LOAD_BUFFER).create_on(devices)?;
        let engine = FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?;
        tpcc::load(&engine, &LoadOptions::new(size.scale, seed), &|_| ())?;
        let db = engine.into_database();
        let statistics = db.statistics();
        let bytes = statistics.store.pages_allocated * statistics.page_size as u64;
        db.close()?;
        Ok(Population {
            superblock: superblock.duplicate(),
            log: log.duplicate(),
            store: store.duplicate(),
            cache: MemoryDevice::new("cache"),
            bytes,
            loaded: tpcc::Population::new(size.scale, seed),
        })
    })?;
    Ok(population)
}
