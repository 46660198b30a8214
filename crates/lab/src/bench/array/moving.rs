//! The figure `moving`: TPC-C while a large table beside it gets another layout, and back.

use super::devices::{CORES, Layout, Loaded, Machine, PAGE, load};
use super::measuring::Bench;
use super::targets::{MOVING, figure};
use crate::bench::beside;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::made::Made;
use crate::bench::reads::rows::{self, Rows};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::Database;
use firndb_array::Code;
use firndb_base::clock;
use firndb_base::sync::thread;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DRIVES: [&str; 3] = ["nvme", "sata-ssd", "network-volume"];
const MEMBERS: usize = 4;
/// The store's code and the table's at first, and what the table gets and gives up in turn.
const CODES: [(usize, usize); 2] = [(1, 2), (3, 4)];
const LOAD_BUFFER: u64 = 32 << 20;
/// Of TPC-C's pages.
const DRAM_PERCENT: u64 = 10;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    size: Size,
    is_moving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    warehouses: u32,
    /// Of the table that is moved.
    bytes: u64,
    time: Duration,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let beside = if self.is_moving { "beside moving" } else { "alone" };
        format!("TPC-C {beside}, {}", self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Found {
    #[serde(flatten)]
    tpcc: beside::Rate,
    /// Pages of the table that got another layout, a second.
    moved_mb_s: f64,
    /// Layouts that all of the table got.
    layouts: u64,
}

/// Databases by size, with bytes of TPC-C's pages.
pub type AllWithTable = Made<Size, Loaded<u64>>;

fn code(number: usize) -> Code {
    let (needed, written) = CODES[number];
    Code::new(needed, written).expect("it is a code")
}

fn layout() -> Layout {
    Layout::each(code(0), code(1), MEMBERS)
}

fn with_table(size: Size, seed: u64) -> Result<Loaded<u64>, Failure> {
    load(layout(), layout().options(LOAD_BUFFER), seed, move |db| {
        rows::load(db, size.bytes, |_| true)?;
        let before = db.statistics().store.pages_allocated;
        beside::load(db, size.warehouses, seed)?;
        let pages = db.statistics().store.pages_allocated - before;
        // There and back: free places of both layouts, so that no run begins by growing the store.
        for (needed, written) in [CODES[1], CODES[0]] {
            db.set_layout(&Rows::table(db)?, firndb::Layout::fragments(needed, written))?;
            db.move_to_layouts(&mut |_, _| ControlFlow::Continue(()))?;
        }
        db.checkpoint()?;
        Ok(pages * PAGE as u64)
    })
}

/// Gives the table one layout after the other until `ended`; returns how many it got whole.
fn move_back_and_forth(db: &Database, ended: &AtomicBool) -> Result<u64, Failure> {
    let table = Rows::table(db)?;
    for layouts in 0.. {
        let code = code((layouts as usize + 1) % CODES.len());
        db.set_layout(&table, firndb::Layout::fragments(code.needed(), code.written()))?;
        let moved = db.move_to_layouts(&mut |_, _| match ended.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        if !moved.complete {
            return Ok(layouts);
        }
    }
    Ok(0)
}

fn run(cell: &Cell, loaded: &Loaded<u64>, seed: u64) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(layout().options(loaded.what * DRAM_PERCENT / 100))?;
    let moved = || db.statistics().store.images_moved;
    let ended = AtomicBool::new(false);
    machine.run_free(false);
    let found = thread::scope(|scope| {
        let (db, ended) = (&db, &ended);
        let (mut mover, mut began) = (None, None);
        let tpcc = beside::run(db, cell.size.time, seed, &mut || {
            if cell.is_moving && mover.is_none() {
                began = Some((clock::now(), moved()));
                mover = Some(scope.spawn(move || move_back_and_forth(db, ended)));
            }
            Ok(())
        });
        let moved_mb_s = began.map_or(0.0, |(began, before)| {
            (moved() - before) as f64 * PAGE as f64 / 1e6 / began.elapsed().as_secs_f64()
        });
        ended.store(true, Ordering::Relaxed);
        let layouts = match mover.map(|mover| mover.join()) {
            None => 0,
            Some(Ok(layouts)) => layouts?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        };
        Ok::<_, Failure>(Found { tpcc: tpcc?, moved_mb_s, layouts })
    })?;
    machine.run_free(true);
    db.close()?;
    Ok(found)
}

fn measure(bench: &Bench, drive: &str, is_moving: bool) -> Result<Measured<Found>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let (warehouses, bytes, millis) =
        bench.args.by_size((1, 4 << 20, 100), (5, 128 << 20, 1000), (20, 1 << 30, 4000));
    let size = Size { warehouses, bytes, time: Duration::from_millis(millis) };
    let (all, first) = (bench.with_table.clone(), bench.args.running.seed);
    bench.cells.of(&Cell { profile, size, is_moving }, Judged::Yes, move |cell, seed| {
        let loaded = all.get(cell.size, || with_table(cell.size, first))?;
        let cell = cell.clone();
        Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed))?.0)
    })
}

/// The figure.
pub fn moving(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("moving");
    let title = "TPC-C while a table's pages get another layout, over TPC-C alone";
    let mut panel = Panel::of_bars("array-moving", title, "drive", "transactions a second over alone");
    panel.digits = 3;
    let mut raw = Panel::of_bars("array-moving-raw", "TPC-C alone and beside moving", "drive", "");
    (raw.drawn, raw.digits) = (false, 2);
    let mut ratios = Vec::new();
    for (at, drive) in DRIVES.into_iter().enumerate() {
        let (alone, beside) = (measure(bench, drive, false)?, measure(bench, drive, true)?);
        let rate = |found: &Measured<Found>| found.value(|it| it.tpcc.per_second);
        let ratio = rate(&beside).over(&rate(&alone));
        panel.add("", Point::new(at as f64, drive, &ratio));
        ratios.push(ratio);
        let mut add = |series: &str, value: Sampled| raw.add(series, Point::new(at as f64, drive, &value));
        add("alone, a second", rate(&alone));
        add("beside", rate(&beside));
        add("alone, p99 ms", alone.value(|it| it.tpcc.p99_ms));
        add("beside, p99", beside.value(|it| it.tpcc.p99_ms));
        add("MB moved a second", beside.value(|it| it.moved_mb_s));
        add("layouts that the table got whole", beside.value(|it| it.layouts as f64));
    }
    figure.panels.extend([panel, raw]);
    MOVING.judge(&mut figure, &Sampled::least(&ratios).unwrap_or_default());
    let [(a, b), (c, d)] = CODES;
    figure.notes.push(format!(
        "From {a} of {b} to {c} of {d} and back until TPC-C ends. The worst of the drives counts. Latencies are of \
         New-Orders."
    ));
    Ok(figure)
}
