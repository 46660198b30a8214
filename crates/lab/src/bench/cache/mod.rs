//! `firn lab bench cache`: the tables and figures of FaCE (VLDB 2012) measured again, in virtual
//! time, on Firn.
//!
//! Every measurement but the count of instructions is a simulation: the real engine on emulated
//! devices, its work charged by a stated cost model. Equal arguments give equal results, to the
//! byte of the JSON but for its date and its length.

mod bounds;
pub mod compared;
pub mod found;
mod in_place;
mod lazy;
pub mod machine;
mod meter;
mod more;
mod overhead;
mod policy;
pub mod population;
mod restart;
mod restart_figure;
pub mod run;
pub mod scan;
mod sizes;

use crate::bench::cells::{Cells, Judged, Measured, Running};
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use clap::{Args, ValueEnum};
use compared::LC;
use firndb_cache_comparators::Compared;
use firndb_console::{Failure, commit_of_source};
use firndb_profile::{DeviceProfile, Op, Pattern};
use firndb_workloads::results::Conditions;
use found::Found;
use machine::{CacheCell, Cell, Clients, DRAM_PERCENT, Data};
use population::{Populations, Size};
use restart::{RestartCell, RestartFound};
use scan::Scanned;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const TABLES: [&str; 4] = ["3", "4", "5", "6"];
const FIGURES: [&str; 5] = ["4", "5", "6", "overhead", "policy"];

/// How large a database is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// 200 warehouses, 20 clients
    Full,
    /// 100 warehouses, 10 clients
    Quick,
    /// To see that the command works; its figures mean nothing
    Tiny,
}

/// `firn lab bench cache`.
#[derive(Args, Clone, Debug)]
pub struct BenchCache {
    /// A table of the paper; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(TABLES),
          required_unless_present_any = ["all", "figure"])]
    pub table: Vec<String>,
    /// A figure of the paper; `overhead`: the processor's instructions that a cache costs where it
    /// cannot help; `policy`: Firn's policies over loads and drives (not among all); again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES))]
    pub figure: Vec<String>,
    /// All tables and figures
    #[arg(long, conflicts_with_all = ["table", "figure"])]
    pub all: bool,
    /// A smaller database, fewer points, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// The database [full, or quick with --quick]
    #[arg(long, value_enum, value_name = "SIZE")]
    pub size: Option<SizeName>,
    /// Sizes of the cache in percent of the database [4 to 28, as in the paper]
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    pub percent: Vec<f64>,
    /// Policies: exadata, tac, lc, fifo, gr, gsc, select, keep; gr-paper, gsc-paper: without Firn's
    /// write-back ahead; lc:0.3: cleaning from this share of dirty pages on; the best is shown if
    /// there are several [all, and several shares]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Warehouses that a client works on, in tables 3 and 4 and figure 4 [both]
    #[arg(long, value_enum, value_name = "WHICH", value_delimiter = ',')]
    pub clients: Vec<Clients>,
    /// Clients beside those of TPC-C that scan a table which is larger than DRAM, without end
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub scanners: usize,
    /// Drives of the cache for `--figure policy` [samsung-470, x25-e, sata-ssd, nvme,
    /// network-volume]
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub flash: Vec<String>,
    /// What the pages are on: a profile of one drive or array [cheetah-15k-raid8]
    #[arg(long, value_name = "PROFILE")]
    pub data: Option<String>,
    /// The disks take the time of writes in runs, as Firn's store makes them, instead of in place
    /// as the paper's
    #[arg(long)]
    pub runs: bool,
    /// Virtual seconds of each run [10, or 5 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    #[command(flatten)]
    pub running: Running,
}

pub fn run(args: &BenchCache) -> Result<(), Failure> {
    check(args)?;
    let running = &args.running;
    let cells = Cells::begin(running, args.quick, head(args), Vec::new())?;
    let bench =
        Bench { args, stop: cells.stop(), cells, populations: Arc::new(Populations::new(running.seed)) };
    let figures = bench.cells.figures(|| bench.figures())?;
    bench.cells.show(&figures)
}

