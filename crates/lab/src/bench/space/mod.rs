//! `firn lab bench space`: what of the store's file comes back when rows go, and what writing out
//! of place costs flash, by counts and in virtual time.
//!
//! A database on devices in memory is filled, loses rows, and is left to its background work, and
//! then compacted ([`cell`]). What its pages take is set against its live pages: those that its
//! trees have at that moment. TPC-C runs beside the emptying of groups in virtual time
//! ([`cleaner`]), and blocks of the file system are counted in real time ([`returned`]). [`waf`]
//! counts what flash programs for a page; [`logging`] is figure 6-1 of Myers's thesis.
//!
//! Every target is in every file of results ([`targets`]).

mod cell;
mod cleaner;
mod logging;
mod returned;
mod targets;
mod waf;

use crate::bench::cells::{Cells, Judged, Measured, Running};
use crate::bench::figure::{Figure, Panel, Point};
use crate::bench::kept::Head;
use crate::bench::sampled::Sampled;
use cell::{Cell, Found, Loss};
use clap::Args;
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use logging::{AllLoaded, Logging};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use waf::{Waf, Worlds};

const FIGURES: [&str; 5] = ["shrink", "churn", "cleaner", "waf", "6-1"];
const ROW_BYTES: usize = 200;

/// `firn lab bench space`.
#[derive(Args, Clone, Debug)]
pub struct BenchSpace {
    /// `shrink`: deletes and drops; `churn`: rows that come and go; `cleaner`: TPC-C beside it;
    /// `waf`: what flash programs for a page; `6-1`: the thesis's, operations of 16 KB; again
    /// for more
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present_any = ["all", "real"])]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// In real time: a table of 1 GB is dropped, and blocks of the store's file are counted
    #[arg(long, conflicts_with_all = ["figure", "all"], requires = "dir")]
    pub real: bool,
    /// Where --real makes its files, and removes them again
    #[arg(long, value_name = "DIR", requires = "real")]
    pub dir: Option<PathBuf>,
    /// With --real: the store, such as a loop device [a file under --dir]
    #[arg(long, value_name = "PATH", requires = "real")]
    pub store: Option<PathBuf>,
    /// A quarter of the rows, and less of the rest
    #[arg(long)]
    pub quick: bool,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

/// A run of the bench.
struct Bench<'a> {
    args: &'a BenchSpace,
    stop: &'static AtomicBool,
    cells: Cells<'a>,
    /// Databases that runs of `cleaner` begin with.
    sparse: Arc<cleaner::AllSparse>,
    worlds: Arc<Worlds>,
    files: Arc<AllLoaded>,
}

pub fn run(args: &BenchSpace) -> Result<(), Failure> {
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let worlds = Arc::new(Worlds::new(of_size(args, &waf::Extent::SIZES), args.running.seed)?);
    let (sparse, files) = (Arc::default(), Arc::default());
    let bench = Bench { args, stop: cells.stop(), cells, sparse, worlds, files };
    let figures = match &args.dir {
        Some(dir) => bench.cells.figures_in_real_time(|| Ok(vec![returned::returned(&bench, dir)?]))?,
        None => bench.cells.figures(|| bench.figures())?,
    };
    bench.cells.show(&figures)
}

/// What belongs to the arguments: of full size, quick, or tiny.
fn of_size<T: Copy>(args: &BenchSpace, sizes: &[T; 3]) -> T {
    match (args.tiny, args.quick) {
        (true, _) => sizes[2],
        (false, true) => sizes[1],
        (false, false) => sizes[0],
    }
}

/// Rows of all tables.
fn rows(args: &BenchSpace) -> u64 {
    of_size(args, &[1_600_000, 400_000, 20_000])
}

fn head(args: &BenchSpace) -> Head {
    let config = json!({"rows": rows(args), "row_bytes": ROW_BYTES});
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("space", conditions)
}

