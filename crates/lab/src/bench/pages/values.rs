//! Values of 1 MiB: what a commit of one writes, and how fast they are read back.

use super::cell::{MODES, Meter, Step};
use super::grid::most;
use super::machine::{CORES, Loaded, Machine, Memory, PAGE};
use super::setting::{Bench, Shown, VERSION_BYTES};
use super::targets::{self, VALUE_BYTES, VALUE_LOG, VALUE_READ};
use crate::bench::cells::{Cellular, Judged, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::reads::raw::Raw;
use crate::bench::sampled::Sampled;
use crate::bench::simulation::{emulated, simulate};
use firndb::PageRecovery;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VALUE: usize = 1 << 20;
/// DRAM for four values.
const MEMORY: Memory = Memory { buffer: 4 * VALUE / PAGE, private: 512, version_bytes: VERSION_BYTES };
/// Values that a run writes; the first half is not in DRAM any more when it is read.
const VALUES: u64 = 32;
const VALUES_QUICK: u64 = 12;
/// Pages of the page file, which this figure does not use.
pub const FILE_PAGES: u64 = 150;
/// How long the drive alone is read.
const RAW_TIME: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    recovery: PageRecovery,
    values: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    /// All values, each in a commit of its own.
    written: Step,
    checkpoint: Step,
    read_seconds: f64,
    read_bytes: f64,
    /// Of the drive alone, bytes a second.
    sequential: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let mode = format!("{:?}", self.recovery).to_lowercase();
        format!("{}, {mode}, {} values of 1 MiB", self.profile.name, self.values)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

fn value(number: u64, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed << 32 | number);
    (0..VALUE / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn run(cell: &Cell, loaded: &Arc<Loaded>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let machine = Machine::open(&loaded, &cell.profile, (MEMORY, cell.recovery), seed)?;
        machine.run_free(true);
        let table = machine.db.create_table("values")?;
        machine.run_free(false);
        let mut found = Found::default();
        let meter = Meter::new(&machine);
        for number in 0..cell.values {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::interrupted("stopped before all was measured"));
            }
            let value = value(number, seed);
            machine.db.transact(|tx| tx.put(&table, &number.to_be_bytes(), &value).map(drop))?;
        }
        found.written = meter.read(&machine);
        let meter = Meter::new(&machine);
        machine.db.checkpoint()?;
        found.checkpoint = meter.read(&machine);
        let (began, mut tx) = (clock::now(), machine.db.snapshot());
        for number in 0..cell.values / 2 {
            let read = tx.get(&table, &number.to_be_bytes())?;
            if read.as_deref() != Some(&value(number, seed)[..]) {
                return Err(Failure::new(format!("value {number} is not what was written")));
            }
        }
        found.read_seconds = began.elapsed().as_secs_f64();
        found.read_bytes = (cell.values / 2) as f64 * VALUE as f64;
        drop((tx, table));
        machine.close()?;
        found.sequential = sequential(&cell.profile, seed, stop)?;
        Ok(found)
    };
    Ok(simulate(seed, CORES, body)?.0)
}

/// What the drive alone reads in order, bytes a second.
fn sequential(profile: &DeviceProfile, seed: u64, stop: &'static AtomicBool) -> Result<f64, Failure> {
    let (memory, bytes) = (Arc::new(MemoryDevice::new("drive")), 256 << 20);
    memory.grow(bytes, Fill::Sparse).map_err(|error| Failure::new(error.to_string()))?;
    let device: Arc<dyn Device> = emulated(memory, profile, seed)?;
    Ok(Raw { device, bytes, stop }.sequential(RAW_TIME, seed)?.bytes_per_second)
}

/// What is shown of one mode on one drive, over the bytes of the values.
const SHOWN: [Shown<Found>; 4] = [
    ("log, %", |found| log_bytes(found) / bytes(found) * 100.0),
    ("to the drive, %", |found| {
        let all = found.written.all().write_bytes + found.checkpoint.all().write_bytes;
        all as f64 / bytes(found) * 100.0
    }),
    ("written, MB/s", |found| bytes(found) / found.written.seconds / 1e6),
    ("read cold, % of sequential", |found| found.read_bytes / found.read_seconds / found.sequential * 100.0),
];

/// Of all values.
fn bytes(found: &Found) -> f64 {
    2.0 * found.read_bytes
}

fn log_bytes(found: &Found) -> f64 {
    (found.written.log.write_bytes + found.checkpoint.log.write_bytes) as f64
}

/// Figure `values`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("values");
    let mut panel = Panel::of_bars(
        "pages-values",
        "Values of 1 MiB, each in a commit",
        "drive, mode",
        "over their bytes",
    );
    panel.drawn = false;
    let values = if bench.args.quick { VALUES_QUICK } else { VALUES };
    let (mut log, mut drive, mut read) = (Vec::new(), Vec::new(), Vec::new());
    let mut place = 0.0;
    for profile in &bench.drives {
        for (mode, recovery) in MODES {
            let cell = Cell { profile: profile.clone(), recovery, values };
            let found = bench.over_file(&cell, (FILE_PAGES, Judged::Yes), run)?;
            let [of_log, of_drive, _, of_read] = SHOWN.map(|(name, of)| {
                let shown = found.value(of);
                panel.add(name, Point::new(place, format!("{}, {mode}", profile.name), &shown));
                shown
            });
            place += 1.0;
            if mode == "adaptive" {
                log.push(of_log);
                drive.push(of_drive.map(|percent| percent / 100.0));
                read.push(of_read.map(|percent| percent / 100.0));
            }
        }
    }
    VALUE_LOG.judge(&mut figure, &most(&log));
    VALUE_BYTES.judge(&mut figure, &most(&drive));
    VALUE_READ.judge(&mut figure, &Sampled::least(&read).unwrap_or_default());
    figure.panels.push(panel);
    figure.notes.push(format!(
        "{values} values, with DRAM for four. Bytes are of log, store and superblock, with a checkpoint at the end; the \
         first half is read back in order, by one client. The log has its blocks' padding in it."
    ));
    Ok(figure)
}
