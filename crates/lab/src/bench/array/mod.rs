//! `firn lab bench array`: the figures of chapter 8 of Myers's thesis (MIT 2008).
//!
//! Workers over four chips or disks under each of the ten codes ([`simulator`], [`cell`]), in every
//! cell of the thesis' parameters ([`workloads`]): its figures ([`figures`]), what it says of them
//! ([`relations`]), and the code that `firndb_array::choose` takes ([`choice`]).
//!
//! The store over an array of emulated devices ([`devices`]): four members beside one ([`rates`]),
//! a late or frozen member ([`tail`]), a lost one replaced ([`rebuild`]), a table that gets
//! another layout ([`moving`]), every code for a table that is read and one that is written
//! ([`engine`]).
//!
//! Every target is in every file of results ([`targets`]).

mod args;
mod auto;
mod batches;
mod cell;
mod choice;
pub mod devices;
mod engine;
mod figures;
mod measuring;
mod moving;
mod rates;
mod rebuild;
mod rebuild_loads;
mod relations;
mod simulator;
mod tables;
mod tail;
mod targets;
mod workloads;

pub use args::BenchArray;

use crate::bench::cells::Cells;
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use args::FIGURES;
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use measuring::Bench;
use serde_json::json;
use std::sync::Arc;

pub fn run(args: &BenchArray) -> Result<(), Failure> {
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench {
        args,
        cells,
        loaded: Arc::default(),
        half_full: Arc::default(),
        tpcc: Arc::default(),
        with_table: Arc::default(),
    };
    let figures = bench.cells.figures(|| figures_of(&bench))?;
    bench.cells.show(&figures)
}

fn head(args: &BenchArray) -> Head {
    let epoch_seconds = args.epoch_ns() as f64 / 1e9;
    let members = simulator::MEMBERS;
    let config = json!({ "epoch_seconds": epoch_seconds, "members": members, "quick": args.quick });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("array", conditions)
}

fn figures_of(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (number, figure) in FIGURES.into_iter().zip([
        figures::replication as fn(&Bench) -> _,
        figures::fragments,
        figures::on_flash,
        figures::on_disks,
        figures::all_cells,
        choice::choice,
        engine::engine,
        tail::tail,
        rates::rates,
        rebuild::rebuild,
        moving::moving,
    ]) {
        if bench.args.wants(number) {
            figures.push(figure(bench)?);
        }
    }
    Ok(figures)
}
