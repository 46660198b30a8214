//! Layouts that the engine chooses, of the figure `engine`: both tables begin with one code, and
//! are measured once the engine has chosen.
//!
//! Loads are looked at as often as the bench's short time allows, and pages are moved without time.
//! What was chosen is then measured like every other pair of codes.

use super::devices::{CORES, Layout, Loaded, Machine};
use super::engine::{self, drive, read_and_write};
use super::measuring::Bench;
use super::simulator::MEMBERS;
use super::tables::{Size, WRITTEN, loaded};
use crate::bench::cells::{Cellular, Judged, Measured, end_of};
use crate::bench::reads::rows::Rows;
use crate::bench::reads::work::{self, Length};
use crate::bench::simulation::simulate;
use firndb::{Database, TableSpec};
use firndb_array::Code;
use firndb_base::clock;
use firndb_console::Failure;
use firndb_profile::{DeviceProfile, VariantName};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Codes that both tables begin with: the best single one, that of the thesis for writes, and the
/// worst. The store may have all.
pub const BEGUN: [(usize, usize); 3] = [(1, 1), (4, 4), (1, 4)];
/// Looks at the loads while tables are used once.
const LOOKS: u32 = 8;
/// Times that tables are used, at most, until nothing is chosen.
const USES_MAX: u64 = 6;
/// How long moves take at most, without time of the devices.
const MOVES_MAX: usize = 10_000;

#[derive(Clone, Debug)]
struct Cell {
    profile: DeviceProfile,
    layout: Layout,
    begun: Code,
    size: Size,
    readers: u64,
    time: Duration,
}

impl Cell {
    /// The cell of the figure that has these codes from the beginning.
    fn with_codes(&self, read: Code, written: Code) -> engine::Cell {
        let layout = match read == written {
            true => Layout::of(read, MEMBERS),
            false => Layout::each(written, read, MEMBERS),
        };
        let Cell { profile, size, readers, time, .. } = self.clone();
        engine::Cell { profile, layout, written, size, readers, time }
    }
}

impl Cellular for Cell {
    type Found = Found;

    fn name(&self) -> String {
        format!("engine, auto, {} at first, {} readers", self.begun, self.readers)
    }

    fn at_end(&self, end: VariantName) -> Option<Cell> {
        Some(Cell { profile: end_of(&self.profile, end)?, ..self.clone() })
    }
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub found: engine::Found,
    /// Layouts chosen.
    pub changes: f64,
    /// Fragments needed and written of the table that is read, and of the one that is written.
    pub codes: [f64; 4],
}

impl Found {
    pub fn operations(&self) -> f64 {
        self.found.operations()
    }
}

fn layout_of(code: Code) -> firndb::Layout {
    firndb::Layout::fragments(code.needed(), code.written())
}

/// Uses both tables until the engine chooses nothing more: how many layouts it has chosen, and what
/// the table that is read has then, and the one that is written.
fn choose(
    cell: &Cell,
    loaded: &Loaded<Rows>,
    seed: u64,
    stop: &'static AtomicBool,
) -> Result<(f64, [Code; 2]), Failure> {
    let machine = Machine::new(loaded, &cell.profile, seed)?;
    let options = cell.layout.options(cell.size.buffer).recovery_time(Duration::MAX);
    let used = cell.time * 8 / 5;
    let db = machine.open(options.choose_layouts_every(used / LOOKS))?;
    let written = db.create_table_with(WRITTEN, TableSpec::raw().with_layout(layout_of(cell.begun)))?;
    let read = db.table(Rows::TABLE)?;
    for table in [&read, &written] {
        db.set_layout(table, firndb::Layout::Auto)?;
    }
    let warm = Length { rows: 2 * cell.size.frames(), time: Duration::MAX, stop };
    work::many(&db, loaded.what, 64, seed + 1, warm)?;
    // At first the engine sees to it that pages lie where the catalog says.
    machine.run_free(true);
    wait_for_moves(&db)?;
    let mut changes = 0;
    for turn in 1..=USES_MAX {
        machine.run_free(false);
        read_and_write(&db, loaded.what, (cell.readers, used, turn), (seed + 2, stop))?;
        machine.run_free(true);
        wait_for_moves(&db)?;
        let now = db.store_loads().map_or(0, |loads| loads.changes);
        if now == changes {
            break;
        }
        changes = now;
    }
    let code = |table: &firndb::Table| match table.layout_now()? {
        firndb::Layout::Fragments { needed, written } => {
            Ok(Code::new(needed, written).expect("the store has it"))
        }
        other => Err(Failure::new(format!("a table has no code of its own, but {other}"))),
    };
    let codes = [code(&read)?, code(&written)?];
    db.close()?;
    Ok((changes as f64, codes))
}

fn wait_for_moves(db: &Database) -> Result<(), Failure> {
    for _ in 0..MOVES_MAX {
        if db.store_loads().is_none_or(|loads| loads.moving.is_none()) {
            return Ok(());
        }
        clock::sleep(Duration::from_millis(5));
    }
    Err(Failure::new("pages were not moved to their layouts in time"))
}

/// Both tables with the code that they begin with, until the engine has chosen; then what was
/// chosen, measured as every other code and pair of codes.
pub fn measure(bench: &Bench, begun: Code, readers: u64) -> Result<Measured<Found>, Failure> {
    let (profile, time) = drive(bench)?;
    let layout = Layout::each(Code::ONE_COPY, begun, MEMBERS);
    let cell = Cell { profile, layout, begun, size: bench.size(), readers, time };
    let (stop, all, first) = (bench.cells.stop(), bench.loaded.clone(), bench.args.running.seed);
    bench.cells.of(&cell, Judged::Yes, move |cell, seed| {
        let at_first = loaded(&all, cell.layout, cell.size, first)?;
        let choosing = cell.clone();
        let chosen = simulate(seed, CORES, move || choose(&choosing, &at_first, seed, stop))?;
        let (changes, [read, written]) = chosen.0;
        let pair = cell.with_codes(read, written);
        let as_chosen = loaded(&all, pair.layout, cell.size, first)?;
        let (found, _) = simulate(seed, CORES, move || engine::run(&pair, &as_chosen, seed, stop))?;
        let codes = [read.needed(), read.written(), written.needed(), written.written()];
        Ok(Found { found, changes, codes: codes.map(|it| it as f64) })
    })
}
