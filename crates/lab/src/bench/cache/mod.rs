//! `firn lab bench cache`: the tables and figures of FaCE (VLDB 2012) measured again, in virtual
//! time, on Firn.
//!
//! Every measurement is a simulation: the real engine on emulated devices, its work charged by a
//! stated cost model. Equal arguments give equal results, to the byte of the JSON but for its date
//! and its length.

mod compared;
mod in_place;
mod machine;
mod meter;
mod more;
mod population;
mod restart;
mod sizes;

use crate::bench::figure::{Figure, round};
use crate::bench::picture;
use clap::{Args, ValueEnum};
use compared::{EXADATA, FIFO, GR, GSC, KEEP, LC, SELECT, TAC};
use firndb_cache_comparators::Compared;
use firndb_console::output::write_json;
use firndb_console::{Failure, commit_of_source, interrupt, progress};
use firndb_profile::DeviceProfile;
use firndb_workloads::results::{BenchResult, Conditions};
use indicatif::ProgressBar;
use machine::{CacheCell, Cell, DRAM_PERCENT, Data, Found, NO_CHECKPOINT};
use population::{Population, Size};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TABLES: [&str; 4] = ["3", "4", "5", "6"];
const FIGURES: [&str; 4] = ["4", "5", "6", "overhead"];

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
    /// A figure of the paper, or `overhead`: what the cache costs where it cannot help; again for
    /// more
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
    /// Policies: exadata, tac, lc, fifo, gr, gsc, select, keep [all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Clients work on all warehouses alike, instead of one of its own each
    #[arg(long)]
    pub everywhere: bool,
    /// The disks take the time of writes in runs, as Firn's store makes them, instead of in place
    /// as the paper's
    #[arg(long)]
    pub runs: bool,
    /// Virtual seconds of each run [20, or 5 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Show each measurement on standard error when it is done
    #[arg(long)]
    pub verbose: bool,
    /// Write the pictures into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

pub fn run(args: &BenchCache) -> Result<(), Failure> {
    check(args)?;
    if let Some(dir) = &args.pictures {
        std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    }
    let stop = interrupt::install()?;
    let began = Instant::now();
    let spinner = progress::spinner("beginning");
    let mut bench = Bench { args, stop, population: None, found: BTreeMap::new(), rows: Vec::new(), spinner };
    let figures = bench.figures();
    bench.spinner.finish_and_clear();
    let figures = figures?;
    picture::show(&figures, args.pictures.as_deref())?;
    match &args.json {
        Some(path) => write_json(path, &bench.results(&figures, began.elapsed())),
        None => Ok(()),
    }
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
    population: Option<Population>,
    /// What was measured already, by the name of its cell: tables and figures share runs.
    found: BTreeMap<String, Found>,
    /// Other raw measurements.
    rows: Vec<Value>,
    spinner: ProgressBar,
}

