//! The figure `cleaner`: TPC-C while the background empties groups of the store, in virtual time.
//!
//! Of a large table beside TPC-C's nine rows in ten were deleted at random, and its small leaves
//! merged. What is left lies in groups that are mostly free. Beside: these are emptied while TPC-C
//! runs. Alone: they stay as they are. A snapshot is open in both.

use super::targets::{BESIDE, figure};
use super::{Bench, BenchSpace};
use crate::bench::array::devices::{CORES, Layout, Loaded, Machine, PAGE, load};
use crate::bench::beside::{self, Cell, Found, Size};
use crate::bench::cells::Judged;
use crate::bench::figure::Figure;
use crate::bench::made::Made;
use crate::bench::reads::rows::{self, Rows};
use crate::bench::simulation::simulate;
use firndb::{Database, Progress, Transaction};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_console::Failure;
use std::time::Duration;

const LOAD_BUFFER: u64 = 32 << 20;
/// Of TPC-C's pages.
const DRAM_PERCENT: u64 = 10;
/// Rows of a transaction that deletes.
const BATCH: u64 = 500;

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
                return Ok(pages * PAGE as u64);
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
    let snapshot = snapshot(&db, !cell.is_beside)?;
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
        moved_mb: copying.last.0.saturating_sub(before) as f64 * PAGE as f64 / 1e6,
        moving: (copying.last.1.as_secs_f64() / cell.size.time.as_secs_f64()).min(1.0),
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

/// The figure.
pub fn cleaner(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("cleaner");
    let titles = ("space-beside", "the emptying of groups");
    let least = beside::compare(&mut figure, titles, size(bench.args), |cell| {
        let (all, first) = (bench.sparse.clone(), bench.args.running.seed);
        bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
            let loaded = all.get(cell.size, || sparse(cell.size, first))?;
            let cell = cell.clone();
            Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed))?.0)
        })
    })?;
    match least {
        Some(least) => BESIDE.judge(&mut figure, &least),
        None => BESIDE.skip(&mut figure, "no page was copied in the time of the run"),
    }
    Ok(figure)
}
