//! The figure `profiles`: reads on every shipped drive, in virtual time, computing free, beside
//! what the emulated drive itself does.

use super::raw::Raw;
use super::rows::{self, Rows};
use super::targets::{PROFILES_FETCH, PROFILES_MANY, PROFILES_SCAN, RANGES_WASTE, figure};
use super::work::{self, Length};
use super::{Bench, Size};
use crate::bench::ahead::Ahead;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::made::Made;
use crate::bench::sampled::Sampled;
use crate::bench::simulation::{emulated, simulate};
use firndb::{Database, Deltas, Devices, Hiding, Options};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_emulate::{Emulated, profiles};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Cores of the simulated machine; computing takes none of their time.
const CORES: usize = 4;
/// Keys that one client asks for at a time.
const MANY: usize = 64;
/// Such requests that are measured.
const MANY_TIMES: u64 = 100;
/// Clients that read short ranges, and rows that each reads.
const RANGE_CLIENTS: u64 = 8;
const RANGE_ROWS: u64 = 3000;
/// Requests in flight that the drive's random reads are tried with.
const DEPTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// A round of raw reads, in latencies of one.
const ROUND_LATENCIES: u32 = 200;
/// Log of the databases, which only loading fills.
const LOG_BYTES: u64 = 256 << 20;
/// The drives that short ranges are read from.
pub const RANGE_DRIVES: [&str; 2] = ["sata-ssd", "nvme"];
/// No run is longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// The devices of a loaded database.
pub struct Loaded {
    superblock: MemoryDevice,
    log: MemoryDevice,
    store: MemoryDevice,
    rows: Rows,
}

/// Loaded databases, by bytes and by seed; computed once.
pub type AllLoaded = Made<(u64, u64), Loaded>;

fn options(size: Size) -> Options {
    let options = Options::new().buffer_bytes(size.buffer as usize).recovery_time(Duration::MAX);
    let options = options.tuning(|tuning| tuning.analyze_in_background(false));
    options.log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
}

/// Loads a database, which takes no time of a device.
fn load(size: Size, seed: u64) -> Result<Loaded, Failure> {
    let (loaded, _) = simulate(seed, CORES, move || {
        let [superblock, log, store] =
            ["superblock", "log", "store"].map(|name| Arc::new(MemoryDevice::new(name)));
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options(size).create_on(devices)?;
        let rows = rows::load(&db, size.bytes(), |_| true)?;
        db.close()?;
        let [superblock, log, store] = [superblock, log, store].map(|device| device.duplicate());
        Ok(Loaded { superblock, log, store, rows })
    })?;
    Ok(loaded)
}

