//! What the figures have in common: how long and how much they measure, and one measurement.

use super::args::BenchLog;
use super::found::{StreamFound, TpccFound};
use super::machine::{Cell, Cpu, Populations};
use super::stream::{self, StreamCell};
use crate::bench::cells::{Cells, Judged, Measured};
use crate::cost::cpu::paper_factors;
use firndb_console::Failure;
use firndb_profile::DeviceProfile;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A run of the bench.
pub struct Bench<'a> {
    pub args: &'a BenchLog,
    pub stop: &'static AtomicBool,
    pub cells: Cells<'a>,
    pub populations: Arc<Populations>,
}

impl Bench<'_> {
    pub fn wants(&self, number: &str) -> bool {
        self.args.all || self.args.figure.iter().any(|wanted| wanted == number)
    }

    /// The shipped profile of this name.
    pub fn profile(&self, name: &str) -> Result<DeviceProfile, Failure> {
        crate::tpcc::machine::profile(name)
    }

    /// The first seed.
    pub fn seed(&self) -> u64 {
        self.args.running.seed
    }

    pub fn is_quick(&self) -> bool {
        self.args.quick
    }

    /// A directory for files on the device that `--real` measures.
    pub fn dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.args.dir.as_ref().ok_or_else(|| Failure::bad_argument("--real needs --dir"))?;
        Ok(dir.join(format!("firn-bench-log-{}", std::process::id())))
    }

    pub fn is_real(&self) -> bool {
        self.args.real
    }

    /// Virtual time that a run measures.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds.unwrap_or(if self.args.quick { 1.0 } else { 10.0 }))
    }

    /// The same of TPC-C on a device whose outliers are rare and long: enough of them for a mean.
    /// Where the processor does twenty times as much, so do the outliers' number.
    pub fn time_with_outliers(&self, cpu: Cpu) -> Duration {
        if cpu.factor < 2.0 { self.time() } else { 4 * self.time() }
    }

    pub fn clients(&self) -> Vec<usize> {
        if self.args.quick { vec![1, 8, 32, 128] } else { vec![1, 2, 4, 8, 16, 32, 64, 128] }
    }

    /// The paper's processor, and Firn's own cost.
    pub fn cpus(&self) -> Vec<Cpu> {
        let [(name, factor), ..] = paper_factors();
        vec![Cpu { name, factor }, Cpu { name: "firn", factor: 1.0 }]
    }

    /// TPC-C on the cell's log, for a quarter of its time if no target names it.
    pub fn tpcc(&self, cell: &Cell, judged: Judged) -> Result<Measured<TpccFound>, Failure> {
        let populations = self.populations.clone();
        let time = if judged == Judged::Yes { cell.time } else { cell.time / 4 };
        let cell = Cell { time, ..cell.clone() };
        self.cells.of(&cell, judged, move |cell, seed| populations.run(cell, seed))
    }

    pub fn stream(&self, cell: &StreamCell, judged: Judged) -> Result<Measured<StreamFound>, Failure> {
        let run = if self.args.real { stream::run_in_real_time } else { stream::run };
        self.cells.of(cell, judged, run)
    }
}
