//! A database on an emulated drive, on which one query at a time is measured from a given state.

use super::data::{CORES, Loaded, PAGE, options};
use crate::bench::log::devices::Partition;
use crate::bench::simulation::simulate;
use firndb::query::{AccessKind, Computing, Hint, Query, col};
use firndb::{Database, Deltas, Devices, ValueRef};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_emulate::Emulated;
use firndb_profile::DeviceProfile;
use std::sync::Arc as StdArc;
use std::time::Duration;

/// A flash cache over the store.
#[derive(Clone, Debug)]
pub struct CacheOf {
    pub profile: DeviceProfile,
    pub bytes: u64,
}

/// What a query is run on.
#[derive(Clone, Debug)]
pub struct Setting {
    pub profile: DeviceProfile,
    /// DRAM for pages.
    pub dram: u64,
    pub cache: Option<CacheOf>,
    /// Memory of the query.
    pub memory: usize,
    /// Scans and index scans read ahead; without it, one page is read at a time.
    pub reads_ahead: bool,
    /// What computing costs, in units of Firn's own.
    pub computing: f64,
    pub warm: Warm,
}

/// What is in memory when a query begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// The index on the tuples' integer, and the page map.
    Index,
    /// What random reads of rows leave there, once DRAM and the flash cache are full.
    Reads,
    /// Nothing.
    Nothing,
}

/// What came of a query.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub rows: u64,
    pub seconds: f64,
    /// As it was planned.
    pub planned_seconds: f64,
    pub plan: String,
}

/// Makes a query of a database.
pub type MakeQuery = StdArc<dyn Fn(&Database) -> Query + Send + Sync>;

