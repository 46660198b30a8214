//! `firn lab bench pages`: the figures of Harter and Chae, *Hybrid Transaction Recovery with Flash*
//! (2010), measured again in virtual time.
//!
//! A page file, store and log on one emulated drive ([`machine`]), one client that works on it
//! ([`work`]), in each mode of page recovery ([`cell`]); a figure or two a file. Firn's `log` is
//! the paper's ARIES, but has a cleaner, group commit, undo in memory and a page map; what the paper
//! measured is modelled beside it ([`prototype`]).
//!
//! Every target is in every file of results ([`targets`]).

mod cell;
mod drives;
mod grid;
mod machine;
mod memory;
mod prototype;
mod prototypes;
mod steps;
mod targets;
mod work;

use crate::bench::cells::{Cells, Judged, Measured, Running};
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use cell::{Cell, Found, MODES};
use clap::Args;
use firndb::PageRecovery;
use firndb_console::{Failure, commit_of_source};
use firndb_profile::DeviceProfile;
use firndb_workloads::results::Conditions;
use machine::{AllLoaded, Memory};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use work::{Kind, Work};

const FIGURES: [&str; 9] = ["1-2", "table-1", "5", "cells", "abort", "prototypes", "9-a", "9-b", "10"];
/// The paper's disk and flash, and two drives of today.
const DRIVES: [&str; 4] = ["barracuda-7200-7", "ocz-core", "x25-e", "nvme"];

/// Firn's least buffer has 64 pages, about twice the paper's 30: all else is twice the paper's.
const SCALE: u64 = 2;
/// The paper's pages.
const PAGES: u64 = 1000;
const BUFFER_PAGES: usize = 64;
/// The paper's 30 pages of memory log.
const PRIVATE_PAGES: usize = 30 * SCALE as usize;
/// The engine's usual before-images in memory.
const VERSION_BYTES: usize = 16 << 20;

/// `firn lab bench pages`.
#[derive(Args, Clone, Debug)]
pub struct BenchPages {
    /// A figure of the paper; `table-1`: one commit by its steps; `cells`: the workloads of table 4
    /// (figures 7 and 8); `abort`: aborts without undo in memory; `prototypes`: a model of the paper's
    /// own; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// A fifth of the pages, in the same memory
    #[arg(long)]
    pub quick: bool,
    /// Drives, instead of the paper's two, x25-e and nvme
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub profile: Vec<String>,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

/// A run of the bench.
pub struct Bench<'a> {
    args: &'a BenchPages,
    stop: &'static AtomicBool,
    cells: Cells<'a>,
    drives: Vec<DeviceProfile>,
    loaded: Arc<AllLoaded>,
}

pub fn run(args: &BenchPages) -> Result<(), Failure> {
    let given: Vec<&str> = args.profile.iter().map(String::as_str).collect();
    let names = if given.is_empty() { &DRIVES[..] } else { &given };
    let drives = names.iter().map(|name| crate::tpcc::machine::profile(name));
    let drives = drives.collect::<Result<Vec<_>, _>>()?;
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench { args, stop: cells.stop(), cells, drives, loaded: Arc::default() };
    let figures = bench.cells.figures(|| bench.figures())?;
    bench.cells.show(&figures)
}

/// Pages of the file, each worked on once.
fn pages(args: &BenchPages) -> u64 {
    match (args.tiny, args.quick) {
        (true, _) => 200,
        (false, true) => SCALE * PAGES / 5,
        (false, false) => SCALE * PAGES,
    }
}

fn head(args: &BenchPages) -> Head {
    let config = json!({
        "pages": pages(args), "memory": LIMITED, "page_bytes": machine::PAGE, "part_bytes": work::PART,
        "profiles": args.profile,
    });
    let seed = args.running.seed;
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, seed);
    conditions.simulated = true;
    Head::new("pages", conditions)
}

/// The paper's memory, twice.
const LIMITED: Memory = Memory { buffer: BUFFER_PAGES, private: PRIVATE_PAGES, version_bytes: VERSION_BYTES };

impl Bench<'_> {
    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let wants = |number: &str| self.args.all || self.args.figure.iter().any(|it| it == number);
        let all: [fn(&Bench) -> Result<Figure, Failure>; FIGURES.len()] = [
            drives::reads,
            steps::table,
            memory::splits,
            grid::cells,
            grid::abort,
            prototypes::figure,
            memory::limited,
            memory::unlimited,
            steps::dirty,
        ];
        let wanted = FIGURES.into_iter().zip(all).filter(|(number, _)| wants(number));
        wanted.map(|(_, figure)| figure(self)).collect()
    }

    /// All pages, each in a transaction of its own or all in one.
    fn work(&self, kind: Kind, part: bool, random: bool, each: u64) -> Work {
        let pages = pages(self.args);
        Work { kind, part, random, pages, operations: pages, each }
    }

    /// The work in one mode of recovery.
    fn measure(
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
    fn in_all_modes(
        &self,
        profile: &DeviceProfile,
        setting: (Memory, Work),
        judged: Judged,
    ) -> Result<[Measured<Found>; 3], Failure> {
        let measured = MODES.map(|(_, recovery)| self.measure(profile, recovery, setting, judged));
        let [log, shadow, hybrid] = measured;
        Ok([log?, shadow?, hybrid?])
    }

    fn of(&self, cell: &Cell, judged: Judged) -> Result<Measured<Found>, Failure> {
        let (loaded, stop) = (self.loaded.clone(), self.stop);
        self.cells.of(cell, judged, move |cell, seed| {
            let pages = cell.work.pages;
            cell::run(cell, &loaded.get(pages, || machine::load(pages))?, seed, stop)
        })
    }
}
