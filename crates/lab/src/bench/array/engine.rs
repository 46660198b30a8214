//! The figure `engine`: a table that is read and one that is written, over four devices of NAND
//! flash, simulated, under every single code, and each table under its own.
//!
//! Readers read single rows at random of a table of ten times DRAM, writers insert rows in
//! ascending order, and none sleeps. An operation is a page that is read because a row was asked
//! for, or a page that the store writes.

use super::auto;
use super::cell::codes;
use super::devices::{Layout, Loaded, Machine};
use super::measuring::Bench;
use super::simulator::MEMBERS;
use super::tables::{Size, WRITTEN, writer};
use super::targets::{AUTO_BEST, EACH_BEST, EACH_WORST, figure};
use crate::bench::cells::{Cellular, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::reads::rows::Rows;
use crate::bench::reads::work::{self, Length};
use crate::bench::sampled::Sampled;
use firndb::{Database, TableSpec};
use firndb_array::Code;
use firndb_base::clock;
use firndb_base::sync::thread;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DRIVE: &str = "myers-nand";
const WRITERS: u64 = 5;
const READERS: [u64; 3] = [5, 25, 50];
/// Codes of the table that is read and of the one that is written: those that are best for the one
/// and for the other where all tables have them, and what the thesis expects.
const EACH: [((usize, usize), (usize, usize)); 3] = [((2, 4), (1, 1)), ((2, 4), (4, 4)), ((1, 4), (4, 4))];

#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub layout: Layout,
    /// The code of the table that is written.
    pub written: Code,
    pub size: Size,
    pub readers: u64,
    pub time: Duration,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let layout = match self.layout.loaded {
            None => self.layout.name(),
            Some(read) => format!("{read} and {}", self.written),
        };
        format!("engine, {layout}, {} readers", self.readers)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// A second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub pages_read: f64,
    pub pages_written: f64,
}

impl Found {
    pub fn operations(&self) -> f64 {
        self.pages_read + self.pages_written
    }
}

pub fn run(
    cell: &Cell,
    loaded: &Loaded<Rows>,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(cell.layout.options(cell.size.buffer).recovery_time(Duration::MAX))?;
    let mut spec = TableSpec::raw();
    if cell.layout.loaded.is_some() {
        spec = spec.with_layout(firndb::Layout::fragments(cell.written.needed(), cell.written.written()));
    }
    db.create_table_with(WRITTEN, spec)?;
    let warm = Length { rows: 2 * cell.size.frames(), time: Duration::MAX, stop };
    work::many(&db, loaded.what, 64, seed + 1, warm)?;
    machine.run_free(false);
    let found = read_and_write(&db, loaded.what, (cell.readers, cell.time, 0), (seed, stop))?;
    machine.run_free(true);
    db.close()?;
    Ok(found)
}

/// Reads and writes for this time, once DRAM has filled with what is written: other rows each turn.
pub fn read_and_write(
    db: &Database,
    rows: Rows,
    (readers, time, turn): (u64, Duration, u64),
    (seed, stop): (u64, &'static AtomicBool),
) -> Result<Found, Failure> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let ended = &ended;
        let write = |number: u64| move || writer(db, number, u64::MAX, ended);
        let writers: Vec<_> =
            (0..WRITERS).map(|number| scope.spawn(write(turn * WRITERS + number))).collect();
        // DRAM fills with what is written first.
        clock::sleep(time / 4);
        let pages = || db.statistics().store.pages_written;
        let (before, began) = (pages(), clock::now());
        let read = Length { rows: u64::MAX, time, stop };
        let done = work::points(db, rows, readers, seed, read);
        let pages_written = (pages() - before) as f64 / began.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        for writer in writers {
            match writer.join() {
                Ok(written) => written?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(Found { pages_read: done?.missed_per_second(), pages_written })
    })
}

/// The drive, and for how long it is measured.
pub fn drive(bench: &Bench) -> Result<(DeviceProfile, Duration), Failure> {
    let mut profile = crate::tpcc::machine::profile(DRIVE)?;
    if bench.args.tiny {
        // The simulated flash is filled before each run.
        profile.capacity_bytes = 128 << 20;
    }
    Ok((profile, Duration::from_millis(bench.args.by_size(10, 100, 200))))
}

