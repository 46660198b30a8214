//! One measurement of figure 6-1: synchronous operations of 16 KB on a file, for half a minute of
//! the drive's time, as in chapter 3 of the thesis: each part of the file at most once.

use crate::bench::cells::{Cellular, end_of};
use crate::bench::log::devices::Partition;
use crate::bench::made::Made;
use crate::bench::simulation::{emulated, simulate};
use firndb::{Database, Deltas, Devices, Hiding, Options, PageFile, Placement};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, Durability, Fill, MemoryDevice};
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CORES: usize = 4;
/// An operation, and a page of the database.
pub const OPERATION: usize = 16 << 10;
const LOG_BYTES: u64 = 128 << 20;
/// The whole page map.
const MAP_BYTES: usize = 4 << 20;
/// DRAM for pages, by pages of the file: the tree of the file, and hardly any of its pages.
const BUFFER_SHARE: u64 = 64;
const BUFFER_LEAST: u64 = 128;
const FILE: &str = "file";
const SETTLING: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// How the file has become what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Written in a random order, as in the thesis.
    Made,
    /// Then written over twice more, in other random orders.
    Worn,
    /// As `Made`, and compacted.
    Compacted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    InPlace,
    Firn { segments: bool },
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub profile: DeviceProfile,
    pub way: Way,
    pub kind: Kind,
    pub random: bool,
    pub state: State,
    /// Writes of one commit.
    pub each: u64,
    /// Operations that the file has space for.
    pub pages: u64,
    pub seconds: f64,
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        let order = if self.random { "random" } else { "sequential" };
        let kind = format!("{order} {:?}, {:?}, {} a commit", self.kind, self.state, self.each);
        format!("6-1, {:?}, {kind}", self.way).to_lowercase()
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub operations: u64,
    pub seconds: f64,
    /// Pages that cleaning moved meanwhile.
    pub moved: u64,
    /// Pages that compaction moved before.
    pub compacted: u64,
}

impl Found {
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// Devices of a database with a file: superblock, log, store; and what compaction moved.
pub struct Loaded([MemoryDevice; 3], u64);

/// By placement and state.
pub type AllLoaded = Made<(bool, State), Loaded>;

/// Numbers below `pages` in a random order.
fn permuted(pages: u64, rng: &mut Rng) -> Vec<u64> {
    let mut all: Vec<u64> = (0..pages).collect();
    (1..all.len()).rev().for_each(|at| all.swap(at, rng.below(at as u64 + 1) as usize));
    all
}

fn content(page: u64, generation: u64) -> Vec<u8> {
    let stamp = (page << 8 | generation).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    stamp.to_le_bytes().repeat(OPERATION / 8)
}

fn options(pages: u64, segments: bool) -> Options {
    let buffer = (pages / BUFFER_SHARE).max(BUFFER_LEAST) as usize * OPERATION;
    Options::new()
        .page_size(OPERATION)
        .buffer_bytes(buffer + MAP_BYTES)
        .recovery_time(Duration::MAX)
        .log(|log| log.devices(1).bytes(LOG_BYTES).hiding(Hiding::Off))
        .tuning(|tuning| {
            let placement = if segments { Placement::Segments } else { Placement::Threaded };
            tuning.map_bytes(MAP_BYTES).deltas(Deltas::Off).placement(placement)
        })
}

fn devices([superblock, log, store]: [Arc<dyn Device>; 3]) -> Devices {
    Devices { superblock, logs: vec![log], store, store_others: Vec::new(), cache: None }
}

/// Makes the file, which takes no time of the drive.
fn load(pages: u64, segments: bool, state: State, stop: &'static AtomicBool) -> Result<Loaded, Failure> {
    let body = move || {
        let all = ["superblock", "log", "store"].map(|name| Arc::new(MemoryDevice::new(name)));
        let on = all.each_ref().map(|device| device.clone() as Arc<dyn Device>);
        let db = options(pages, segments).create_on(devices(on))?;
        let (file, mut rng) = (db.create_page_file(FILE)?, Rng::new(7));
        let times = if state == State::Worn { 3 } else { 1 };
        for _ in 0..times {
            for page in permuted(pages, &mut rng) {
                check(stop)?;
                db.transact(|tx| tx.put_page(&file, page, &content(page, 0)))?;
                // What runs in the background beside writes that take no time.
                clock::sleep(Duration::from_micros(10));
            }
        }
        // Until the background has given back what is too much.
        db.checkpoint()?;
        clock::sleep(SETTLING);
        let mut moved = 0;
        if state == State::Compacted {
            moved = db.compact(&mut |_| ControlFlow::Continue(()))?.pages_copied;
        }
        db.close()?;
        Ok(Loaded(all.map(|device| device.duplicate()), moved))
    };
    Ok(simulate(1, CORES, body)?.0)
}

fn check(stop: &AtomicBool) -> Result<(), Failure> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::interrupted("stopped before all was measured")),
        false => Ok(()),
    }
}

/// The operations, in their order.
fn operations(cell: &Cell, seed: u64) -> Vec<u64> {
    if cell.random { permuted(cell.pages, &mut Rng::new(seed)) } else { (0..cell.pages).collect() }
}

