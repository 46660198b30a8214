//! A table of sorted rows: loaded with it, and inserted.

use super::cell::{MODES, Meter, Step};
use super::grid::most;
use super::machine::{CORES, Loaded, Machine, Memory, PAGE};
use super::setting::{Bench, OverFile, Shown, VERSION_BYTES};
use super::targets::{self, LOAD_BYTES, LOAD_LOG, LOAD_SPEED};
use super::values::FILE_PAGES;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{Database, Error, PageRecovery, Table, TableSpec};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: u64 = 100_000;
const ROWS_QUICK: u64 = 20_000;
/// Bytes of a row's value.
pub const VALUE: usize = 100;
/// Rows of one transaction of inserts.
pub const BATCH: u64 = 1000;
/// A fifth of the table's pages.
pub const MEMORY: Memory = Memory { buffer: 640, private: 256, version_bytes: VERSION_BYTES };

/// Something made of rows by the engine as a whole, or by inserts.
#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub made: Made,
    /// `None`: by inserts, in the order of the rows.
    pub recovery: Option<PageRecovery>,
    pub rows: u64,
}

/// What is made.
#[derive(Clone, Copy, Debug)]
pub enum Made {
    Table,
    Index,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// With a checkpoint at the end.
    pub all: Step,
    /// Of the pages made.
    pub bytes: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let (what, made) = match self.made {
            Made::Table => ("rows", "loaded"),
            Made::Index => ("index entries", "built"),
        };
        let how =
            self.recovery.map_or("inserted".to_owned(), |mode| format!("{made}, {mode:?}").to_lowercase());
        format!("{}, {} {what} {how}", self.profile.name, self.rows)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// Bytes of log and to the drive over those of the pages made, and how much faster than by inserts,
/// of the default mode on each drive.
#[derive(Default)]
pub struct Gains {
    pub log_percent: Vec<Sampled>,
    pub drive: Vec<Sampled>,
    pub speed: Vec<Sampled>,
}

/// Measures it in every mode on every drive, beside inserts.
pub fn measure(bench: &Bench, made: Made, panel: &mut Panel, run: OverFile<Cell>) -> Result<Gains, Failure> {
    let (mut gains, mut place) = (Gains::default(), 0.0);
    for profile in &bench.drives {
        let mut measure = |how: &str, recovery: Option<PageRecovery>| -> Result<Measured<Found>, Failure> {
            let cell = Cell { profile: profile.clone(), made, recovery, rows: rows(bench) };
            let found = bench.over_file(&cell, (FILE_PAGES, Judged::Yes), run)?;
            for (name, of) in SHOWN {
                panel.add(name, Point::new(place, format!("{}, {how}", profile.name), &found.value(of)));
            }
            place += 1.0;
            Ok(found)
        };
        let inserted = measure("inserted", None)?;
        for (mode, recovery) in MODES {
            let found = measure(mode, Some(recovery))?;
            if mode == "adaptive" {
                gains.log_percent.push(found.value(SHOWN[1].1));
                gains.drive.push(found.value(SHOWN[2].1).map(|percent| percent / 100.0));
                let seconds = |found: &Found| found.all.seconds;
                gains.speed.push(inserted.value(seconds).over(&found.value(seconds)));
            }
        }
    }
    Ok(gains)
}

pub fn rows(bench: &Bench) -> u64 {
    if bench.args.quick { ROWS_QUICK } else { ROWS }
}

pub fn row(number: u64, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(seed << 32 | number);
    let value = (0..VALUE.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(VALUE).collect();
    (number.to_be_bytes().to_vec(), value)
}

fn run(cell: &Cell, loaded: &Arc<Loaded>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let recovery = cell.recovery.unwrap_or_default();
        let machine = Machine::open(&loaded, &cell.profile, (MEMORY, recovery), seed)?;
        let db = &machine.db;
        let pages = || db.statistics().store.pages_allocated;
        let (before, meter) = (pages(), Meter::new(&machine));
        if cell.recovery.is_some() {
            db.load_table("rows", TableSpec::raw(), (0..cell.rows).map(|number| Ok(row(number, seed))))?;
        } else {
            let table = db.create_table("rows")?;
            insert(db, &table, cell.rows, stop, |number| row(number, seed))?;
        }
        db.checkpoint()?;
        let all = meter.read(&machine);
        let bytes = (pages() - before) as f64 * PAGE as f64;
        machine.run_free(true);
        let (table, mut tx) = (db.table("rows")?, db.snapshot());
        for number in (0..cell.rows).step_by(997) {
            let (key, value) = row(number, seed);
            if tx.get(&table, &key)?.as_deref() != Some(&value[..]) {
                return Err(Failure::new(format!("row {number} is not what was loaded")));
            }
        }
        drop((tx, table));
        machine.close()?;
        Ok(Found { all, bytes })
    };
    Ok(simulate(seed, CORES, body)?.0)
}

/// Inserts rows, some a transaction.
pub fn insert(
    db: &Database,
    table: &Table,
    rows: u64,
    stop: &AtomicBool,
    row: impl Fn(u64) -> (Vec<u8>, Vec<u8>),
) -> Result<(), Failure> {
    for first in (0..rows).step_by(BATCH as usize) {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        db.transact(|tx| {
            (first..rows.min(first + BATCH)).try_for_each(|number| {
                let (key, value) = row(number);
                tx.insert(table, &key, &value)?;
                Ok::<_, Error>(())
            })
        })?;
    }
    Ok(())
}

/// What is shown, with the bytes over those of the pages made.
const SHOWN: [Shown<Found>; 4] = [
    ("pages, MB", |found| found.bytes / 1e6),
    ("log, %", |found| found.all.log.write_bytes as f64 / found.bytes * 100.0),
    ("to the drive, %", |found| found.all.all().write_bytes as f64 / found.bytes * 100.0),
    ("ms", |found| found.all.seconds * 1e3),
];

/// Figure `load`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("load");
    let mut panel = Panel::of_bars("pages-load", "A table of sorted rows", "drive, how", "over its pages");
    panel.drawn = false;
    let gains = measure(bench, Made::Table, &mut panel, run)?;
    LOAD_LOG.judge(&mut figure, &most(&gains.log_percent));
    LOAD_BYTES.judge(&mut figure, &most(&gains.drive));
    LOAD_SPEED.judge(&mut figure, &Sampled::least(&gains.speed).unwrap_or_default());
    figure.panels.push(panel);
    figure.notes.push(format!(
        "{} rows of {VALUE} bytes and a key of 8, by one client, inserts by {BATCH} a transaction; with a checkpoint at \
         the end. Bytes are of log, store and superblock over those of the table's pages.",
        rows(bench)
    ));
    Ok(figure)
}
