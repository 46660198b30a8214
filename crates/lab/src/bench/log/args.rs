//! The arguments of `firn lab bench log`.

use clap::Args;
use std::path::PathBuf;

/// The figures that can be measured.
pub const FIGURES: [&str; 11] = ["5", "7", "11", "12", "13", "14", "15", "16", "17", "modern", "compose"];

/// `firn lab bench log`.
#[derive(Args, Clone, Debug)]
pub struct BenchLog {
    /// A figure of the paper; again for more
    #[arg(long, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(FIGURES),
          required_unless_present = "all")]
    pub figure: Vec<String>,
    /// All figures
    #[arg(long, conflicts_with = "figure")]
    pub all: bool,
    /// Fewer points and shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Virtual seconds of each TPC-C run [10, or 2 with --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Equal seeds give equal results
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// In real time: the figure `modern` through emulated volumes, 16 and 17 on the device under
    /// --dir
    #[arg(long, conflicts_with = "all")]
    pub real: bool,
    /// Where --real makes its files, and removes them again
    #[arg(long, value_name = "DIR", requires = "real")]
    pub dir: Option<PathBuf>,
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
