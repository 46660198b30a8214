//! What every figure has in common: arguments, drives, sizes, and measuring in each mode.

use super::cell::{self, Cell, Found, MODES};
use super::machine::{self, AllLoaded, Loaded, Memory};
use super::work::{Kind, Work};
use crate::bench::cells::{Cells, Cellular, Judged, Measured, Running};
use clap::Args;
use firndb::PageRecovery;
use firndb_console::Failure;
use firndb_profile::DeviceProfile;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub const FIGURES: [&str; 13] = [
    "1-2",
    "table-1",
    "5",
    "cells",
    "abort",
    "prototypes",
    "9-a",
    "9-b",
    "10",
    "values",
    "load",
    "build",
    "archive",
];
/// The paper's disk and flash, and two drives of today.
pub const DRIVES: [&str; 4] = ["barracuda-7200-7", "ocz-core", "x25-e", "nvme"];

/// The paper's pages, each worked on once.
pub const PAGES: u64 = 1000;
/// Firn's least buffer; the paper's has 30.
pub const BUFFER_PAGES: usize = 64;
/// The paper's 30 pages of memory log, in proportion.
pub const PRIVATE_PAGES: usize = 60;
/// The engine's usual before-images in memory.
pub const VERSION_BYTES: usize = 16 << 20;

/// About twice the paper's memory.
pub const LIMITED: Memory =
    Memory { buffer: BUFFER_PAGES, private: PRIVATE_PAGES, version_bytes: VERSION_BYTES };

/// `firn lab bench pages`.
#[derive(Args, Clone, Debug)]
pub struct BenchPages {
    /// A figure of the paper; `table-1`: one commit by its steps; `cells`: the workloads of table 4
    /// (figures 7 and 8); `abort`: aborts without undo in memory; `prototypes`: a model of the
    /// paper's own; `values`: values of 1 MiB; `load`: a table with its rows;
    /// `build`: an index on a table; `archive`: commits with an archive; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// A fifth of the pages, in the same memory
    #[arg(long)]
    pub quick: bool,
    /// Pages of the file, each worked on once [1000, or 200 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(150..=1_000_000))]
    pub pages: Option<u64>,
    /// Drives, instead of the paper's two, x25-e and nvme
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub profile: Vec<String>,
    #[command(flatten)]
    pub running: Running,
}

/// A series of a panel: its name, and what it shows of what was found.
pub type Shown<F> = (&'static str, fn(&F) -> f64);

/// Measures a cell over a loaded database.
pub type OverFile<C> =
    fn(&C, &Arc<Loaded>, u64, &'static AtomicBool) -> Result<<C as Cellular>::Found, Failure>;

/// A run of the bench.
pub struct Bench<'a> {
    pub args: &'a BenchPages,
    pub stop: &'static AtomicBool,
    pub cells: Cells<'a>,
    pub drives: Vec<DeviceProfile>,
    pub loaded: Arc<AllLoaded>,
}

/// Pages of the file, each worked on once.
pub fn pages(args: &BenchPages) -> u64 {
    args.pages.unwrap_or(if args.quick { PAGES / 5 } else { PAGES })
}

impl Bench<'_> {
    /// All pages, each in a transaction of its own or all in one.
    pub fn work(&self, kind: Kind, part: bool, random: bool, each: u64) -> Work {
        let pages = pages(self.args);
        Work { kind, part, random, pages, operations: pages, each }
    }

    /// The work in one mode of recovery.
    pub fn measure(
        &self,
        profile: &DeviceProfile,
        recovery: PageRecovery,
        (memory, work): (Memory, Work),
        judged: Judged,
    ) -> Result<Measured<Found>, Failure> {
        let cell = Cell { profile: profile.clone(), recovery, memory, work, curve: false };
        self.of(&cell, judged)
    }

    /// The work in every mode of recovery.
    pub fn in_all_modes(
        &self,
        profile: &DeviceProfile,
        setting: (Memory, Work),
        judged: Judged,
    ) -> Result<[Measured<Found>; MODES.len()], Failure> {
        let measured = MODES.map(|(_, recovery)| self.measure(profile, recovery, setting, judged));
        let [log, shadow, hybrid, adaptive] = measured;
        Ok([log?, shadow?, hybrid?, adaptive?])
    }

    pub fn of(&self, cell: &Cell, judged: Judged) -> Result<Measured<Found>, Failure> {
        self.over_file(cell, (cell.work.pages, judged), cell::run)
    }

    /// What `run` finds of a cell over a database with a page file of this many pages.
    pub fn over_file<C: Cellular>(
        &self,
        cell: &C,
        (pages, judged): (u64, Judged),
        run: OverFile<C>,
    ) -> Result<Measured<C::Found>, Failure> {
        let (loaded, stop) = (self.loaded.clone(), self.stop);
        self.cells.of(cell, judged, move |cell, seed| {
            run(cell, &loaded.get(pages, || machine::load(pages))?, seed, stop)
        })
    }
}
