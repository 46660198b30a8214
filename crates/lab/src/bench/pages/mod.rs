//! `firn lab bench pages`: the figures of Harter and Chae, *Hybrid Transaction Recovery with Flash*
//! (2010), measured again in virtual time.
//!
//! A page file, store and log on one emulated drive ([`machine`]), one client that works on it
//! ([`work`]), in each mode of page recovery ([`cell`]); a figure or two a file. Firn's `log` is
//! the paper's ARIES, but has a cleaner, group commit, undo in memory and a page map; what the
//! paper measured is modelled beside it ([`prototype`]).
//!
//! Every target is in every file of results ([`targets`]).

mod archives;
mod builds;
mod cell;
mod drives;
mod grid;
mod loads;
mod machine;
mod memory;
mod prototype;
mod prototypes;
mod setting;
mod steps;
mod targets;
mod values;
mod work;

use crate::bench::cells::Cells;
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use serde_json::json;
pub use setting::BenchPages;
use setting::{Bench, DRIVES, FIGURES, LIMITED, pages};
use std::sync::Arc;

pub fn run(args: &BenchPages) -> Result<(), Failure> {
    let given: Vec<&str> = args.profile.iter().map(String::as_str).collect();
    let names = if given.is_empty() { &DRIVES[..] } else { &given };
    let drives = names.iter().map(|name| crate::tpcc::machine::profile(name));
    let drives = drives.collect::<Result<Vec<_>, _>>()?;
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench { args, stop: cells.stop(), cells, drives, loaded: Arc::default() };
    let figures = bench.cells.figures(|| figures(&bench))?;
    bench.cells.show(&figures)
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

type MakeFigure = fn(&Bench) -> Result<Figure, Failure>;

fn figures(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let wants = |number: &str| bench.args.all || bench.args.figure.iter().any(|it| it == number);
    let all: [MakeFigure; FIGURES.len()] = [
        drives::reads,
        steps::table,
        memory::splits,
        grid::cells,
        grid::abort,
        prototypes::figure,
        memory::limited,
        memory::unlimited,
        steps::dirty,
        values::figure,
        loads::figure,
        builds::figure,
        archives::figure,
    ];
    let wanted = FIGURES.into_iter().zip(all).filter(|(number, _)| wants(number));
    wanted.map(|(_, figure)| figure(bench)).collect()
}
