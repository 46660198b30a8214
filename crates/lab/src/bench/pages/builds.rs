//! An index of random keys: built on a table, and inserted entry by entry.

use super::cell::{MODES, Meter, Step};
use super::grid::most;
use super::loads::{VALUE, row};
use super::machine::{CORES, Loaded, Machine, Memory, PAGE, SORT_BYTES};
use super::setting::{Bench, Shown, VERSION_BYTES};
use super::targets::{self, BUILD_LOG, BUILD_SPEED};
use super::values::FILE_PAGES;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{Error, IndexPart, IndexSpec, PageRecovery, TableSpec};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of an index key.
const KEY: usize = 8;
const ROWS: u64 = 100_000;
const ROWS_QUICK: u64 = 20_000;
/// Entries of one transaction of inserts.
const BATCH: u64 = 1000;
const INDEX: &str = "by_value";
/// A fifth of the table's pages.
const MEMORY: Memory = Memory { buffer: 640, private: 256, version_bytes: VERSION_BYTES };

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    /// `None`: entries are inserted, in the order of the rows.
    building: Option<PageRecovery>,
    rows: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Found {
    /// With a checkpoint at the end.
    all: Step,
    /// Of the index's pages.
    bytes: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let how =
            self.building.map_or("inserted".to_owned(), |mode| format!("built, {mode:?}").to_lowercase());
        format!("{}, an index of {} rows {how}", self.profile.name, self.rows)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

fn run(cell: &Cell, loaded: &Arc<Loaded>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let recovery = cell.building.unwrap_or_default();
        let machine = Machine::open(&loaded, &cell.profile, (MEMORY, recovery), seed)?;
        let db = &machine.db;
        machine.run_free(true);
        let rows = (0..cell.rows).map(|number| Ok(row(number, seed)));
        let table = db.load_table("rows", TableSpec::raw(), rows)?;
        db.checkpoint()?;
        machine.run_free(false);
        let pages = || db.statistics().store.pages_allocated;
        let (before, meter) = (pages(), Meter::new(&machine));
        if cell.building.is_some() {
            db.create_index(&table, IndexSpec::ranges(INDEX, false, vec![IndexPart::Value(0..KEY)]))?;
        } else {
            let entries = db.create_table("entries")?;
            for first in (0..cell.rows).step_by(BATCH as usize) {
                if stop.load(Ordering::Relaxed) {
                    return Err(Failure::interrupted("stopped before all was measured"));
                }
                db.transact(|tx| {
                    (first..cell.rows.min(first + BATCH)).try_for_each(|number| {
                        let (key, value) = row(number, seed);
                        tx.insert(&entries, &[&value[..KEY], &key[..]].concat(), &[])?;
                        Ok::<_, Error>(())
                    })
                })?;
            }
        }
        db.checkpoint()?;
        let all = meter.read(&machine);
        let bytes = (pages() - before) as f64 * PAGE as f64;
        machine.run_free(true);
        if cell.building.is_some() {
            let report = db.check(&mut |_| {})?;
            if !report.is_clean() || report.rows != cell.rows {
                return Err(Failure::new(format!("the index is not whole: {:?}", report.damage)));
            }
        }
        drop(table);
        machine.close()?;
        Ok(Found { all, bytes })
    };
    Ok(simulate(seed, CORES, body)?.0)
}

/// What is shown, with the bytes over those of the index's pages.
const SHOWN: [Shown<Found>; 4] = [
    ("pages, MB", |found| found.bytes / 1e6),
    ("log, %", |found| found.all.log.write_bytes as f64 / found.bytes * 100.0),
    ("to the drive, %", |found| found.all.all().write_bytes as f64 / found.bytes * 100.0),
    ("ms", |found| found.all.seconds * 1e3),
];

/// Figure `build`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("build");
    let mut panel =
        Panel::of_bars("pages-build", "An index built on a table", "drive, how", "over its pages");
    panel.drawn = false;
    let rows = if bench.args.quick { ROWS_QUICK } else { ROWS };
    let (mut log, mut speed) = (Vec::new(), Vec::new());
    let mut place = 0.0;
    for profile in &bench.drives {
        let mut measure = |how: &str, building: Option<PageRecovery>| -> Result<Measured<Found>, Failure> {
            let cell = Cell { profile: profile.clone(), building, rows };
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
                log.push(found.value(SHOWN[1].1));
                let seconds = |found: &Found| found.all.seconds;
                speed.push(inserted.value(seconds).over(&found.value(seconds)));
            }
        }
    }
    BUILD_LOG.judge(&mut figure, &most(&log));
    BUILD_SPEED.judge(&mut figure, &Sampled::least(&speed).unwrap_or_default());
    figure.panels.push(panel);
    figure.notes.push(format!(
        "An index of {KEY} random bytes of {rows} rows of {VALUE} bytes, entries sorted in {} KiB of memory and on the \
         same drive; inserted: its entries into an empty table, in the order of the rows, {BATCH} a transaction, with \
         nothing read. Each by one client, with a checkpoint at the end. Bytes are of log, store and superblock over \
         those of the index's pages; what is sorted on the drive is in the times alone.",
        SORT_BYTES >> 10
    ));
    Ok(figure)
}
