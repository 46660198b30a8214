//! The figure `cleaner`: TPC-C while the background empties groups of the store, in virtual time.
//!
//! Of a large table beside TPC-C's nine rows in ten were deleted at random, and its small leaves
//! merged. What is left lies in groups that are mostly free. Beside: these are emptied while TPC-C
//! runs. Alone: they stay as they are. A snapshot is open in both.

use super::targets::{BESIDE, figure};
use super::{Bench, BenchSpace};
use crate::bench::array::devices::{CORES, Layout, Loaded, Machine, load};
use crate::bench::beside;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::made::Made;
use crate::bench::reads::rows::{self, Rows};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{Database, Progress, Transaction};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const DRIVES: [&str; 3] = ["nvme", "sata-ssd", "network-volume"];
const LOAD_BUFFER: u64 = 32 << 20;
/// Of TPC-C's pages.
const DRAM_PERCENT: u64 = 10;
/// Rows of a transaction that deletes.
const BATCH: u64 = 500;
const PAGE_BYTES: u64 = 4096;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    size: Size,
    is_emptying: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    warehouses: u32,
    /// Of the table that loses rows.
    bytes: u64,
    time: Duration,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let beside = if self.is_emptying { "beside the cleaner" } else { "alone" };
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
    copied_mb: f64,
    /// Share of the run in which pages were copied.
    copying: f64,
}

/// Databases by size, with bytes of TPC-C's pages.
pub type AllSparse = Made<Size, Loaded<u64>>;

/// A snapshot, and if `holds` a dropped table that cannot be freed before the snapshot ends: until
/// then the background empties no groups.
fn snapshot(db: &Database, holds: bool) -> Result<Transaction, Failure> {
    const HELD: &str = "held";
    db.create_table(HELD)?;
    let mut snapshot = db.snapshot();
    // A snapshot begins with its first read.
    snapshot.get(&Rows::table(db)?, &rows::key(0))?;
    if holds {
        db.drop_table(HELD)?;
    }
    Ok(snapshot)
}

fn sparse(size: Size, seed: u64) -> Result<Loaded<u64>, Failure> {
    let layout = Layout::new(1, 1, 1);
    let options = layout.options(LOAD_BUFFER).background_threads(false);
    load(layout, options, seed, move |db| {
        let loaded = rows::load(db, size.bytes, |_| true)?;
        let before = db.statistics().store.pages_allocated;
        beside::load(db, size.warehouses, seed)?;
        let pages = db.statistics().store.pages_allocated - before;
        let (table, mut rng) = (Rows::table(db)?, Rng::new(seed));
        for from in (0..loaded.rows).step_by(BATCH as usize) {
            let chosen: Vec<u64> =
                (from..loaded.rows.min(from + BATCH)).filter(|_| rng.below(10) > 0).collect();
            db.transact(|tx| {
                chosen.iter().try_for_each(|row| tx.delete(&table, &rows::key(*row)).map(drop))?;
                Ok::<_, firndb::Error>(())
            })?;
        }
        // Groups are emptied once all leaves are swept and merged.
        db.checkpoint()?;
        while db.step()? == Progress::Worked {
            if db.statistics().store.images_moved > 0 {
                return Ok(pages * PAGE_BYTES);
            }
        }
        Err(Failure::new("all groups were emptied without copying a page: the table is too small"))
    })
}

/// When pages were copied.
#[derive(Default)]
struct Copying {
    began: Option<(Moment, u64)>,
    last: (u64, Duration),
}

impl Copying {
    fn look(&mut self, copied: u64) {
        let (began, _) = *self.began.get_or_insert((clock::now(), copied));
        if copied > self.last.0 {
            self.last = (copied, began.elapsed());
        }
    }
}

fn run(cell: &Cell, loaded: &Loaded<u64>, seed: u64) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(Layout::new(1, 1, 1).options(loaded.what * DRAM_PERCENT / 100))?;
    let snapshot = snapshot(&db, !cell.is_emptying)?;
    let mut copying = Copying::default();
    machine.run_free(false);
    let tpcc = beside::run(&db, cell.size.time, seed, &mut || {
        copying.look(db.statistics().store.images_moved);
        Ok(())
    })?;
    machine.run_free(true);
    drop(snapshot);
    let before = copying.began.map_or(0, |(_, copied)| copied);
    let found = Found {
        tpcc,
        copied_mb: (copying.last.0 - before) as f64 * PAGE_BYTES as f64 / 1e6,
        copying: (copying.last.1.as_secs_f64() / cell.size.time.as_secs_f64()).min(1.0),
    };
    db.close()?;
    Ok(found)
}

fn size(args: &BenchSpace) -> Size {
    let (warehouses, bytes, millis) = match (args.tiny, args.quick) {
        (true, _) => (1, 96 << 20, 100),
        (false, true) => (5, 256 << 20, 500),
        (false, false) => (20, 1 << 30, 2000),
    };
    Size { warehouses, bytes, time: Duration::from_millis(millis) }
}

fn measure(bench: &Bench, drive: &str, is_emptying: bool) -> Result<Measured<Found>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let cell = Cell { profile, size: size(bench.args), is_emptying };
    let (all, first) = (bench.sparse.clone(), bench.args.running.seed);
    bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
        let loaded = all.get(cell.size, || sparse(cell.size, first))?;
        let cell = cell.clone();
        Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed))?.0)
    })
}

/// The figure.
pub fn cleaner(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("cleaner");
    let title = "TPC-C beside the emptying of groups over TPC-C alone";
    let mut panel = Panel::of_bars("space-beside", title, "drive", "transactions a second over alone");
    panel.digits = 3;
    let mut raw = Panel::of_bars("space-beside-raw", "TPC-C alone and beside the cleaner", "drive", "");
    (raw.drawn, raw.digits) = (false, 2);
    let mut ratios = Vec::new();
    for (at, drive) in DRIVES.into_iter().enumerate() {
        let (alone, beside) = (measure(bench, drive, false)?, measure(bench, drive, true)?);
        let rate = |found: &Measured<Found>| found.value(|it| it.tpcc.per_second);
        let ratio = rate(&beside).over(&rate(&alone));
        panel.add("", Point::new(at as f64, drive, &ratio));
        // Where nothing was left to be copied, it says nothing.
        if beside.first().copied_mb > 0.0 {
            ratios.push(ratio);
        }
        let mut add = |series: &str, value: Sampled| raw.add(series, Point::new(at as f64, drive, &value));
        add("alone, a second", rate(&alone));
        add("beside", rate(&beside));
        add("alone, p99 ms", alone.value(|it| it.tpcc.p99_ms));
        add("beside, p99", beside.value(|it| it.tpcc.p99_ms));
        add("MB copied", beside.value(|it| it.copied_mb));
        add("share of the run that copies", beside.value(|it| it.copying));
        add("MB copied alone", alone.value(|it| it.copied_mb));
    }
    figure.panels.extend([panel, raw]);
    match Sampled::least(&ratios) {
        Some(least) => BESIDE.judge(&mut figure, &least),
        None => BESIDE.skip(&mut figure, "no page was copied in the time of the run"),
    }
    figure.notes.push("The worst of the drives counts. Latencies are of New-Orders.".into());
    Ok(figure)
}
