//! The arguments of `firn lab bench log`.

use crate::bench::cells::Running;
use clap::Args;
use std::path::PathBuf;

/// The figures that can be measured.
pub const FIGURES: [&str; 13] =
    ["2", "5", "6", "7", "11", "12", "13", "14", "15", "16", "17", "modern", "compose"];

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
    /// Virtual seconds of each run that a target judges, four times those of others [10, or 1 with
    /// --quick]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// In real time: the figure `modern` through emulated volumes, 16 and 17 on the device under
    /// --dir
    #[arg(long, conflicts_with_all = ["all", "resume", "bands", "seeds"])]
    pub real: bool,
    /// Where --real makes its files, and removes them again
    #[arg(long, value_name = "DIR", requires = "real")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub running: Running,
}
