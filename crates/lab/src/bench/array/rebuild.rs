//! The figure `rebuild`: a lost member is replaced, and filled from the others.
//!
//! Alone: a store of which half of the pages were given back, the new device beside its own
//! sequential writes. Beside TPC-C: one member after the other is replaced while it runs, so that
//! some member is being filled all the time.

use super::devices::{CORES, Layout, Loaded, Machine, Member, PAGE};
use super::measuring::{Bench, DRIVES};
use super::rebuild_loads::{come_to_rest, half_full, load_tpcc};
use super::tables::Size;
use super::targets::{REBUILD_BESIDE, REBUILD_RATE, REBUILD_UNUSED, figure};
use crate::bench::beside;
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::reads::raw::Raw;
use crate::bench::sampled::Sampled;
use crate::bench::simulation::simulate;
use firndb::{Database, StoreMemberState};
use firndb_array::Shape;
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_console::Failure;
use firndb_device::{Device, Fill, MemoryDevice};
use firndb_profile::{DeviceProfile, VariantName};
use firndb_tier::store;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const CODES: [(usize, usize); 2] = [(1, 2), (3, 4)];
/// Drives of TPC-C.
const BESIDE: [&str; 2] = ["sata-ssd", "network-volume"];
const MEMBERS: usize = 4;
/// The member that is lost.
const LOST: usize = 1;
/// Of TPC-C's database.
const DRAM_PERCENT: u64 = 5;

#[derive(Clone, Debug)]
struct Alone {
    profile: DeviceProfile,
    layout: Layout,
    size: Size,
}

impl Cellular for Alone {
    type Found = Filled;

