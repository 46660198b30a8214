//! An index of random keys: built on a table, and inserted entry by entry.

use super::cell::Meter;
use super::grid::most;
use super::loads::{BATCH, Cell, Found, MEMORY, Made, VALUE, insert, measure, row, rows};
use super::machine::{CORES, Loaded, Machine, PAGE, SORT_BYTES};
use super::setting::Bench;
use super::targets::{self, BUILD_LOG, BUILD_SPEED};
use crate::bench::figure::{Figure, Panel};
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{IndexPart, IndexSpec, TableSpec};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use std::sync::atomic::AtomicBool;

/// Bytes of an index key.
const KEY: usize = 8;
const INDEX: &str = "by_value";

fn run(cell: &Cell, loaded: &Arc<Loaded>, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let (cell, loaded) = (cell.clone(), loaded.clone());
    let body = move || {
        let recovery = cell.recovery.unwrap_or_default();
        let machine = Machine::open(&loaded, &cell.profile, (MEMORY, recovery), seed)?;
        let db = &machine.db;
        machine.run_free(true);
        let rows = (0..cell.rows).map(|number| Ok(row(number, seed)));
        let table = db.load_table("rows", TableSpec::raw(), rows)?;
        db.checkpoint()?;
        machine.run_free(false);
        let pages = || db.statistics().store.pages_allocated;
        let (before, meter) = (pages(), Meter::new(&machine));
        if cell.recovery.is_some() {
            db.create_index(&table, IndexSpec::ranges(INDEX, false, vec![IndexPart::Value(0..KEY)]))?;
        } else {
            let entries = db.create_table("entries")?;
            insert(db, &entries, cell.rows, stop, |number| {
                let (key, value) = row(number, seed);
                ([&value[..KEY], &key[..]].concat(), Vec::new())
            })?;
        }
        db.checkpoint()?;
        let all = meter.read(&machine);
        let bytes = (pages() - before) as f64 * PAGE as f64;
        machine.run_free(true);
        if cell.recovery.is_some() {
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

/// Figure `build`.
pub fn figure(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = targets::figure("build");
    let mut panel =
        Panel::of_bars("pages-build", "An index built on a table", "drive, how", "over its pages");
    panel.drawn = false;
    let gains = measure(bench, Made::Index, &mut panel, run)?;
    BUILD_LOG.judge(&mut figure, &most(&gains.log_percent));
    BUILD_SPEED.judge(&mut figure, &Sampled::least(&gains.speed).unwrap_or_default());
    figure.panels.push(panel);
    figure.notes.push(format!(
        "An index of {KEY} random bytes of {} rows of {VALUE} bytes, entries sorted in {} KiB of memory and on the \
         same drive; inserted: its entries into an empty table, in the order of the rows, {BATCH} a transaction, with \
         nothing read. Each by one client, with a checkpoint at the end. Bytes are of log, store and superblock over \
         those of the index's pages; what is sorted on the drive is in the times alone.",
        rows(bench),
        SORT_BYTES >> 10
    ));
    Ok(figure)
}
