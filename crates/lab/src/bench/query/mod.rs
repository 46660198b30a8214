//! `firn lab bench query`: what Myers' thesis measured of indexes and joins (chapters 4 and 5), and
//! how good the planner's choices are, in virtual time on emulated drives.
//!
//! [`data`] has the tables, [`machine`] measures one query from a stated state; a figure a file.
//! Every target is in every file of results ([`targets`]).

mod adaptive;
mod data;
mod joins;
mod machine;
mod one_table;
mod planner;
mod planning;
mod targets;
mod ways;

use crate::bench::cells::{Cells, Running};
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use crate::cost::cpu::Cpu;
use clap::Args;
use data::Scale;
use firndb_console::{Failure, commit_of_source};
use firndb_profile::DeviceProfile;
use firndb_workloads::results::Conditions;
use serde_json::json;
use std::sync::Arc;

const FIGURES: [&str; 5] = ["4-2", "5-1", "planner", "adaptive", "planning"];
const TABLES: [&str; 1] = ["5.1"];

/// `firn lab bench query`.
#[derive(Args, Clone, Debug)]
pub struct BenchQuery {
    /// A figure: `4-2`, an index against a scan; `5-1`, four joins; `planner`, its choice beside
    /// every forced plan; `adaptive`, its choice by wrong estimates; `planning`, its time; again
    /// for more
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present_any = ["all", "table"])]
    pub figure: Vec<String>,
    /// A table: `5.1`, sizes of the data sets
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(TABLES))]
    pub table: Vec<String>,
    /// All figures and tables
    #[arg(long, conflicts_with_all = ["figure", "table"])]
    pub all: bool,
    /// A twentieth of the rows and of the memory; of the figures `planner` and `adaptive` a tenth
    /// of their fifth
    #[arg(long)]
    pub quick: bool,
    /// Rows and memory, in units of the thesis' [1; 0.2 of the figures `planner`
    /// and `adaptive`]
    #[arg(long, value_name = "FACTOR", conflicts_with = "quick")]
    pub scale: Option<f64>,
    /// What computing costs: `free`, `firn` (measured), or `firn*FACTOR`
    #[arg(long, value_name = "COST", default_value = "firn", value_parser = computing_of)]
    pub cpu: f64,
    /// Drives, instead of those that each figure is of
    #[arg(long, value_name = "PROFILE", value_delimiter = ',')]
    pub profile: Vec<String>,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

fn computing_of(text: &str) -> Result<f64, String> {
    match text.parse::<Cpu>() {
        Ok(Cpu::Firn(factor)) => Ok(factor),
        _ => Err("it is free, firn or firn*FACTOR".to_owned()),
    }
}

impl BenchQuery {
    fn computing(&self) -> f64 {
        self.cpu
    }
}

/// A run of the bench.
pub struct Bench<'a> {
    args: &'a BenchQuery,
    cells: Cells<'a>,
    loaded: Arc<data::AllLoaded>,
}

pub fn run(args: &BenchQuery) -> Result<(), Failure> {
    if args.scale.is_some_and(|scale| !(0.001..=10.0).contains(&scale)) {
        return Err(Failure::bad_argument("--scale must be a number from 0.001 to 10"));
    }
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench { args, cells, loaded: Arc::default() };
    let figures = bench.cells.figures(|| bench.figures())?;
    bench.cells.show(&figures)
}

fn head(args: &BenchQuery) -> Head {
    let config = json!({
        "quick": args.quick, "scale": args.scale, "profiles": args.profile, "computing": args.cpu,
    });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("query", conditions)
}

impl Bench<'_> {
    /// Of a figure that is of this scale if nothing else is asked for.
    fn scale(&self, usual: f64) -> Scale {
        let quick = if usual < 1.0 { 0.1 } else { 0.05 };
        Scale(match (self.args.scale, self.args.quick) {
            _ if self.args.tiny => 0.002,
            (Some(scale), _) => scale,
            (None, true) => quick * usual,
            (None, false) => usual,
        })
    }

    fn wants(&self, number: &str) -> bool {
        self.args.all || self.args.figure.iter().chain(&self.args.table).any(|wanted| wanted == number)
    }

    /// The drives of a figure.
    fn drives(&self, usual: &[&str]) -> Result<Vec<DeviceProfile>, Failure> {
        let given: Vec<&str> = self.args.profile.iter().map(String::as_str).collect();
        let names = if given.is_empty() { usual } else { &given };
        names.iter().map(|name| crate::tpcc::machine::profile(name)).collect()
    }

    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let mut figures = Vec::new();
        if self.wants("4-2") {
            figures.push(one_table::figure(self)?);
        }
        if self.wants("5.1") {
            figures.push(joins::sizes(self)?);
        }
        if self.wants("5-1") {
            figures.push(joins::figure(self)?);
        }
        if self.wants("planner") {
            figures.push(planner::figure(self)?);
        }
        if self.wants("adaptive") {
            figures.push(adaptive::figure(self)?);
        }
        if self.wants("planning") {
            let drives = self.drives(&planning::DRIVES)?;
            figures.push(planning::figure(&drives, self.args.running.seed)?);
        }
        Ok(figures)
    }
}
