//! `firn lab bench reads`: many pages at once, beside what a drive does without an engine.
//!
//! Figures in virtual time: reads on every shipped drive ([`profiles`]); pages read ahead for
//! nothing, and a scan beside TPC-C ([`tpcc`]). On a real drive: [`real`], whose raw reads and
//! Firn's take turns in one program. What is read and how is the same in both ([`rows`], [`work`]),
//! and so is the raw reader ([`raw`]).
//!
//! Every target is in every file of results ([`targets`]).

mod profiles;
pub mod raw;
mod real;
pub mod rows;
mod targets;
mod tpcc;
pub mod work;

use crate::bench::cache::population::Populations;
use crate::bench::cells::{Cells, Running};
use crate::bench::figure::{Figure, Panel};
use crate::bench::kept::Head;
use clap::Args;
use firndb_console::{Failure, commit_of_source, size};
use firndb_workloads::results::Conditions;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const FIGURES: [&str; 3] = ["profiles", "waste", "beside"];

/// `firn lab bench reads`.
#[derive(Args, Clone, Debug)]
pub struct BenchReads {
    /// A figure in virtual time: `profiles`, reads on every shipped drive but disks; `waste`, pages
    /// read ahead for nothing; `beside`, a scan beside TPC-C; again for more
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present_any = ["all", "real"])]
    pub figure: Vec<String>,
    /// All figures in virtual time
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// In real time, on the drive under --dir, beside its raw reads
    #[arg(long, conflicts_with_all = ["all", "figure", "resume", "bands", "seeds"], requires = "dir")]
    pub real: bool,
    /// Where --real makes its files, and removes them again
    #[arg(long, value_name = "DIR", requires = "real")]
    pub dir: Option<PathBuf>,
    /// Less data, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// DRAM for pages [16M, or 4M with --quick; with --real 256M, or 24M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub buffer: Option<u64>,
    /// The table's bytes, in units of DRAM
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub times: u64,
    /// Drives of the figure `profiles`
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub profile: Vec<String>,
    /// With --real: seconds of each measurement [5, or 1 with --quick]; in virtual time: of TPC-C
    /// [5, or 1]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// With --real: how often each measurement is made; medians are shown [5, or 3 with --quick]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

/// How much is read: DRAM for pages, and the table in units of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    buffer: u64,
    times: u64,
}

impl Size {
    /// Of the table.
    fn bytes(self) -> u64 {
        self.buffer * self.times
    }
}

/// A run of the bench.
pub struct Bench<'a> {
    args: &'a BenchReads,
    stop: &'static AtomicBool,
    cells: Cells<'a>,
    loaded: Arc<profiles::AllLoaded>,
    populations: Arc<Populations>,
    scanned: Arc<tpcc::AllScanned>,
}

pub fn run(args: &BenchReads) -> Result<(), Failure> {
    if args.seconds.is_some_and(|seconds| !(0.01..=3600.0).contains(&seconds)) {
        return Err(Failure::bad_argument("--seconds must be a number from 0.01 to 3600"));
    }
    if args.buffer.is_some_and(|bytes| !(512 << 10..=1 << 40).contains(&bytes)) {
        return Err(Failure::bad_argument("--buffer must be at least 512K, and at most 1024G"));
    }
    let running = &args.running;
    let cells = Cells::begin(running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench {
        args,
        stop: cells.stop(),
        cells,
        loaded: Arc::default(),
        populations: Arc::new(Populations::new(running.seed)),
        scanned: Arc::default(),
    };
    let figures = match args.real {
        true => bench.cells.figures_in_real_time(|| Ok(vec![real::on_drive(&bench)?]))?,
        false => bench.cells.figures(|| bench.figures())?,
    };
    bench.cells.show(&figures)
}

fn head(args: &BenchReads) -> Head {
    let size = size_of(args);
    let config = json!({
        "quick": args.quick, "real": args.real, "seconds": seconds(args), "buffer_bytes": size.buffer,
        "table_bytes": size.bytes(), "rounds": real::rounds(args), "profiles": args.profile,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = !args.real;
    Head::new("reads", conditions)
}

fn size_of(args: &BenchReads) -> Size {
    let usual = match (args.real, args.quick) {
        _ if args.tiny => 1 << 20,
        (false, false) => 16 << 20,
        (false, true) => 4 << 20,
        (true, false) => 256 << 20,
        (true, true) => 24 << 20,
    };
    Size { buffer: args.buffer.unwrap_or(usual), times: args.times }
}

fn seconds(args: &BenchReads) -> f64 {
    args.seconds.unwrap_or(if args.quick { 1.0 } else { 5.0 })
}

impl Bench<'_> {
    fn size(&self) -> Size {
        size_of(self.args)
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn wants(&self, number: &str) -> bool {
        self.args.all || self.args.figure.iter().any(|wanted| wanted == number)
    }

    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let mut figures = Vec::new();
        if self.wants("profiles") {
            figures.push(profiles::on_all(self)?);
        }
        if self.wants("waste") {
            figures.push(self.waste()?);
        }
        if self.wants("beside") {
            figures.push(tpcc::beside(self)?);
        }
        Ok(figures)
    }

    /// The figure `waste`.
    fn waste(&self) -> Result<Figure, Failure> {
        let mut figure = targets::figure("waste");
        let title = "Pages read ahead that no thread asked for";
        let mut panel = Panel::of_bars("reads-waste", title, "load", "% of the pages read ahead");
        panel.digits = 2;
        tpcc::waste(self, &mut figure, &mut panel)?;
        profiles::short_ranges(self, &mut figure, &mut panel)?;
        figure.panels.push(panel);
        Ok(figure)
    }
}
