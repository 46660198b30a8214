//! The figure `moving`: TPC-C while a large table beside it gets another layout, and back.

use super::devices::{CORES, Layout, Loaded, Machine, PAGE, load};
use super::measuring::Bench;
use super::targets::{MOVING, figure};
use crate::bench::beside::{self, Cell, Found, Size};
use crate::bench::cells::Judged;
use crate::bench::figure::Figure;
use crate::bench::made::Made;
use crate::bench::reads::rows::{self, Rows};
use crate::bench::simulation::simulate;
use firndb::Database;
use firndb_array::Code;
use firndb_base::sync::thread;
use firndb_console::Failure;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEMBERS: usize = 4;
/// The store's code and the table's at first, and what the table gets and gives up in turn.
const CODES: [(usize, usize); 2] = [(1, 2), (3, 4)];
const LOAD_BUFFER: u64 = 32 << 20;
/// Of TPC-C's pages.
const DRAM_PERCENT: u64 = 10;

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

/// Gives the table one layout after the other until `ended`.
fn move_back_and_forth(db: &Database, ended: &AtomicBool) -> Result<(), Failure> {
    let table = Rows::table(db)?;
    for number in 1.. {
        let code = code(number % CODES.len());
        db.set_layout(&table, firndb::Layout::fragments(code.needed(), code.written()))?;
        let moved = db.move_to_layouts(&mut |_, _| match ended.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        if !moved.complete {
            break;
        }
    }
    Ok(())
}

fn run(cell: &Cell, loaded: &Loaded<u64>, seed: u64) -> Result<Found, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(layout().options(loaded.what * DRAM_PERCENT / 100))?;
    let moved = || db.statistics().store.images_moved;
    let (before, ended) = (moved(), AtomicBool::new(false));
    machine.run_free(false);
    let found = thread::scope(|scope| {
        let (db, ended) = (&db, &ended);
        let mut mover = None;
        let tpcc = beside::run(db, cell.size.time, seed, &mut || {
            if cell.is_beside && mover.is_none() {
                mover = Some(scope.spawn(move || move_back_and_forth(db, ended)));
            }
            Ok(())
        });
        let moved_mb = (moved() - before) as f64 * PAGE as f64 / 1e6;
        ended.store(true, Ordering::Relaxed);
        let moving = if mover.is_some() { 1.0 } else { 0.0 };
        match mover.map(|mover| mover.join()) {
            None => {}
            Some(Ok(outcome)) => outcome?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
        Ok::<_, Failure>(Found { tpcc: tpcc?, moved_mb, moving })
    })?;
    machine.run_free(true);
    db.close()?;
    Ok(found)
}

/// The figure.
pub fn moving(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("moving");
    let (warehouses, bytes, millis) =
        bench.args.by_size((1, 4 << 20, 100), (5, 128 << 20, 1000), (20, 1 << 30, 4000));
    let size = Size { warehouses, bytes, time: Duration::from_millis(millis) };
    let least = beside::compare(&mut figure, ("array-moving", "a layout change"), size, |cell| {
        let (all, first) = (bench.with_table.clone(), bench.args.running.seed);
        bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
            let loaded = all.get(cell.size, || with_table(cell.size, first))?;
            let cell = cell.clone();
            Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed))?.0)
        })
    })?;
    match least {
        Some(least) => MOVING.judge(&mut figure, &least),
        None => MOVING.skip(&mut figure, "no page was moved in the time of the run"),
    }
    let [(a, b), (c, d)] = CODES;
    figure.notes.push(format!("From {a} of {b} to {c} of {d} and back until TPC-C ends."));
    Ok(figure)
}