/// The conditions of all results.
fn head(args: &BenchCache) -> Head {
    let size = size(args);
    let config = json!({
        "quick": args.quick, "seconds": time(args).as_secs_f64(), "cores": machine::CORES,
        "size": size.name, "warehouses": size.scale.warehouses, "items": size.scale.items,
        "customers": size.scale.customers, "clients": size.clients, "dram_percent": DRAM_PERCENT,
        "runs": args.runs, "scanners": args.scanners, "data": args.data,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("cache", conditions)
}

fn size(args: &BenchCache) -> Size {
    let usual = if args.quick { SizeName::Quick } else { SizeName::Full };
    match args.size.unwrap_or(usual) {
        SizeName::Full => Size::FULL,
        SizeName::Quick => Size::QUICK,
        SizeName::Tiny => Size::TINY,
    }
}

/// Virtual time of a run.
fn time(args: &BenchCache) -> Duration {
    Duration::from_secs_f64(args.seconds.unwrap_or(if args.quick { 5.0 } else { 10.0 }))
}

fn check(args: &BenchCache) -> Result<(), Failure> {
    if args.seconds.is_some_and(|seconds| !(0.01..=3600.0).contains(&seconds)) {
        return Err(Failure::bad_argument("--seconds must be a number from 0.01 to 3600"));
    }
    if args.percent.iter().any(|percent| !(1.0..=90.0).contains(percent)) {
        return Err(Failure::bad_argument("--percent takes numbers from 1 to 90"));
    }
    if let Some(name) = args.policy.iter().find(|name| Compared::named(name).is_none()) {
        return Err(Failure::bad_argument(format!("there is no cache policy {name:?}")));
    }
    Ok(())
}

/// What tables and figures have in common.
pub struct Bench<'a> {
    args: &'a BenchCache,
    stop: &'static AtomicBool,
    /// Tables and figures share cells.
    pub cells: Cells<'a>,
    populations: Arc<Populations>,
}

impl Bench<'_> {
    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let (all, args) = (self.args.all, self.args);
        let table = |number: &str| all || args.table.iter().any(|wanted| wanted == number);
        let figure = |number: &str| all || args.figure.iter().any(|wanted| wanted == number);
        let mut figures = Vec::new();
        if table("3") {
            figures.push(sizes::hits(self)?);
        }
        if table("4") {
            figures.push(sizes::utilization(self)?);
        }
        if figure("4") {
            figures.push(sizes::throughput(self)?);
        }
        if table("5") {
            figures.push(more::money(self)?);
        }
        if figure("5") {
            figures.push(more::disks(self)?);
        }
        if figure("overhead") {
            figures.push(overhead::overhead(&self.cells)?);
        }
        if table("6") || figure("6") {
            figures.extend(restart_figure::restarts(self)?);
        }
        if args.figure.iter().any(|wanted| wanted == "policy") {
            figures.extend(policy::loads(self)?);
        }
        Ok(figures)
    }

    pub fn is_quick(&self) -> bool {
        self.args.quick
    }

    fn size(&self) -> Size {
        size(self.args)
    }

    /// Percents of the database: 2 to 14 GB of the paper's 50.
    fn percents(&self) -> Vec<f64> {
        match (self.args.percent.as_slice(), self.args.quick) {
            ([], false) => vec![4.0, 8.0, 12.0, 16.0, 20.0, 28.0],
            ([], true) => vec![4.0, 8.0, 20.0],
            (given, _) => given.to_vec(),
        }
    }

    fn clients(&self) -> Vec<Clients> {
        let wanted = |clients: &Clients| self.args.clients.is_empty() || self.args.clients.contains(clients);
        Clients::ALL.into_iter().filter(wanted).collect()
    }

    fn policies(&self) -> Vec<Compared> {
        let lc_somehow = |name: &String| name.starts_with("lc:");
        let wanted = |policy: &Compared| {
            let named = self.args.policy.iter().any(|name| *name == policy.name());
            named || self.args.policy.is_empty() || *policy == LC && self.args.policy.iter().any(lc_somehow)
        };
        compared::ALL.into_iter().filter(wanted).collect()
    }

    fn profile(&self, name: &str) -> Result<DeviceProfile, Failure> {
        crate::tpcc::machine::profile(name)
    }

    fn disks(&self) -> Result<Data, Failure> {
        let profile = self.profile(self.args.data.as_deref().unwrap_or("cheetah-15k-raid8"))?;
        Ok(if self.args.runs { Data::Disks(profile) } else { Data::DisksInPlace(profile) })
    }

    /// The machine of section 5.2.
    fn cell(&self, data: Data, cache: Option<CacheCell>, clients: Clients) -> Result<Cell, Failure> {
        Ok(Cell {
            size: self.size(),
            data,
            cache,
            dram_percent: DRAM_PERCENT,
            log: self.profile("disk-10k-wce")?,
            clients,
            scanners: self.args.scanners,
            scanned: Scanned::Stock,
            default_options: false,
            time: time(self.args),
        })
    }

    fn cached(&self, policy: Compared, flash: &str, percent: f64, clients: Clients) -> Result<Cell, Failure> {
        let cache = CacheCell { policy, profile: self.profile(flash)?, percent };
        self.cell(self.disks()?, Some(cache), clients)
    }

    /// What is found of the cell, with each of its seeds; of lazy cleaning at its best.
    fn measure(&self, cell: &Cell, judged: Judged) -> Result<Measured<Found>, Failure> {
        let shares = lazy::shares(&self.args.policy, self.args.quick);
        let Some(cells) = lazy::swept(cell, &shares) else { return self.measure_one(cell, judged) };
        let found = cells.iter().map(|cell| self.measure_one(cell, judged));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let rate = |found: &Measured<Found>| found.value(|found| found.tpm).median();
        Ok(found.into_iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).expect("there are shares"))
    }

    /// What is found of the cell as it is.
    fn measure_one(&self, cell: &Cell, judged: Judged) -> Result<Measured<Found>, Failure> {
        let (populations, stop) = (self.populations.clone(), self.stop);
        self.cells.of(cell, judged, move |cell, seed| {
            run::run(cell, populations.of(cell.size, machine::CORES)?, seed, stop)
        })
    }

    /// Likewise of kills and what comes after them.
    fn restart(&self, cell: &RestartCell, judged: Judged) -> Result<Measured<RestartFound>, Failure> {
        let (populations, stop) = (self.populations.clone(), self.stop);
        self.cells.of(cell, judged, move |of, seed| {
            restart::run(of, populations.of(of.cell.size, machine::CORES)?, seed, stop)
        })
    }

    /// Microseconds of the whole drive for a page written at random, and for one of a large write.
    fn page_writes(&self, flash: &str) -> Result<(f64, f64), Failure> {
        const PAGES: f64 = 64.0;
        const PAGE: f64 = 4096.0;
        let profile = self.profile(flash)?;
        let us = |pattern, bytes| bounds::request_us(&profile, Op::Write, pattern, bytes);
        Ok((us(Pattern::Random, PAGE)?, us(Pattern::Sequential, PAGES * PAGE)? / PAGES))
    }
}