/// What is read from a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// All rows, those of a group, and many at random, each from a cold start.
    Everything,
    /// Short ranges only.
    Ranges,
}

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    size: Size,
    what: What,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let what = if self.what == What::Ranges { ", short ranges" } else { "" };
        format!("{}{what}", self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Of a drive, and of Firn on it. Zero where it was not asked for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Found {
    /// Of the drive alone.
    sequential_mb_s: f64,
    random_per_second: f64,
    /// Requests in flight at which it reads most.
    best_depth: usize,
    scan_mb_s: f64,
    fetched_pages_per_second: f64,
    /// Keys a second whose pages were not in DRAM.
    many_missed_per_second: f64,
    /// Rows a second in short ranges.
    range_rows_per_second: f64,
    read_ahead: Ahead,
}

/// A database on an emulated drive.
struct Machine {
    devices: [Arc<MemoryDevice>; 2],
    store: Arc<Emulated>,
    rows: Rows,
    size: Size,
    profile: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    fn new(cell: &Cell, loaded: &Loaded, seed: u64) -> Result<Machine, Failure> {
        let store = emulated(Arc::new(loaded.store.duplicate()), &cell.profile, seed)?;
        store.run_free(true);
        let dir = tempfile::tempdir()?;
        let profile = dir.path().join("profile.toml");
        cell.profile.save(&profile).map_err(|error| Failure::new(error.to_string()))?;
        let devices = [&loaded.superblock, &loaded.log].map(|memory| Arc::new(memory.duplicate()));
        Ok(Machine { devices, store, rows: loaded.rows, size: cell.size, profile, _dir: dir })
    }

    /// Opens the database, which takes no time; the drive then takes its own.
    fn measured<T>(
        &self,
        warm: impl FnOnce(&Database) -> Result<(), Failure>,
        body: impl FnOnce(&Database) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let [superblock, log] = &self.devices;
        let devices = Devices {
            superblock: superblock.clone(),
            logs: vec![log.clone()],
            store: self.store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let profile = self.profile.clone();
        let db = options(self.size)
            .tuning(|tuning| tuning.store_profile(profile).deltas(Deltas::Off))
            .open_on(devices)?;
        warm(&db)?;
        self.store.run_free(false);
        let outcome = body(&db);
        self.store.run_free(true);
        db.close()?;
        outcome
    }

    /// What the drive does alone.
    fn raw(&self, seed: u64, stop: &'static AtomicBool, found: &mut Found) -> Result<(), Failure> {
        let raw = Raw { device: self.store.clone(), bytes: self.rows.pages * self.rows.page_bytes, stop };
        self.store.run_free(false);
        let latency = raw.random(1, Duration::from_millis(100), seed)?.latency.mean_us();
        let round = Duration::from_secs_f64(latency / 1e6) * ROUND_LATENCIES;
        for depth in DEPTHS {
            let rate = raw.random(depth, round, seed)?.requests_per_second;
            // A deeper queue is better if it gains something.
            if rate > found.random_per_second * 1.01 {
                (found.random_per_second, found.best_depth) = (rate, depth);
            }
        }
        found.sequential_mb_s = raw.sequential(10 * round, seed)?.bytes_per_second / 1e6;
        self.store.run_free(true);
        Ok(())
    }
}

fn run(cell: &Cell, loaded: &Loaded, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let machine = Machine::new(cell, loaded, seed)?;
    let mut found = Found::default();
    let rows = machine.rows;
    let all = Length { rows: u64::MAX, time: LONGEST, stop };
    let nothing = |_: &Database| Ok(());
    if cell.what == What::Ranges {
        let length = Length { rows: RANGE_ROWS, ..all };
        found.range_rows_per_second = machine.measured(nothing, |db| {
            let done = work::short_ranges(db, rows, RANGE_CLIENTS, seed, length)?;
            found.read_ahead = Ahead::of(&db.statistics());
            Ok(done.per_second())
        })?;
        return Ok(found);
    }
    machine.raw(seed, stop, &mut found)?;
    let scanned = machine.measured(nothing, |db| work::scan(db, all))?;
    assert_eq!(scanned.rows, rows.rows, "a scan returns every row");
    found.scan_mb_s = rows.bytes_of(scanned.rows) / 1e6 / scanned.seconds;
    let fetched = machine.measured(nothing, |db| work::fetch(db, seed, all))?;
    found.fetched_pages_per_second = rows.pages_of_group(seed) as f64 / fetched.seconds;
    // DRAM is full, and the tree's upper levels are in it.
    let warm = |db: &Database| {
        let frames = db.statistics().buffer.frames;
        work::many(db, rows, MANY, seed + 1, Length { rows: 2 * frames, ..all }).map(drop)
    };
    found.many_missed_per_second = machine.measured(warm, |db| {
        let length = Length { rows: MANY_TIMES * MANY as u64, ..all };
        Ok(work::many(db, rows, MANY, seed, length)?.missed_per_second())
    })?;
    Ok(found)
}

/// What is found of a drive.
fn measure(
    bench: &Bench,
    profile: DeviceProfile,
    what: What,
    judged: Judged,
) -> Result<Measured<Found>, Failure> {
    let (size, stop, all) = (bench.size(), bench.stop, bench.loaded.clone());
    let first = bench.args.running.seed;
    bench.cells.of(&Cell { profile, size, what }, judged, move |cell, seed| {
        let loaded = all.get((size.buffer, size.times), || load(size, first))?;
        let cell = cell.clone();
        Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed, stop))?.0)
    })
}