impl Bench<'_> {
    fn figures(&mut self) -> Result<Vec<Figure>, Failure> {
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
        if table("6") || figure("6") {
            let [six, course] = restart::restarts(self)?;
            figures.push(six);
            figures.push(course);
        }
        if figure("overhead") {
            figures.push(more::overhead(self)?);
        }
        Ok(figures)
    }

    fn size(&self) -> Size {
        let usual = if self.args.quick { SizeName::Quick } else { SizeName::Full };
        match self.args.size.unwrap_or(usual) {
            SizeName::Full => Size::FULL,
            SizeName::Quick => Size::QUICK,
            SizeName::Tiny => Size::TINY,
        }
    }

    /// Percents of the database: 2 to 14 GB of the paper's 50.
    fn percents(&self) -> Vec<f64> {
        match (self.args.percent.as_slice(), self.args.quick) {
            ([], false) => vec![4.0, 8.0, 12.0, 16.0, 20.0, 28.0],
            ([], true) => vec![4.0, 12.0, 20.0],
            (given, _) => given.to_vec(),
        }
    }

    fn policies(&self) -> Vec<Compared> {
        let wanted = |policy: &Compared| {
            self.args.policy.is_empty() || self.args.policy.iter().any(|name| name == policy.name())
        };
        // In the order of the tables.
        [EXADATA, TAC, LC, FIFO, GR, GSC, SELECT, KEEP].into_iter().filter(wanted).collect()
    }

    fn profile(&self, name: &str) -> Result<DeviceProfile, Failure> {
        crate::tpcc::machine::profile(name)
    }

    fn disks(&self) -> Result<Data, Failure> {
        let profile = self.profile("cheetah-15k-raid8")?;
        Ok(if self.args.runs { Data::Disks(profile) } else { Data::DisksInPlace(profile) })
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds.unwrap_or(if self.args.quick { 5.0 } else { 20.0 }))
    }

    /// The machine of section 5.2.
    fn cell(&self, data: Data, cache: Option<CacheCell>) -> Result<Cell, Failure> {
        Ok(Cell {
            size: self.size(),
            data,
            cache,
            dram_percent: DRAM_PERCENT,
            log: self.profile("disk-10k-wce")?,
            pinned: !self.args.everywhere,
            checkpoint_bytes: NO_CHECKPOINT,
            fills: true,
            time: self.time(),
            seed: self.args.seed,
        })
    }

    fn cached(&self, policy: Compared, flash: &str, percent: f64) -> Result<Cell, Failure> {
        let cache = CacheCell { policy, profile: self.profile(flash)?, percent };
        self.cell(self.disks()?, Some(cache))
    }

    /// Says what is being done; an error if Ctrl-C came.
    fn doing(&self, what: String) -> Result<(), Failure> {
        self.spinner.set_message(what);
        if self.stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped before all was measured"));
        }
        Ok(())
    }

    /// Loads the database, if that was not done already.
    fn load(&mut self) -> Result<(), Failure> {
        if self.population.is_none() {
            let size = self.size();
            self.doing(format!("loading {} warehouses", size.scale.warehouses))?;
            let began = Instant::now();
            let population = population::load(size, self.args.seed, machine::CORES)?;
            if self.args.verbose {
                eprintln!("loaded {:.1} MB in {:?}", population.bytes as f64 / 1e6, began.elapsed());
            }
            self.population = Some(population);
        }
        Ok(())
    }

    /// Measures a cell, if that was not done already.
    fn measure(&mut self, cell: &Cell) -> Result<Found, Failure> {
        let name = cell.name();
        if let Some(found) = self.found.get(&name) {
            return Ok(found.clone());
        }
        self.load()?;
        self.doing(name.clone())?;
        let population = self.population.as_ref().expect("it was loaded");
        let found = machine::run(cell, population, self.stop)?;
        if self.args.verbose {
            eprintln!("{name}: {found:?}");
        }
        self.found.insert(name, found.clone());
        Ok(found)
    }

    fn results(&self, figures: &[Figure], took: Duration) -> BenchResult<Value> {
        let size = self.size();
        let config = json!({
            "measured": figures.iter().map(|figure| format!("{} {}", figure.kind, figure.number)).collect::<Vec<_>>(),
            "size": size.name, "warehouses": size.scale.warehouses, "items": size.scale.items,
            "customers": size.scale.customers, "clients": size.clients, "dram_percent": DRAM_PERCENT,
            "percents": self.percents(), "seconds": self.time().as_secs_f64(), "cores": machine::CORES, "everywhere": self.args.everywhere, "runs": self.args.runs,
            "policies": self.policies().iter().map(|policy| policy.name()).collect::<Vec<_>>(),
        });
        let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, self.args.seed);
        conditions.simulated = true;
        conditions.seconds = took.as_secs_f64();
        BenchResult {
            conditions,
            bench: "cache".into(),
            rows: self.found.iter().map(|(name, found)| row(name, found)).chain(self.rows.clone()).collect(),
            targets: figures.iter().flat_map(|figure| figure.targets.clone()).collect(),
            paper: figures.iter().flat_map(Figure::paper).collect(),
        }
    }
}

/// A measurement as a row of the results.
fn row(name: &str, found: &Found) -> Value {
    let device = |device: &machine::DeviceFound| {
        json!({
            "utilization": round(device.utilization), "busy_us_per_transaction": round(device.busy_us),
            "pages_per_second": round(device.pages), "reads_per_transaction": round(device.reads),
            "writes_per_transaction": round(device.writes),
            "write_bytes_per_transaction": round(device.write_bytes),
            "sequential_share_of_write_bytes": round(device.sequential),
        })
    };
    json!({
        "cell": name, "virtual_seconds": round(found.seconds), "commits": found.commits,
        "transactions_per_second": round(found.per_second), "tpmC": round(found.tpm),
        "hit_rate": round(found.hit_rate), "write_reduction": round(found.write_reduction),
        "duplicate_share": round(found.duplicates), "misses_per_transaction": round(found.misses),
        "dirty_evictions_per_transaction": round(found.dirty_out),
        "write_backs_per_transaction": round(found.write_backs),
        "map_reads_per_transaction": round(found.map_reads),
        "flash": device(&found.flash), "store": device(&found.store),
        "lock_wait_share": round(found.lock_wait_share), "retries_per_transaction": round(found.retries),
        "batches_written_by_misses": found.helped_batches, "database_bytes": found.database_bytes,
        "frames": found.frames, "cache_slots": found.cache_slots,
        "trace_hash": format!("{:016x}", found.trace_hash),
    })
}