    fn name(&self) -> String {
        format!("rebuild, {}, {}", self.layout.name(), self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Alone> {
        Some(Alone { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// How a new device was filled.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Filled {
    seconds: f64,
    written_bytes: u64,
    /// Of the copies of metadata that it has, and its label.
    metadata_bytes: u64,
    /// Pages in use, and all places that the store has.
    pages: u64,
    places: u64,
    groups: u64,
    /// Of the new device alone.
    sequential_mb_s: f64,
}

impl Filled {
    fn mb_s(&self) -> f64 {
        self.written_bytes as f64 / 1e6 / self.seconds
    }

    /// Fragments written beyond those of pages in use. How many of these a member has is known to
    /// one fragment a group.
    fn unused(&self, layout: Layout) -> f64 {
        let fragment = layout.bytes_of_page() / layout.code.written() as f64;
        let written = (self.written_bytes.saturating_sub(self.metadata_bytes)) as f64 / fragment;
        let share = layout.code.written() as f64 / layout.members as f64;
        (written - self.pages as f64 * share - self.groups as f64).max(0.0).floor()
    }
}

/// Bytes of metadata that a member of the array has, with both copies of its label.
fn metadata_bytes(shape: &Shape, layout: Layout, member: usize, groups: u64) -> u64 {
    let holds =
        |first: usize| (0..=layout.code.spare()).any(|copy| (first + copy) % layout.members == member);
    let before = if holds(0) { shape.groups_start } else { 0 };
    let held = (0..groups).filter(|group| holds((group % layout.members as u64) as usize)).count();
    before + held as u64 * shape.places_start + 2 * 512
}

fn fill_alone(
    cell: &Alone,
    loaded: &Loaded<()>,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<Filled, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(cell.layout.options(cell.size.buffer).background_threads(false))?;
    come_to_rest(&db)?;
    let new = Member::new(Arc::new(MemoryDevice::new("new")), &cell.profile, seed + 100)?;
    machine.run_free(false);
    let began = clock::now();
    db.replace_store_device_on(LOST, new.counted.clone())?;
    while db.fill_store_device()? {}
    let seconds = began.elapsed().as_secs_f64();
    machine.run_free(true);
    new.timed.run_free(true);
    let shape =
        store::shape(PAGE, store::Layout::default()).map_err(|error| Failure::new(error.to_string()))?;
    let statistics = db.statistics();
    let groups = (statistics.store_device.1 - shape.groups_start) / shape.group_bytes;
    let found = Filled {
        seconds,
        written_bytes: new.counted.snapshot().writes.bytes,
        metadata_bytes: metadata_bytes(&shape, cell.layout, LOST, groups),
        pages: statistics.store.pages_allocated,
        places: groups * shape.places,
        groups,
        sequential_mb_s: sequential_mb_s(&cell.profile, seed, stop)?,
    };
    assert!(db.store_array().is_some_and(|it| !it.is_degraded()), "the new device is whole");
    db.close()?;
    Ok(found)
}

/// The rate of sequential writes of an empty device.
fn sequential_mb_s(profile: &DeviceProfile, seed: u64, stop: &'static AtomicBool) -> Result<f64, Failure> {
    let device = Member::new(Arc::new(MemoryDevice::new("raw")), profile, seed)?.timed;
    let bytes = 256 << 20;
    device.grow(bytes, Fill::Sparse).map_err(|error| Failure::new(error.to_string()))?;
    let raw = Raw { device, bytes, stop };
    Ok(raw.sequential_writes(Duration::from_secs(1), seed)?.bytes_per_second / 1e6)
}

fn alone(bench: &Bench, drive: &str, layout: Layout) -> Result<Measured<Filled>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let (size, stop, all, first) =
        (bench.size(), bench.cells.stop(), bench.half_full.clone(), bench.args.running.seed);
    bench.cells.of(&Alone { profile, layout, size }, Judged::Yes, move |cell, seed| {
        let loaded = all.get((cell.layout, size.buffer), || half_full(cell.layout, size, first))?;
        let cell = cell.clone();
        Ok(simulate(seed, CORES, move || fill_alone(&cell, &loaded, seed, stop))?.0)
    })
}

#[derive(Clone, Debug)]
struct Beside {
    profile: DeviceProfile,
    layout: Layout,
    warehouses: u32,
    is_rebuilding: bool,
    time: Duration,
}

impl Cellular for Beside {
    type Found = BesideFound;

    fn name(&self) -> String {
        let rebuilding = if self.is_rebuilding { "beside rebuilding" } else { "alone" };
        let (layout, warehouses) = (self.layout.name(), self.warehouses);
        format!("TPC-C {rebuilding}, {warehouses} warehouses, {layout}, {}", self.profile.name)
    }

    fn at_end(&self, end: VariantName) -> Option<Beside> {
        Some(Beside { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct BesideFound {
    #[serde(flatten)]
    tpcc: beside::Rate,
    /// Devices that were put into a member's place, and megabytes that were written to them.
    replaced: u64,
    filled_mb: f64,
}

/// Replaces one member after the other.
struct Replacing<'a> {
    db: &'a Database,
    cell: &'a Beside,
    seed: u64,
    devices: Vec<Member>,
}

impl Replacing<'_> {
    /// Begins with the next member if none is being filled.
    fn go_on(&mut self) -> Result<(), Failure> {
        let array = self.db.store_array().expect("the store is an array");
        if array.devices.iter().any(|device| device.state != StoreMemberState::InUse) {
            return Ok(());
        }
        let number = self.devices.len();
        let memory = Arc::new(MemoryDevice::new(&format!("new.{number}")));
        let new = Member::new(memory, &self.cell.profile, self.seed + 100 + number as u64)?;
        self.db.replace_store_device_on((LOST + number) % MEMBERS, new.counted.clone())?;
        self.devices.push(new);
        Ok(())
    }
}

fn run_beside(cell: &Beside, loaded: &Loaded<u64>, seed: u64) -> Result<BesideFound, Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let db = machine.open(cell.layout.options(loaded.what * DRAM_PERCENT / 100))?;
    let mut replacing = Replacing { db: &db, cell, seed, devices: Vec::new() };
    machine.run_free(false);
    let tpcc = beside::run(&db, cell.time, seed, &mut || match cell.is_rebuilding {
        true => replacing.go_on(),
        false => Ok(()),
    })?;
    machine.run_free(true);
    replacing.devices.iter().for_each(|device| device.timed.run_free(true));
    let written = |device: &Member| device.counted.snapshot().writes.bytes as f64 / 1e6;
    let found = BesideFound {
        tpcc,
        replaced: replacing.devices.len() as u64,
        filled_mb: replacing.devices.iter().map(written).sum(),
    };
    db.close()?;
    Ok(found)
}

fn beside_cell(
    bench: &Bench,
    drive: &str,
    layout: Layout,
    is_rebuilding: bool,
) -> Result<Measured<BesideFound>, Failure> {
    let profile = crate::tpcc::machine::profile(drive)?;
    let (warehouses, seconds) = bench.args.by_size((2, 0.2), (10, 2.0), (20, 5.0));
    let time = Duration::from_secs_f64(seconds);
    let cell = Beside { profile, layout, warehouses, is_rebuilding, time };
    let (all, first) = (bench.tpcc.clone(), bench.args.running.seed);
    bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
        let loaded = all.get((cell.layout, warehouses), || load_tpcc(cell.layout, warehouses, first))?;
        let cell = cell.clone();
        Ok(simulate(seed, CORES, move || run_beside(&cell, &loaded, seed))?.0)
    })
}

/// The figure.
pub fn rebuild(bench: &Bench) -> Result<Figure, Failure> {
    let mut figure = figure("rebuild");
    let title = "A new device is filled: its rate over that of its sequential writes";
    let mut panel = Panel::of_bars("array-rebuild", title, "drive", "of sequential writes");
    panel.digits = 3;
    let mut raw = Panel::of_bars("array-rebuild-raw", "What was filled", "code, drive", "");
    (raw.drawn, raw.digits) = (false, 1);
    let (mut rates, mut unused, mut row) = (Vec::new(), Vec::new(), 0.0);
    for (needed, written) in CODES {
        let layout = Layout::new(needed, written, MEMBERS);
        for (at, drive) in DRIVES.into_iter().enumerate() {
            let found = alone(bench, drive, layout)?;
            let rate = found.value(|it| it.mb_s() / it.sequential_mb_s);
            panel.add(&layout.code.to_string(), Point::new(at as f64, drive, &rate));
            rates.push(rate);
            unused.push(found.value(|it| it.unused(layout)));
            row += 1.0;
            let name = format!("{}, {drive}", layout.code);
            let mut add = |series: &str, of: fn(&Filled) -> f64| {
                raw.add(series, Point::new(row, &*name, &found.value(of)));
            };
            add("MB/s", Filled::mb_s);
            add("sequential writes, MB/s", |it| it.sequential_mb_s);
            add("MB written", |it| it.written_bytes as f64 / 1e6);
            add("of it metadata", |it| it.metadata_bytes as f64 / 1e6);
            add("places in use, %", |it| 100.0 * it.pages as f64 / it.places as f64);
        }
    }
    figure.panels.extend([panel, raw]);
    REBUILD_UNUSED.judge(&mut figure, &Sampled::most(&unused).unwrap_or_default());
    REBUILD_RATE.judge(&mut figure, &Sampled::least(&rates).unwrap_or_default());
    let beside = beside_tpcc(bench, &mut figure)?;
    REBUILD_BESIDE.judge(&mut figure, &beside);
    figure.notes.push("The worst of codes and drives counts. Latencies are of New-Orders.".into());
    Ok(figure)
}

/// TPC-C alone and beside; the most that its p99 is multiplied by.
fn beside_tpcc(bench: &Bench, figure: &mut Figure) -> Result<Sampled, Failure> {
    let title = "TPC-C alone and beside rebuilding";
    let mut panel = Panel::of_bars("array-rebuild-tpcc", title, "code, drive", "");
    (panel.drawn, panel.digits) = (false, 2);
    let (mut ratios, mut row) = (Vec::new(), 0.0);
    for (needed, written) in CODES {
        let layout = Layout::new(needed, written, MEMBERS);
        for drive in BESIDE {
            let (quiet, busy) =
                (beside_cell(bench, drive, layout, false)?, beside_cell(bench, drive, layout, true)?);
            let p99 = |found: &Measured<BesideFound>| found.value(|it| it.tpcc.p99_ms);
            ratios.push(p99(&busy).over(&p99(&quiet)));
            row += 1.0;
            let name = format!("{}, {drive}", layout.code);
            let mut add = |series: &str, value: Sampled| panel.add(series, Point::new(row, &*name, &value));
            add("alone, a second", quiet.value(|it| it.tpcc.per_second));
            add("beside", busy.value(|it| it.tpcc.per_second));
            add("alone, p50 ms", quiet.value(|it| it.tpcc.p50_ms));
            add("beside, p50", busy.value(|it| it.tpcc.p50_ms));
            add("alone, p99", p99(&quiet));
            add("beside, p99", p99(&busy));
            add("devices replaced", busy.value(|it| it.replaced as f64));
            add("MB filled", busy.value(|it| it.filled_mb));
        }
    }
    figure.panels.push(panel);
    Ok(Sampled::most(&ratios).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_beyond_those_of_pages_in_use_are_counted_and_metadata_is_not() {
        let layout = Layout::new(3, 4, 4);
        let filled = Filled {
            seconds: 2.0,
            written_bytes: 1000 * 1536 + 50_000,
            metadata_bytes: 50_000,
            pages: 1000,
            groups: 1,
            ..Filled::default()
        };
        assert_eq!((filled.unused(layout), filled.mb_s()), (0.0, 0.793));
        assert_eq!(Filled { pages: 900, ..filled }.unused(layout), 99.0);
        let copies = Layout::new(1, 2, 4);
        let filled = Filled { written_bytes: 500 * 4096 + 50_000, ..filled };
        assert_eq!(filled.unused(copies), 0.0);
    }

    #[test]
    fn a_member_has_the_copies_of_metadata_that_rotate_to_it() {
        let shape = store::shape(PAGE, store::Layout::default()).unwrap();
        let layout = Layout::new(1, 2, 4);
        let each: u64 = (0..4).map(|member| metadata_bytes(&shape, layout, member, 6) - 1024).sum();
        assert_eq!(each, 2 * (shape.groups_start + 6 * shape.places_start));
        assert_eq!(metadata_bytes(&shape, layout, 2, 1), 1024, "group 0 is on the first two");
    }
}