impl Bench<'_> {
    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let wants = |number: &str| self.args.all || self.args.figure.iter().any(|wanted| wanted == number);
        let mut figures = Vec::new();
        if wants("shrink") {
            figures.push(self.shrink()?);
        }
        if wants("churn") {
            figures.push(self.churn()?);
        }
        if wants("cleaner") {
            figures.push(cleaner::cleaner(self)?);
        }
        if wants("waf") {
            let (extent, worlds) = (of_size(self.args, &waf::Extent::SIZES), self.worlds.clone());
            figures.push(Waf { cells: &self.cells, worlds, extent, stop: self.stop }.figure()?);
        }
        if wants("6-1") {
            let (extent, loaded) = (of_size(self.args, &logging::Extent::SIZES), self.files.clone());
            figures.push(Logging { cells: &self.cells, loaded, extent, stop: self.stop }.figure()?);
        }
        Ok(figures)
    }

    fn measure(
        &self,
        loss: Loss,
        (deltas, segments): (bool, bool),
        judged: Judged,
    ) -> Result<Measured<Found>, Failure> {
        // Each row that comes and goes is written, ten times as many.
        let rows = if loss == Loss::Churn { rows(self.args) / 4 } else { rows(self.args) };
        let (cell, stop) = (Cell { loss, rows, row_bytes: ROW_BYTES, deltas, segments }, self.stop);
        self.cells.of(&cell, judged, move |cell, seed| cell::run(cell, seed, stop))
    }

    fn shrink(&self) -> Result<Figure, Failure> {
        let mut figure = targets::figure("shrink");
        let title = "Bytes of pages on the device, and length of the file, over live pages";
        let mut panel = Panel::of_bars("space-shrink", title, "rows lost, way of writing", "over live pages");
        panel.digits = 2;
        let mut copies =
            Panel::of_bars("space-copies", "Pages copied", "rows lost, way of writing", "over live pages");
        copies.digits = 2;
        let usual = (false, false);
        let cells = [
            (Loss::Random, usual, Judged::Yes),
            (Loss::Random, (true, false), Judged::No),
            (Loss::Random, (false, true), Judged::No),
            (Loss::Range, usual, Judged::No),
            (Loss::Tables, usual, Judged::No),
        ];
        for (at, (loss, way, judged)) in cells.into_iter().enumerate() {
            let found = self.measure(loss, way, judged)?;
            let label = label(loss, way);
            let add = |panel: &mut Panel, series: &str, value: Sampled| {
                panel.add(series, Point::new(at as f64, &*label, &value));
            };
            add(&mut panel, "before", found.value(|found| found.before.allocated()));
            add(&mut panel, "pages, background", found.value(|found| found.background.allocated()));
            add(&mut panel, "pages, compacted", found.value(|found| found.compacted.allocated()));
            add(&mut panel, "file, background", found.value(|found| found.background.file()));
            add(&mut panel, "file, compacted", found.value(|found| found.compacted.file()));
            let over = |copied: u64, found: &Found| {
                copied as f64 * 4096.0 / found.background.live_bytes.max(1) as f64
            };
            add(&mut copies, "background", found.value(|found| over(found.copied.0, found)));
            add(&mut copies, "compaction", found.value(|found| over(found.copied.1, found)));
            if judged == Judged::Yes {
                targets::ALLOCATED.judge(&mut figure, &found.value(|found| found.background.allocated()));
                targets::COPIES.judge(&mut figure, &found.value(|found| over(found.copied.0, found)));
                targets::FILE.judge(&mut figure, &found.value(|found| found.compacted.file()));
            }
        }
        figure.panels.extend([panel, copies]);
        Ok(figure)
    }

    fn churn(&self) -> Result<Figure, Failure> {
        let mut figure = targets::figure("churn");
        let title = "Bytes of pages on the device over live pages while rows come and go";
        let mut panel = Panel::of_bars("space-churn", title, "way of writing", "over live pages");
        panel.digits = 2;
        let ways = [(false, false), (true, false), (false, true)];
        for (at, way) in ways.into_iter().enumerate() {
            let judged = if at == 0 { Judged::Yes } else { Judged::No };
            let found = self.measure(Loss::Churn, way, judged)?;
            let label = label(Loss::Churn, way);
            panel.add("at most", Point::new(at as f64, &*label, &found.value(|found| found.most)));
            let end = found.value(|found| found.background.allocated());
            panel.add("in the end", Point::new(at as f64, &*label, &end));
            if judged == Judged::Yes {
                targets::CHURN.judge(&mut figure, &found.value(|found| found.most));
            }
        }
        figure.panels.push(panel);
        Ok(figure)
    }
}

fn label(loss: Loss, (deltas, segments): (bool, bool)) -> String {
    let loss = match loss {
        Loss::Random => "90 % at random",
        Loss::Range => "90 % of the keys",
        Loss::Tables => "half of the tables",
        Loss::Churn => "ten times",
    };
    let way = match (deltas, segments) {
        (false, false) => "",
        (true, _) => ", deltas",
        (false, true) => ", segments",
    };
    format!("{loss}{way}")
}
