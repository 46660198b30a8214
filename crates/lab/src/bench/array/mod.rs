//! `firn lab bench array`: the figures of chapter 8 of Myers's thesis (MIT 2008).
//!
//! Workers over four chips or disks under each of the ten codes ([`simulator`], [`cell`]), in every
//! cell of the thesis' parameters ([`workloads`]): its figures ([`figures`]), what it says of them
//! ([`relations`]), and the code that `firndb_array::choose` takes ([`choice`]).
//!
//! Every target is in every file of results ([`targets`]).

mod cell;
mod choice;
mod figures;
mod relations;
mod simulator;
mod targets;
mod workloads;

use crate::bench::cells::{Cells, Judged, Measured, Running};
use crate::bench::figure::Figure;
use crate::bench::kept::Head;
use cell::{Cell, Found};
use clap::Args;
use firndb_console::{Failure, commit_of_source};
use firndb_workloads::results::Conditions;
use serde_json::json;
use simulator::{Kind, Workload};

const FIGURES: [&str; 6] = ["8-1", "8-2", "8-3", "8-4", "cells", "choice"];

/// `firn lab bench array`.
#[derive(Args, Clone, Debug)]
pub struct BenchArray {
    /// A figure of the thesis; `cells`: every cell, and where what the thesis says holds; `choice`:
    /// the code that is chosen beside every single one; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// Epochs of 1 s instead of 10
    #[arg(long)]
    pub quick: bool,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

/// A run of the bench.
pub struct Bench<'a> {
    args: &'a BenchArray,
    cells: Cells<'a>,
}

pub fn run(args: &BenchArray) -> Result<(), Failure> {
    let cells = Cells::begin(&args.running, args.quick, head(args), targets::not_measured())?;
    let bench = Bench { args, cells };
    let figures = bench.cells.figures(|| bench.figures())?;
    bench.cells.show(&figures)
}

/// Virtual time of an epoch.
fn epoch_ns(args: &BenchArray) -> u64 {
    match (args.tiny, args.quick) {
        (true, _) => 100_000_000,
        (false, true) => 1_000_000_000,
        (false, false) => 10_000_000_000,
    }
}

fn head(args: &BenchArray) -> Head {
    let config = json!({ "epoch_seconds": epoch_ns(args) as f64 / 1e9, "members": simulator::MEMBERS });
    let mut conditions = Conditions::now("firn-bench/1", commit_of_source(), config, args.running.seed);
    conditions.simulated = true;
    Head::new("array", conditions)
}

impl Bench<'_> {
    fn figures(&self) -> Result<Vec<Figure>, Failure> {
        let wanted = |number: &str| self.args.all || self.args.figure.iter().any(|wanted| wanted == number);
        let mut figures = Vec::new();
        for (number, figure) in FIGURES.into_iter().zip([
            figures::replication as fn(&Bench) -> _,
            figures::fragments,
            figures::on_flash,
            figures::on_disks,
            figures::all_cells,
            choice::choice,
        ]) {
            if wanted(number) {
                figures.push(figure(self)?);
            }
        }
        Ok(figures)
    }

    /// What workers come to on these members, under each code.
    fn measure(&self, kind: Kind, workload: Workload) -> Result<Measured<Found>, Failure> {
        let cell = Cell { kind, workload, epoch_ns: epoch_ns(self.args) };
        self.cells.of(&cell, Judged::Yes, |cell, seed| Ok(cell::run(cell, seed)))
    }
}
