//! The arguments of `firn lab bench array`.

use crate::bench::cells::Running;
use clap::Args;

pub const FIGURES: [&str; 11] =
    ["8-1", "8-2", "8-3", "8-4", "cells", "choice", "engine", "tail", "rates", "rebuild", "moving"];
/// Those over the engine.
pub const ENGINE: [&str; 5] = ["engine", "tail", "rates", "rebuild", "moving"];

/// `firn lab bench array`.
#[derive(Args, Clone, Debug)]
pub struct BenchArray {
    /// A figure of the thesis; `cells`: every cell, and where what the thesis says holds; `choice`:
    /// the code that is chosen beside every single one; over the engine, see --engine; again for
    /// more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present_any = ["all", "engine"])]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// The figures over the engine: `engine`, two tables under every code; `tail`, a late or frozen
    /// member; `rates`, four members beside one; `rebuild`, a member replaced;
    /// `moving`, another layout for a table
    #[arg(long, conflicts_with = "all")]
    pub engine: bool,
    /// Epochs of 1 s instead of 10; over the engine, less data and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// To see that the command works; its figures mean nothing
    #[arg(long, hide = true)]
    pub tiny: bool,
    #[command(flatten)]
    pub running: Running,
}

impl BenchArray {
    /// Virtual time of an epoch.
    pub fn epoch_ns(&self) -> u64 {
        self.by_size(100_000_000, 1_000_000_000, 10_000_000_000)
    }

    /// One of three by how much is to be measured.
    pub fn by_size<T>(&self, tiny: T, quick: T, full: T) -> T {
        match (self.tiny, self.quick) {
            (true, _) => tiny,
            (false, true) => quick,
            (false, false) => full,
        }
    }

    /// Whether the figure is asked for.
    pub fn wants(&self, number: &str) -> bool {
        let is_named = self.figure.iter().any(|figure| figure == number);
        is_named || self.all || self.engine && ENGINE.contains(&number)
    }
}