pub fn run(cell: &Cell, loaded: &AllLoaded, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let Way::Firn { segments } = cell.way else { return in_place(cell, seed, stop) };
    let pages = cell.pages;
    let loaded = loaded.get((segments, cell.state), || load(pages, segments, cell.state, stop))?;
    let memories = loaded.0.iter().map(|device| Arc::new(device.duplicate())).collect();
    let (cell, compacted) = (cell.clone(), loaded.1);
    let body = move || {
        let parts = Partition::split(memories, &cell.profile, seed)?;
        let drive = parts[0].clone();
        drive.run_free(true);
        let parts = parts.into_iter().map(|part| part as Arc<dyn Device>).collect::<Vec<_>>();
        let parts = <[_; 3]>::try_from(parts).map_err(|_| Failure::new("three parts were asked for"))?;
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("profile.toml");
        cell.profile.save(&path).map_err(|error| Failure::new(error.to_string()))?;
        let options = options(cell.pages, segments).create(false).log(|log| log.profile(&path));
        let db = options.tuning(|tuning| tuning.store_profile(&path)).open_on(devices(parts))?;
        let file = db.page_file(FILE)?;
        drive.run_free(false);
        let mut found = by_firn(&cell, &db, &file, seed, stop)?;
        drive.run_free(true);
        found.compacted = compacted;
        db.close()?;
        Ok(found)
    };
    Ok(simulate(seed, CORES, body)?.0)
}

/// A write is a commit, or a part of one; when time is over a checkpoint brings to the drive what
/// the buffer and the page map have put off.
fn by_firn(
    cell: &Cell,
    db: &Database,
    file: &PageFile,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Found, Failure> {
    let moved = db.statistics().store.images_moved;
    let (began, mut done, mut image) = (clock::now(), 0, Vec::new());
    for some in operations(cell, seed).chunks(cell.each as usize) {
        check(stop)?;
        if began.elapsed().as_secs_f64() >= cell.seconds {
            break;
        }
        match cell.kind {
            Kind::Read => {
                for page in some {
                    db.snapshot().read_page_into(file, *page, &mut image)?;
                    if image != content(*page, 0) {
                        return Err(Failure::new(format!("page {page} is not what was written")));
                    }
                }
            }
            Kind::Write => db.transact(|tx| {
                some.iter().try_for_each(|page| tx.put_page(file, *page, &content(*page, 1)))
            })?,
        }
        done += some.len() as u64;
    }
    if cell.kind == Kind::Write {
        db.checkpoint()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let moved = db.statistics().store.images_moved - moved;
    Ok(Found { operations: done, seconds, moved, compacted: 0 })
}

/// The file has one place on the drive, and neither a log nor copies: what the file system of the
/// thesis does with a file that has its length.
fn in_place(cell: &Cell, seed: u64, stop: &'static AtomicBool) -> Result<Found, Failure> {
    let cell = cell.clone();
    let body = move || {
        let failed = |error: firndb_device::DeviceError| Failure::new(error.to_string());
        let memory = Arc::new(MemoryDevice::new("drive"));
        memory.grow(cell.pages * OPERATION as u64, Fill::Sparse).map_err(failed)?;
        let drive = emulated(memory, &cell.profile, seed)?;
        let (began, mut done, mut image) = (clock::now(), 0, vec![0; OPERATION]);
        for page in operations(&cell, seed) {
            check(stop)?;
            if began.elapsed().as_secs_f64() >= cell.seconds {
                break;
            }
            let offset = page * OPERATION as u64;
            match cell.kind {
                Kind::Read => drive.read(offset, &mut image).map_err(failed)?,
                Kind::Write => drive.write(offset, &content(page, 1), Durability::Durable).map_err(failed)?,
            }
            done += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        Ok(Found { operations: done, seconds, ..Found::default() })
    };
    Ok(simulate(seed, 1, body)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_emulate::profiles;

    static GOES_ON: AtomicBool = AtomicBool::new(false);

    fn cell(way: Way, kind: Kind, random: bool) -> Cell {
        let profile = profiles::get("myers-a").unwrap();
        Cell { profile, way, kind, random, state: State::Made, each: 1, pages: 600, seconds: 0.5 }
    }

    /// The times are those of the profile for 16 KiB.
    #[test]
    fn in_place_takes_what_the_drive_takes() {
        for (kind, random, ms) in [
            (Kind::Read, true, 0.847),
            (Kind::Read, false, 0.620),
            (Kind::Write, true, 46.343),
            (Kind::Write, false, 1.655),
        ] {
            let found = in_place(&cell(Way::InPlace, kind, random), 1, &GOES_ON).unwrap();
            let each = 1000.0 / found.rate();
            // The first is random in any case.
            assert!((0.98..1.2).contains(&(each / ms)), "{kind:?}, random {random}: {each} ms");
        }
    }

    #[test]
    fn firn_writes_at_random_many_times_faster_and_reads_what_was_written() {
        let loaded = AllLoaded::default();
        let rate = |kind, random| {
            let cell = cell(Way::Firn { segments: false }, kind, random);
            run(&cell, &loaded, 1, &GOES_ON).unwrap().rate()
        };
        let in_place = run(&cell(Way::InPlace, Kind::Write, true), &loaded, 1, &GOES_ON).unwrap().rate();
        assert!(rate(Kind::Write, true) > 3.0 * in_place, "{} {in_place}", rate(Kind::Write, true));
        assert!(rate(Kind::Read, false) > 100.0);
    }
}
