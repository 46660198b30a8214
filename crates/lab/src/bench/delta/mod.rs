//! `firn lab bench delta`: the figures of the ICL paper (CIKM 2010), by counts over recorded
//! streams.
//!
//! TPC-C runs in virtual time, in the paper's setting, and what passes between buffer and store is
//! recorded ([`recording`], [`recorder`]): once for each size of a page and of the buffer. Every
//! method then sees that stream ([`cell`]) and is counted ([`counts`], [`front`], [`placement`]);
//! time follows from the requests ([`times`], [`timed`]). Firn stands there twice: as a model of
//! its delta layer over the stream, and as the store itself, in runs of its own ([`tap`]).
//!
//! Every target is in every file of results ([`targets`]).

mod cell;
mod counts;
mod front;
mod placement;
pub mod recorder;
mod recording;
mod tap;
mod targets;
mod timed;
mod times;

use crate::bench::cells::{Cells, Judged, Measured, Running};
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use cell::{Cell, Found, Way};
use clap::Args;
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use recording::{Extent, Streams};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const FIGURES: [&str; 5] = ["5", "6", "front", "bound", "placement"];
/// The paper's page size, and Firn's usual one.
const PAGE_SIZES: [u64; 2] = [8192, 4096];
/// Write buffers, megabytes of 100. The paper's are not printed.
const BUFFERS: [u64; 5] = [1, 2, 4, 8, 16];
/// The one that targets name.
const JUDGED_BUFFER: u64 = 8;
/// The cost of reading a delta page over that of writing a page, where no drive decides it.
const READ_COST: f64 = 0.5;
/// Those of the figure `front`.
const READ_COSTS: [f64; 7] = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0];

/// `firn lab bench delta`.
#[derive(Args, Clone, Debug)]
pub struct BenchDelta {
    /// A figure of the paper; `front`: page writes over page reads; `bound`: page writes beside the
    /// least that is possible; `placement`: whole segments beside runs; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// A tenth of the database, of the memory and of the transactions
    #[arg(long)]
    pub quick: bool,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    /// Without checkpoints
    #[arg(long)]
    pub no_checkpoints: bool,
    /// Keep the recorded streams in this directory, and use those that are there
    #[arg(long, value_name = "DIR")]
    pub streams: Option<PathBuf>,
    #[command(flatten)]
    pub running: Running,
}

/// A run of the bench.
pub struct Bench<'a> {
    args: &'a BenchDelta,
    stop: &'static AtomicBool,
    cells: Cells<'a>,
    streams: Arc<Streams>,
}

pub fn run(args: &BenchDelta) -> Result<(), Failure> {
    let running = &args.running;
    let cells = Cells::begin(running, args.quick, head(args), targets::not_measured())?;
    let streams = Arc::new(Streams::new(args.streams.as_deref(), running.seed)?);
    let bench = Bench { args, stop: cells.stop(), cells, streams };
    let figures = bench.cells.figures(|| bench.figures())?;
    bench.cells.show(&figures)
}

fn extent(args: &BenchDelta) -> Extent {
    match (args.tiny, args.quick) {
        (true, _) => Extent::TINY,
        (false, true) => Extent::QUICK,
        (false, false) => Extent::FULL,
    }
}

fn head(args: &BenchDelta) -> Head {
    let Extent { name, scale, clients, memory, warm, measured } = extent(args);
    let config = json!({
        "size": name, "warehouses": scale.warehouses, "items": scale.items, "customers": scale.customers,
        "clients": clients, "memory_bytes": memory, "warm_transactions": warm,
        "measured_transactions": measured, "checkpoints": !args.no_checkpoints,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("delta", conditions)
}

impl Bench<'_> {
    fn extent(&self) -> Extent {
        extent(self.args)
    }

    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let wanted = |number: &str| self.args.all || self.args.figure.iter().any(|wanted| wanted == number);
        let mut figures = Vec::new();
        for (number, figure) in FIGURES.into_iter().zip([
            counts::over_buffers as fn(&Bench) -> _,
            times::on_drives,
            front::front,
            front::bound,
            placement::placement,
        ]) {
            if wanted(number) {
                figures.push(figure(self)?);
            }
        }
        Ok(figures)
    }

    /// What a method does with the stream of this page size and write buffer.
    fn measure(
        &self,
        page_size: u64,
        way: Way,
        buffer: u64,
        judged: Judged,
    ) -> Result<Measured<Found>, Failure> {
        self.measure_on(page_size, way, buffer, judged, Vec::new())
    }

    /// Likewise, with the virtual time of these drives.
    fn measure_on(
        &self,
        page_size: u64,
        way: Way,
        buffer: u64,
        judged: Judged,
        drives: Vec<&'static str>,
    ) -> Result<Measured<Found>, Failure> {
        let checkpoints = !self.args.no_checkpoints;
        self.of(Cell { extent: self.extent(), page_size, checkpoints, way, buffer, drives }, judged)
    }

    /// Without write buffer and without checkpoints.
    fn measure_quietly(&self, page_size: u64, way: Way) -> Result<Measured<Found>, Failure> {
        let (extent, drives) = (self.extent(), Vec::new());
        self.of(Cell { extent, page_size, checkpoints: false, way, buffer: 0, drives }, Judged::Yes)
    }

    fn of(&self, cell: Cell, judged: Judged) -> Result<Measured<Found>, Failure> {
        let (streams, stop) = (self.streams.clone(), self.stop);
        self.cells.of(&cell, judged, move |cell, seed| cell::run(cell, &streams, seed, stop))
    }
}