fn measure(
    bench: &Bench,
    (layout, written): (Layout, Code),
    readers: u64,
) -> Result<Measured<Found>, Failure> {
    let (profile, time) = drive(bench)?;
    let cell = Cell { profile, layout, written, size: bench.size(), readers, time };
    bench.over_rows(&cell, (cell.layout, cell.size), run)
}

/// The figure.
pub fn engine(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("engine");
    let title = "A table read and a table written over four chips: operations over the best single code's";
    let mut panel = Panel::of_bars("array-engine", title, "code", "over the best");
    panel.digits = 3;
    let title = "Pages a second";
    let mut raw = Panel::of_bars("array-engine-raw", title, "code", "a second");
    raw.drawn = false;
    let (mut over_best, mut over_worst, mut over_auto) = (Vec::new(), Vec::new(), Vec::new());
    for &readers in &READERS[..bench.args.by_size(1, READERS.len(), READERS.len())] {
        let mut all = Vec::new();
        for code in codes() {
            all.push((code, measure(bench, (Layout::of(code, MEMBERS), code), readers)?));
        }
        let operations: Vec<Sampled> = all.iter().map(|(_, found)| found.value(Found::operations)).collect();
        let best = Sampled::most(&operations).unwrap_or_default();
        let worst = Sampled::least(&operations).unwrap_or_default();
        for (at, ((code, found), operations)) in all.iter().zip(&operations).enumerate() {
            let point = |value: &Sampled| Point::new(at as f64, code.to_string(), value);
            panel.add(&format!("{readers} readers"), point(&operations.over(&best)));
            raw.add(&format!("read, {readers} readers"), point(&found.value(|it| it.pages_read)));
            raw.add(&format!("written, {readers} readers"), point(&found.value(|it| it.pages_written)));
        }
        let mut each = Vec::new();
        for (at, (read, written)) in (all.len()..).zip(EACH) {
            let (read, written) = (code(read), code(written));
            let found = measure(bench, (Layout::each(written, read, MEMBERS), written), readers)?;
            let operations = found.value(Found::operations);
            let point = |value: &Sampled| Point::new(at as f64, format!("{read}, {written}"), value);
            panel.add(&format!("{readers} readers"), point(&operations.over(&best)));
            raw.add(&format!("read, {readers} readers"), point(&found.value(|it| it.pages_read)));
            raw.add(&format!("written, {readers} readers"), point(&found.value(|it| it.pages_written)));
            each.push(operations);
        }
        for (at, begun) in (all.len() + EACH.len()..).zip(auto::BEGUN) {
            let found = auto::measure(bench, code(begun), readers)?;
            let operations = found.value(auto::Found::operations);
            let point =
                |value: &Sampled| Point::new(at as f64, format!("auto, {} at first", code(begun)), value);
            panel.add(&format!("{readers} readers"), point(&operations.over(&best)));
            raw.add(&format!("read, {readers} readers"), point(&found.value(|it| it.found.pages_read)));
            raw.add(&format!("written, {readers} readers"), point(&found.value(|it| it.found.pages_written)));
            raw.add(&format!("layouts chosen, {readers} readers"), point(&found.value(|it| it.changes)));
            for (table, (needed, written)) in [("read", (0, 1)), ("written", (2, 3))] {
                let part = |at: usize| found.value(move |it: &auto::Found| it.codes[at]);
                raw.add(&format!("{table}: needed, {readers} readers"), point(&part(needed)));
                raw.add(&format!("{table}: fragments, {readers} readers"), point(&part(written)));
            }
            over_auto.push(operations.over(&best));
        }
        let operations = Sampled::most(&each).unwrap_or_default();
        figure.notes.push(format!(
            "{readers} readers, {WRITERS} writers: the best single code does {} times the worst; a code for each table \
             does {} times the best single one.",
            best.over(&worst).summary().text(2),
            operations.over(&best).summary().text(2)
        ));
        over_best.push(operations.over(&best));
        over_worst.push(operations.over(&worst));
    }
    figure.panels.extend([panel, raw]);
    EACH_BEST.judge(&mut figure, &Sampled::least(&over_best).unwrap_or_default());
    EACH_WORST.judge(&mut figure, &Sampled::least(&over_worst).unwrap_or_default());
    AUTO_BEST.judge(&mut figure, &Sampled::least(&over_auto).unwrap_or_default());
    Ok(figure)
}

fn code((needed, written): (usize, usize)) -> Code {
    Code::new(needed, written).expect("it is a code")
}