/// Runs the query in a simulation of its own; `None` if no plan does what its hints ask for.
pub fn measure(
    setting: &Setting,
    loaded: &StdArc<Loaded>,
    seed: u64,
    (query, hints): (&MakeQuery, &[Hint]),
) -> Result<Option<Outcome>, Failure> {
    let (setting, loaded, query, hints) = (setting.clone(), loaded.clone(), query.clone(), hints.to_vec());
    let run = move || {
        let drive = Drive::new(&setting, &loaded, seed)?;
        let db = drive.open(&setting)?;
        warm(&db, &setting, seed)?;
        let query = hints.iter().fold(query(&db), |query, hint| query.hint(hint.clone()));
        let query = query.memory(setting.memory).charged(Computing::FIRN.times(setting.computing));
        let Some(explained) = planned(&query)? else { return Ok(None) };
        drive.run_free(false);
        let began = clock::now();
        let mut tx = db.snapshot();
        let mut rows = query.run(&mut tx)?;
        let mut count = 0;
        while rows.next(&mut tx)?.is_some() {
            count += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        drive.run_free(true);
        drop((rows, tx));
        db.close()?;
        let (plan, planned_seconds) = explained;
        Ok(Some(Outcome { rows: count, seconds, planned_seconds, plan }))
    };
    Ok(simulate(seed, CORES, run)?.0)
}

/// The plan and its expected time; `None` if the hints cannot be followed.
fn planned(query: &Query) -> Result<Option<(String, f64)>, Failure> {
    match query.explain() {
        Ok(found) => Ok(Some((found.plan, found.us / 1e6))),
        Err(error) if error.to_string().contains("hints ask for") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct Drive {
    superblock: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    store: Arc<Partition>,
    /// Rows of queries, on the store's drive.
    spill: Arc<Partition>,
    cache: Option<Arc<Emulated>>,
    profiles: tempfile::TempDir,
}

impl Drive {
    fn new(setting: &Setting, loaded: &Loaded, seed: u64) -> Result<Drive, Failure> {
        let [superblock, log, store] =
            [&loaded.superblock, &loaded.log, &loaded.store].map(|device| Arc::new(device.duplicate()));
        let spill = Arc::new(MemoryDevice::new("spill"));
        let [store, spill] =
            <[_; 2]>::try_from(Partition::split(vec![store, spill], &setting.profile, seed)?)
                .map_err(|_| Failure::new("two parts were asked for"))?;
        let profiles = tempfile::tempdir()?;
        let save = |profile: &DeviceProfile, name: &str| {
            let path = profiles.path().join(name);
            profile.save(&path).map_err(|error| Failure::new(error.to_string()))
        };
        save(&setting.profile, "store.toml")?;
        let cache = match &setting.cache {
            Some(cache) => {
                save(&cache.profile, "cache.toml")?;
                let memory = Arc::new(MemoryDevice::new("cache"));
                Some(crate::bench::simulation::emulated(memory, &cache.profile, seed)?)
            }
            None => None,
        };
        let drive = Drive { superblock, log, store, spill, cache, profiles };
        drive.run_free(true);
        Ok(drive)
    }

    fn run_free(&self, free: bool) {
        self.store.run_free(free);
        self.cache.iter().for_each(|cache| cache.run_free(free));
    }

    fn open(&self, setting: &Setting) -> Result<Database, Failure> {
        let devices = Devices {
            superblock: self.superblock.clone(),
            logs: vec![self.log.clone()],
            store: self.store.clone(),
            store_others: Vec::new(),
            cache: self.cache.clone().map(|cache| cache as Arc<dyn firndb_device::Device>),
        };
        let profile = |name: &str| self.profiles.path().join(name);
        let mut options = options(setting.dram).spill_on(self.spill.clone()).tuning(|tuning| {
            tuning.store_profile(profile("store.toml")).deltas(Deltas::Off).read_ahead(setting.reads_ahead)
        });
        if let Some(cache) = &setting.cache {
            options = options.cache(|it| it.bytes(cache.bytes).profile(profile("cache.toml")));
        }
        Ok(options.open_on(devices)?)
    }
}

/// Ranges in which the index is read: each short enough that what it reads stays in DRAM.
const RANGES: i64 = 64;
/// Random reads, in units of the pages that DRAM and flash cache hold.
const READS: u64 = 3;
/// Keys of one random read.
const TOGETHER: u64 = 64;

fn warm(db: &Database, setting: &Setting, seed: u64) -> Result<(), Failure> {
    let mut tx = db.snapshot();
    match setting.warm {
        Warm::Nothing => {}
        Warm::Index => {
            // The thesis' files have no page map: a scan brings it in, and leaves few rows behind.
            let scan = Hint::Access("tuples".into(), AccessKind::TableScan, None);
            db.query("tuples").filter(col("value").lt(0)).hint(scan).count(&mut tx)?;
            let values = (db.table("tuples")?.approximate_rows()? / 10) as i64 + 1;
            let by_index = Hint::Access("tuples".into(), AccessKind::IndexOnly, Some("by_value".into()));
            for range in 0..RANGES {
                let (low, high) = (range * values / RANGES, (range + 1) * values / RANGES);
                let query = db.query("tuples").filter(col("value").between(low, high));
                query.hint(by_index.clone()).count(&mut tx)?;
            }
        }
        Warm::Reads => {
            let cached = setting.cache.as_ref().map_or(0, |cache| cache.bytes);
            let pages = (setting.dram + cached) / PAGE;
            let mut rng = Rng::new(seed ^ 0x5eed);
            for name in db.table_names() {
                let table = db.table(&name)?.typed()?;
                let rows = table.table().approximate_rows()?.max(1);
                for _ in 0..(READS * pages).min(2 * rows).div_ceil(TOGETHER) {
                    let key = |_| [ValueRef::I64(rng.below(rows) as i64)];
                    let keys: Vec<[ValueRef<'_>; 1]> = (0..TOGETHER).map(key).collect();
                    table.get_many(&mut tx, &keys)?;
                }
            }
        }
    }
    // Until all is read that was asked for ahead: it would be read in what is measured.
    clock::sleep(Duration::from_secs(1));
    Ok(())
}
