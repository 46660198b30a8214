//! The arguments of a TPC-C run.

use clap::{Args, ValueEnum};
use firndb::{Deltas, Placement};
use firndb_console::size;
use std::path::PathBuf;

/// Isolation levels that TPC-C may run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationName {
    /// Each transaction sees the database as it was at its first read; of two that write one row,
    /// the first wins
    Snapshot,
    /// As if transactions had run one after the other
    Serializable,
}

/// Names of settings of deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeltasName {
    /// Pages are written whole.
    Off,
    /// Small changes are written as deltas.
    On,
    /// By the profile of the store's device.
    Auto,
}

impl From<DeltasName> for Deltas {
    fn from(name: DeltasName) -> Deltas {
        match name {
            DeltasName::Off => Deltas::Off,
            DeltasName::On => Deltas::On,
            DeltasName::Auto => Deltas::Auto,
        }
    }
}

/// Names of placements of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementName {
    /// In runs of free places.
    Threaded,
    /// In whole empty segments, which a cleaner makes.
    Segments,
    /// By the profile of the store's device.
    Auto,
}

impl From<PlacementName> for Placement {
    fn from(name: PlacementName) -> Placement {
        match name {
            PlacementName::Threaded => Placement::Threaded,
            PlacementName::Segments => Placement::Segments,
            PlacementName::Auto => Placement::Auto,
        }
    }
}

/// When a client goes on after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CommitName {
    /// When the commit is durable
    Wait,
    /// At once; only commits that have become durable count
    Async,
}

/// How large a population is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScaleName {
    /// The specification's
    Full,
    /// A few hundred rows a warehouse, to try things out; its figures are not TPC-C's
    Tiny,
}

/// What a run of TPC-C is to do, on whatever devices: `firn tpcc`, and a part of `firn lab tpcc`.
#[derive(Args, Clone, Debug)]
pub struct TpccArgs {
    /// The database's directory; a second run on it goes on with it
    #[arg(long, default_value = "tpcc-db")]
    pub dir: PathBuf,
    /// Warehouses to load (about 100 MB each)
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub warehouses: u32,
    /// Client threads
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seconds: u64,
    /// Seconds to run before anything is counted
    #[arg(long, default_value_t = 2)]
    pub warmup: u64,
    /// DRAM for pages, for example 64M or 2G
    #[arg(long, default_value = "512M", value_parser = size::parse)]
    pub buffer: u64,
    /// DRAM for the page map, beside --buffer [a sixteenth of --buffer, out of it]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub map: Option<u64>,
    /// Whether pages are written as deltas
    #[arg(long, value_enum, default_value_t = DeltasName::Auto)]
    pub deltas: DeltasName,
    /// DRAM for deltas that wait to be written [a sixteenth of --buffer], out of it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub delta_buffer: Option<u64>,
    /// Where new versions of pages go
    #[arg(long, value_enum, default_value_t = PlacementName::Threaded)]
    pub placement: PlacementName,
    /// Isolation level
    #[arg(long, value_enum, default_value_t = IsolationName::Snapshot)]
    pub isolation: IsolationName,
    /// Whether clients wait for their commits
    #[arg(long, value_enum, default_value_t = CommitName::Wait)]
    pub commit: CommitName,
    /// Equal seeds draw equal inputs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Load and check, run nothing
    #[arg(long, conflicts_with_all = ["no_load", "check_only"])]
    pub load_only: bool,
    /// Fail if the directory holds no loaded database
    #[arg(long)]
    pub no_load: bool,
    /// Check the consistency conditions, run nothing
    #[arg(long)]
    pub check_only: bool,
    /// Do not check the consistency conditions after loading and running: that reads the whole
    /// database
    #[arg(long, conflicts_with = "check_only")]
    pub no_check: bool,
    /// Files of log of a new database, written at once [as many as the device's latency asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub log_devices: Option<u32>,
    /// Where a new database's log is, instead of in --dir: a file or raw device; again for each log
    /// device
    #[arg(long, value_name = "PATH", conflicts_with = "log_devices")]
    pub log_path: Vec<PathBuf>,
    /// Where a new database's page store is, instead of in --dir: a file or raw device; again for
    /// each device of a store over several
    #[arg(long, value_name = "PATH")]
    pub store_path: Vec<PathBuf>,
    /// Of a store over several devices: how many may be lost without losing anything
    #[arg(long, value_name = "N", default_value_t = 0, requires = "store_path")]
    pub store_survives: usize,
    /// Instead: each page becomes W fragments, and any M of them give it back
    #[arg(long, value_name = "M:W", value_parser = store_code, requires = "store_path", conflicts_with = "store_survives")]
    pub store_code: Option<(usize, usize)>,
    /// Bytes of a new flash cache between DRAM and the page store, for example 2G (see
    /// docs/guide/cache.md); none if not given
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Where a new flash cache is, instead of in --dir: a file or raw device
    #[arg(long, value_name = "PATH", requires = "cache")]
    pub cache_path: Option<PathBuf>,
    /// What stays in the flash cache: keep, gsc, select, gr, fifo; or, where there is firn lab,
    /// another cache: lc, tac, exadata
    #[arg(long, value_name = "NAME", default_value = "keep")]
    pub cache_policy: String,
    /// Record the requests to each of the database's files, as DIR/NAME.trace (see firn lab nand
    /// replay)
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Archive all log in this directory (see docs/guide/archive-and-backup.md)
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
    /// Take a backup into this directory in the middle of the run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["load_only", "check_only"])]
    pub backup_to: Option<PathBuf>,
    /// Size of the population
    #[arg(long, value_enum, default_value_t = ScaleName::Full, hide = true)]
    pub scale: ScaleName,
    /// Run this number of transactions in each client, all of them counted, instead of --seconds
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
}

/// The two numbers of `M:W`.
fn store_code(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(':').and_then(|(m, w)| Some((m.parse().ok()?, w.parse().ok()?)));
    numbers.ok_or_else(|| format!("{text} is not two numbers, as 3:4 is"))
}
