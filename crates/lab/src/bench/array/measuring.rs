//! What every figure of the bench has at hand.

use super::args::BenchArray;
use super::cell::{self, Cell, Found};
use super::rebuild_loads::{AllHalfFull, AllTpcc};
use super::simulator::{Kind, Workload};
use super::tables::{AllLoaded, Size};
use crate::bench::cells::{Cells, Judged, Measured};
use firndb_console::Failure;
use std::sync::Arc;

/// A run of the bench.
pub struct Bench<'a> {
    pub args: &'a BenchArray,
    pub cells: Cells<'a>,
    /// Databases that runs begin with.
    pub loaded: Arc<AllLoaded>,
    pub half_full: Arc<AllHalfFull>,
    pub tpcc: Arc<AllTpcc>,
}

impl Bench<'_> {
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
