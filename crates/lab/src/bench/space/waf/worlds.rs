//! What measurements begin with: recorded streams of pages, and loaded databases on drives of some
//! size.

use super::cell::PAGE;
use super::work::{self, Extent, Goes, Load};
use crate::bench::delta::recorder::{Recorder, Recording};
use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use firndb::{Database, Deltas, Devices, Hiding, Options, Placement};
use firndb_array::Shape;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, MemoryDevice};
use firndb_page_comparators::stream::Head;
use firndb_tier::store;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Of the simulated machine.
pub const CORES: usize = 4;
const LOG_BYTES: u64 = 128 << 20;
/// The whole page map, taken off the buffer.
const MAP_BYTES: usize = 2 << 20;
const VERSION_BYTES: usize = 4 << 20;
/// DRAM while loading.
const LOADING: usize = 64 << 20;
const BLOCK: usize = 512;

/// A stream of pages that the engine gave down.
pub struct Recorded {
    pub path: PathBuf,
    /// Live pages when the measurement began, and when it ended.
    pub live: (u64, u64),
}

/// A database's devices: superblock, log, store.
pub struct Loaded {
    devices: [MemoryDevice; 3],
    /// Pages that are allocated.
    pub pages: u64,
}

impl Loaded {
    pub fn duplicate(&self) -> [Arc<MemoryDevice>; 3] {
        self.devices.each_ref().map(|device| Arc::new(device.duplicate()))
    }
}

/// See the head of the file.
pub struct Worlds {
    dir: tempfile::TempDir,
    extent: Extent,
    seed: u64,
    loaded: Made<(Load, u64), Loaded>,
    recorded: Made<(Load, u64), Recorded>,
}

/// The options that all databases here have in common.
pub fn options(buffer_bytes: usize) -> Options {
    Options::new()
        .page_size(PAGE as usize)
        .buffer_bytes(buffer_bytes)
        .recovery_time(Duration::MAX)
        .log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
        .tuning(|tuning| {
            let tuning = tuning.map_bytes(MAP_BYTES).version_bytes(VERSION_BYTES);
            tuning.deltas(Deltas::Off).placement(Placement::Threaded)
        })
}

pub fn devices([superblock, log]: [Arc<MemoryDevice>; 2], store: Arc<dyn Device>) -> Devices {
    Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: None }
}

fn shape() -> Result<Shape, Failure> {
    let shape = store::shape(PAGE as usize, store::Layout::default());
    shape.map_err(|error| Failure::new(error.to_string()))
}

/// Bytes of a drive of which `live` pages are about `percent`: as many as a store of whole groups
/// takes.
pub fn drive_bytes(live: u64, percent: u64) -> Result<u64, Failure> {
    let shape = shape()?;
    let wanted = (live * PAGE * 100 / percent).saturating_sub(shape.groups_start);
    let groups = (wanted + shape.group_bytes / 2) / shape.group_bytes;
    // Pages and the slack of the store have to fit.
    let least = (live + live / 50).div_ceil(shape.places);
    Ok(shape.groups_start + groups.max(least) * shape.group_bytes)
}

impl Worlds {
    pub fn new(extent: Extent, seed: u64) -> Result<Worlds, Failure> {
        let (loaded, recorded) = (Made::default(), Made::default());
        Ok(Worlds { dir: tempfile::tempdir()?, extent, seed, loaded, recorded })
    }

    /// A database on a drive of `drive_bytes`.
    pub fn loaded(&self, load: Load, drive_bytes: u64) -> Result<std::sync::Arc<Loaded>, Failure> {
        let (extent, seed) = (self.extent, self.seed);
        self.loaded.get((load, drive_bytes), || {
            simulate(seed, CORES, move || loaded(load, &extent, drive_bytes, seed)).map(|(loaded, _)| loaded)
        })
    }

    /// The stream of a run with this seed.
    pub fn recorded(
        &self,
        load: Load,
        seed: u64,
        stop: &'static AtomicBool,
    ) -> Result<std::sync::Arc<Recorded>, Failure> {
        self.recorded.get((load, seed), || {
            let loaded = self.loaded(load, u64::MAX)?;
            let path = self.dir.path().join(format!("{}-{seed}.pages", load.key()));
            let (devices, extent, pages) = (loaded.duplicate(), self.extent, loaded.pages);
            let body = move || record(load, &extent, (devices, pages), path, (seed, stop));
            simulate(seed, CORES, body).map(|(recorded, _)| recorded)
        })
    }
}

fn loaded(load: Load, extent: &Extent, drive_bytes: u64, seed: u64) -> Result<Loaded, Failure> {
    let memory = |name: &str| Arc::new(MemoryDevice::new(name));
    let (superblock, log) = (memory("superblock"), memory("log"));
    let store = Arc::new(MemoryDevice::with("store", BLOCK, drive_bytes));
    let on = devices([superblock.clone(), log.clone()], store.clone());
    let db = work::fill(load, extent, options(LOADING).create_on(on)?, seed)?;
    // What loading has left to do.
    db.checkpoint()?;
    let pages = db.statistics().store.pages_allocated;
    db.close()?;
    Ok(Loaded { devices: [superblock, log, store].map(|device| device.duplicate()), pages })
}

fn record(
    load: Load,
    extent: &Extent,
    ([superblock, log, store], pages): ([Arc<MemoryDevice>; 3], u64),
    path: PathBuf,
    (seed, stop): (u64, &AtomicBool),
) -> Result<Recorded, Failure> {
    let recording = Arc::new(Recording::new());
    let mut on = devices([superblock, log], store);
    on.cache = Some(Arc::new(MemoryDevice::new("cache")));
    let kind = Arc::new(Recorder(recording.clone()));
    let options = options(extent.buffer_bytes).create(false).cache(|cache| cache.bytes(1 << 20).kind(kind));
    let db = options.open_on(on)?;
    let frames = db.statistics().buffer.frames;
    let note = format!("{}, seed {seed}, {extent:?}", load.title());
    recording.begin(&path, &Head { page_size: PAGE as u32, pages, frames, note })?;
    let (warm, measured) = extent.lengths(load);
    let mut live = None;
    let mut end = 0;
    let mut look = |commits: u64, db: &Database| {
        recording.committed(commits);
        if commits >= warm && live.is_none() {
            live = Some(db.statistics().store.pages_allocated);
            recording.measure();
        }
        if commits < warm + measured {
            return Ok(Goes::On);
        }
        end = db.statistics().store.pages_allocated;
        Ok(Goes::Ends)
    };
    let worked = work::work(load, extent, db, (seed, stop), &mut look);
    recording.end()?;
    worked?.close()?;
    Ok(Recorded { path, live: (live.unwrap_or_default(), end) })
}
