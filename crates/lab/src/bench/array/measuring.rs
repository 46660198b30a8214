//! What every figure of the bench has at hand.

use super::args::BenchArray;
use super::cell::{self, Cell, Found};
use super::devices::{CORES, Layout, Loaded};
use super::moving::AllWithTable;
use super::rebuild_loads::{AllHalfFull, AllTpcc};
use super::simulator::{Kind, Workload};
use super::tables::{AllLoaded, Size, loaded};
use crate::bench::cells::{Cells, Cellular, Judged, Measured};
use crate::bench::reads::rows::Rows;
use crate::bench::simulation::simulate;
use firndb_console::Failure;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A run of the bench.
pub struct Bench<'a> {
    pub args: &'a BenchArray,
    pub cells: Cells<'a>,
    /// Databases that runs begin with.
    pub loaded: Arc<AllLoaded>,
    pub half_full: Arc<AllHalfFull>,
    pub tpcc: Arc<AllTpcc>,
    pub with_table: Arc<AllWithTable>,
}

/// Drives that members are.
pub const DRIVES: [&str; 4] = ["nvme", "sata-ssd", "network-volume", "x25-e"];

/// Measures a cell over a loaded database.
type OverRows<C> = fn(&C, &Loaded<Rows>, u64, &'static AtomicBool) -> Result<<C as Cellular>::Found, Failure>;

impl Bench<'_> {
    /// What `run` finds of a cell in a simulation of its own, over a database with a table of rows.
    pub fn over_rows<C: Cellular<Found: Send> + Clone + Send + 'static>(
        &self,
        cell: &C,
        (layout, size): (Layout, Size),
        run: OverRows<C>,
    ) -> Result<Measured<C::Found>, Failure> {
        let (stop, all, first) = (self.cells.stop(), self.loaded.clone(), self.args.running.seed);
        self.cells.of(cell, Judged::Yes, move |cell, seed| {
            let loaded = loaded(&all, layout, size, first)?;
            let cell = cell.clone();
            Ok(simulate(seed, CORES, move || run(&cell, &loaded, seed, stop))?.0)
        })
    }

    /// How much the figures over the engine load and do.
    pub fn size(&self) -> Size {
        let (buffer, times, reads, written_bytes) = self.args.by_size(
            (1 << 20, 4, 4, 2 << 20),
            (4 << 20, 10, 50, 32 << 20),
            (8 << 20, 10, 200, 96 << 20),
        );
        Size { buffer, times, reads, written_bytes }
    }

    /// What workers come to on these members, under each code.
    pub fn measure(&self, kind: Kind, workload: Workload) -> Result<Measured<Found>, Failure> {
        let cell = Cell { kind, workload, epoch_ns: self.args.epoch_ns() };
        self.cells.of(&cell, Judged::Yes, |cell, seed| Ok(cell::run(cell, seed)))
    }
}