/// The drives that are asked for: all that ship, without disks; the times of `myers-disk` are a
/// table, and not those of mechanics.
fn drives(names: &[String]) -> Result<Vec<DeviceProfile>, Failure> {
    if names.is_empty() {
        return Ok(profiles::all()
            .into_iter()
            .filter(|it| it.model.mechanics.is_none() && it.name != "myers-disk")
            .collect());
    }
    names.iter().map(|name| crate::tpcc::machine::profile(name)).collect()
}

/// The figure `profiles`.
pub fn on_all(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("profiles");
    let title = "Reads on shipped drives, in virtual time, of what the drive itself does";
    let mut panel = Panel::of_bars("reads-profiles", title, "drive", "of the drive's own rate");
    panel.digits = 3;
    let title = "What the drives themselves do";
    let mut raw = Panel::of_bars("reads-profiles-raw", title, "drive", "alone");
    raw.drawn = false;
    let mut ratios: [Vec<(Sampled, String)>; 3] = Default::default();
    for (at, profile) in drives(&bench.args.profile)?.into_iter().enumerate() {
        let name = profile.name.clone();
        let found = measure(bench, profile, What::Everything, Judged::Yes)?;
        let of = [
            ("full scan", found.value(|it| it.scan_mb_s / it.sequential_mb_s)),
            ("fetch of 1 %", found.value(|it| it.fetched_pages_per_second / it.random_per_second)),
            ("get_many of 64", found.value(|it| it.many_missed_per_second / it.random_per_second)),
        ];
        for ((series, ratio), all) in of.into_iter().zip(&mut ratios) {
            panel.add(series, Point::new(at as f64, &*name, &ratio));
            all.push((ratio, name.clone()));
        }
        for (series, value) in [
            ("sequential MB/s", found.value(|it| it.sequential_mb_s)),
            ("random pages/s", found.value(|it| it.random_per_second)),
            ("at depth", found.value(|it| it.best_depth as f64)),
        ] {
            raw.add(series, Point::new(at as f64, &*name, &value));
        }
    }
    for (target, all) in [PROFILES_SCAN, PROFILES_FETCH, PROFILES_MANY].iter().zip(&ratios) {
        let least = Sampled::least(all.iter().map(|(ratio, _)| ratio)).unwrap_or_default();
        target.judge(&mut figure, &least);
        let missed = all.iter().filter(|(ratio, _)| ratio.median() < 0.85);
        let missed: Vec<&str> = missed.map(|(_, name)| name.as_str()).collect();
        if !missed.is_empty() {
            figure.notes.push(format!("Below 0.85: {}.", missed.join(", ")));
        }
    }
    figure.panels.extend([panel, raw]);
    Ok(figure)
}

/// The part of the figure `waste` that is about short ranges.
pub fn short_ranges(bench: &Bench, figure: &mut Figure, panel: &mut Panel) -> Result<(), Failure> {
    let mut all = Vec::new();
    for (at, name) in RANGE_DRIVES.into_iter().enumerate() {
        let profile = crate::tpcc::machine::profile(name)?;
        let found = measure(bench, profile, What::Ranges, Judged::Yes)?;
        let wasted = found.value(|it| it.read_ahead.wasted_percent());
        panel.add("never used", Point::new(at as f64 + 1.0, format!("short ranges, {name}"), &wasted));
        all.push(wasted);
    }
    RANGES_WASTE.judge(figure, &Sampled::most(&all).unwrap_or_default());
    Ok(())
}
