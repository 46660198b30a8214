//! The engine itself on simulated flash.

use super::cell::{Cell, Found, PAGE, Windows, Written, flash};
use super::work::{self, Goes};
use super::worlds::{CORES, Worlds, devices, drive_bytes, options};
use crate::bench::simulation::simulate;
use firndb::{Database, Deltas, Placement};
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::MemoryDevice;
use firndb_emulate::nand::NandDevice;
use firndb_tier::TierStatistics;
use std::sync::atomic::AtomicBool;

/// A moment of a run.
#[derive(Clone, Copy)]
struct Moment {
    commits: u64,
    written: Written,
    store: TierStatistics,
}

impl Moment {
    fn of(commits: u64, db: &Database, nand: &NandDevice) -> Moment {
        Moment { commits, written: Written::of(&nand.report()), store: db.statistics().store }
    }
}

/// Changed pages that the buffer gave down: what was written and is neither a move nor a merge, and
/// what was taken as a delta.
fn given(store: &TierStatistics) -> u64 {
    let own = store.images_moved + store.deltas_merged + store.deltas_merged_for_reads;
    (store.pages_written + store.deltas_taken).saturating_sub(own)
}

pub fn run(
    cell: &Cell,
    (segments, deltas): (bool, bool),
    worlds: &Worlds,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Found, Failure> {
    let recorded = worlds.recorded(cell.load, seed, stop)?;
    let bytes = drive_bytes(u64::midpoint(recorded.live.0, recorded.live.1), cell.percent)?;
    let loaded = worlds.loaded(cell.load, bytes)?.duplicate();
    let cell = cell.clone();
    let body = move || on_flash(&cell, (segments, deltas), loaded, bytes, (seed, stop));
    Ok(simulate(seed, CORES, body)?.0)
}

/// Both halves of the time before the measurement are without deltas and with them, if they are
/// measured: the flash has to be written often enough before, and deltas write less.
fn on_flash(
    cell: &Cell,
    (segments, deltas): (bool, bool),
    [superblock, log, store]: [Arc<MemoryDevice>; 3],
    bytes: u64,
    (seed, stop): (u64, &AtomicBool),
) -> Result<Found, Failure> {
    let failed = |error: firndb_device::DeviceError| Failure::new(error.to_string());
    let nand = Arc::new(NandDevice::new(store, flash(bytes)?).map_err(failed)?);
    let open = |deltas: bool| {
        let options = options(cell.extent.buffer_bytes).create(false).tuning(|tuning| {
            let tuning = tuning.deltas(if deltas { Deltas::On } else { Deltas::Off });
            tuning.placement(if segments { Placement::Segments } else { Placement::Threaded })
        });
        options.open_on(devices([superblock.clone(), log.clone()], nand.clone()))
    };
    let (mut warm, measured) = cell.extent.lengths(cell.load);
    if deltas {
        let first = warm / 2;
        let mut until = |commits: u64, _: &Database| Ok(if commits < first { Goes::On } else { Goes::Ends });
        // Other inputs than those that come afterwards.
        let inputs = (seed ^ 0xA5A5_0000, stop);
        work::work(cell.load, &cell.extent, open(false)?, inputs, &mut until)?.close()?;
        warm -= first;
    }
    let (mut before, mut after, mut windows): (_, _, Option<Windows>) = (None, None, None);
    let mut look = |commits: u64, db: &Database| {
        if commits < warm {
            return Ok(Goes::On);
        }
        match &mut windows {
            None => {
                let began = Moment::of(commits, db, &nand);
                (windows, before) = (Some(Windows::new(bytes, began.written)), Some(began));
            }
            Some(windows) => windows.note(Written::of(&nand.report())),
        }
        if commits < warm + measured {
            return Ok(Goes::On);
        }
        after = Some(Moment::of(commits, db, &nand));
        Ok(Goes::Ends)
    };
    work::work(cell.load, &cell.extent, open(deltas)?, (seed, stop), &mut look)?.close()?;
    let (Some(before), Some(after), Some(windows)) = (before, after, windows) else {
        return Err(Failure::new("nothing was measured"));
    };
    Ok(found(&before, &after, windows.found, bytes))
}

fn found(before: &Moment, after: &Moment, windows: Vec<f64>, bytes: u64) -> Found {
    let (host, programmed) = after.written.since(before.written).pages();
    let full = |moment: &Moment| (moment.store.pages_allocated * PAGE) as f64 / bytes as f64;
    let metadata = after.store.metadata_bytes_written - before.store.metadata_bytes_written;
    Found {
        transactions: after.commits - before.commits,
        given: given(&after.store) - given(&before.store),
        host,
        programmed,
        moved: after.store.images_moved - before.store.images_moved,
        metadata: metadata as f64 / PAGE as f64,
        windows,
        full: (full(before), full(after)),
        full_places: after.store.pages_allocated as f64 / after.store.places as f64,
        drive_bytes: bytes,
    }
}
