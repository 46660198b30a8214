//! A database with one page file, store and log on one emulated drive.

use crate::bench::log::devices::Partition;
use crate::bench::made::Made;
use crate::bench::simulation::simulate;
use firndb::{Database, Deltas, Devices, Hiding, Options, PageFile, PageRecovery};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_profile::DeviceProfile;
use serde::Serialize;
use std::time::Duration;

/// Cores of the simulated machine; computing takes none of their time.
pub const CORES: usize = 4;
/// Bytes of a page, the paper's.
pub const PAGE: usize = 4096;
/// Bytes of the log: so large that the engine starts no checkpoint within a cell, as the paper's
/// prototypes took none.
const LOG_BYTES: u64 = 256 << 20;
/// The whole page map of every cell: the paper's translation pages are almost never replaced.
const MAP_BYTES: usize = 1 << 20;
/// In which an index build sorts.
pub const SORT_BYTES: usize = 512 << 10;
/// Pages of one transaction that loads.
const BATCH: u64 = 256;
/// DRAM while loading.
const LOADING_PAGES: usize = 8192;
pub const FILE: &str = "pages";

/// DRAM of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// For the buffer pool, in pages.
    pub buffer: usize,
    /// For private images, in pages: the paper's memory log.
    pub private: usize,
    /// For before-images of rows.
    pub version_bytes: usize,
}

/// Devices of a loaded database: the superblock's, the log's, and the store's.
pub struct Loaded([MemoryDevice; 3]);

/// By pages of the file.
pub type AllLoaded = Made<u64, Loaded>;

/// What a page holds: in generation 0 as it was loaded.
pub fn content(page: u64, generation: u64) -> Vec<u8> {
    let stamp = (page << 8 | generation).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    stamp.to_le_bytes().repeat(PAGE / 8)
}

fn options(memory: Memory, recovery: PageRecovery) -> Options {
    Options::new()
        .page_size(PAGE)
        .buffer_bytes(memory.buffer * PAGE)
        .recovery_time(Duration::MAX)
        .index_build_bytes(SORT_BYTES)
        .log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
        .tuning(|tuning| {
            let tuning = tuning.map_bytes(MAP_BYTES).version_bytes(memory.version_bytes);
            tuning.page_recovery(recovery).page_file_bytes(memory.private * PAGE)
        })
}

/// Makes a page file of this many pages, which takes no time of a device.
pub fn load(pages: u64) -> Result<Loaded, Failure> {
    let (loaded, _) = simulate(1, CORES, move || {
        let all = ["superblock", "log", "store"].map(|name| Arc::new(MemoryDevice::new(name)));
        let [superblock, log, store] = all.clone();
        let devices = Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: None };
        let memory = Memory { buffer: LOADING_PAGES, private: LOADING_PAGES, version_bytes: 16 << 20 };
        let db = options(memory, PageRecovery::Log).create_on(devices)?;
        let file = db.create_page_file(FILE)?;
        for from in (0..pages).step_by(BATCH as usize) {
            db.transact(|tx| {
                let mut batch = from..pages.min(from + BATCH);
                batch.try_for_each(|page| tx.put_page(&file, page, &content(page, 0)))
            })?;
        }
        db.close()?;
        Ok(Loaded(all.map(|device| device.duplicate())))
    })?;
    Ok(loaded)
}

/// An open database.
pub struct Machine {
    pub db: Database,
    pub file: PageFile,
    drive: Arc<Partition>,
    _profile: tempfile::TempDir,
}

impl Machine {
    /// Opens the database, which takes no time; from then on the drive takes its own. Nothing but
    /// what an opening reads is in DRAM. Called within a simulation.
    pub fn open(
        loaded: &Loaded,
        profile: &DeviceProfile,
        setting: (Memory, PageRecovery),
        seed: u64,
    ) -> Result<Machine, Failure> {
        Machine::open_with(loaded, profile, setting, seed, &|options| options)
    }

    /// As [`Machine::open`], with `more` options.
    pub fn open_with(
        loaded: &Loaded,
        profile: &DeviceProfile,
        (memory, recovery): (Memory, PageRecovery),
        seed: u64,
        more: &dyn Fn(Options) -> Options,
    ) -> Result<Machine, Failure> {
        let memories = loaded.0.iter().map(|device| Arc::new(device.duplicate()));
        let memories = memories.chain([Arc::new(MemoryDevice::new("spill"))]).collect();
        let parts = Partition::split(memories, profile, seed)?;
        let [superblock, log, store, spill] =
            <[_; 4]>::try_from(parts).map_err(|_| Failure::new("four parts were asked for"))?;
        store.run_free(true);
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("profile.toml");
        profile.save(&path).map_err(|error| Failure::new(error.to_string()))?;
        let drive = store.clone();
        let devices = Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: None };
        let options = options(memory, recovery).log(|log| log.profile(&path));
        let options = options.tuning(|tuning| tuning.store_profile(path).deltas(Deltas::Off)).spill_on(spill);
        let db = more(options).open_on(devices)?;
        let file = db.page_file(FILE)?;
        drive.run_free(false);
        Ok(Machine { db, file, drive, _profile: dir })
    }

    /// Whether calls to the drive take no time from now on.
    pub fn run_free(&self, free: bool) {
        self.drive.run_free(free);
    }

    /// Closes the database, which takes no time.
    pub fn close(self) -> Result<(), Failure> {
        self.run_free(true);
        Ok(self.db.close()?)
    }
}
