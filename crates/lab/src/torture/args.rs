//! The arguments of `firn lab torture`.

use super::store_devices::Shape;
use clap::{Args, Subcommand};
use firndb_cache_comparators::Compared;
use firndb_console::size;
use std::path::{Path, PathBuf};

/// `firn lab torture`.
#[derive(Debug, Subcommand)]
pub enum Torture {
    /// Kill the process that commits, again and again; compare what is left with what was
    /// acknowledged
    Kill(TortureKill),
    /// The process that is killed
    #[command(hide = true)]
    Child(TortureChild),
}

impl Torture {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        match self {
            Torture::Kill(args) => args.json.as_deref(),
            Torture::Child(_) => None,
        }
    }
}

/// `firn lab torture kill`.
#[derive(Args, Clone, Debug)]
pub struct TortureKill {
    /// A directory for the database, on the file system in question; made, and removed again
    #[arg(long, default_value = "firn-torture")]
    pub dir: PathBuf,
    /// Rounds: one to four kills each, then everything is verified
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Longest time between a process being ready and its death, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub longest_ms: u64,
    /// Threads that move amounts between accounts
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub clients: u16,
    /// Threads that run TPC-C on a small population, at the same time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub tpcc_clients: u16,
    /// Warehouses of the small population
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub warehouses: u32,
    /// Give each database a flash cache of this size, for example 4M, of a drawn policy; none if
    /// not given
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Have each database's store be over several devices, of a drawn layout; after a kill, take
    /// away as many as it survives now and then, and have new ones take their places
    #[arg(long)]
    pub store_array: bool,
    /// Start again with an empty directory after this number of rounds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub fresh_every: u32,
    /// Equal seeds draw equal work and equal times of death (what they fall on still differs)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keep the database when all is well, too
    #[arg(long)]
    pub keep: bool,
    /// Write what happened to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Acknowledge before committing: a fault that the verification must find
    #[arg(long, hide = true)]
    pub acknowledge_early: bool,
}

/// `firn lab torture child`.
#[derive(Args, Clone, Debug)]
pub struct TortureChild {
    /// The database's directory
    #[arg(long)]
    pub dir: PathBuf,
    /// Of the ledger
    #[arg(long)]
    pub seed: u64,
    /// Makes TPC-C's inputs differ from process to process
    #[arg(long)]
    pub run: u64,
    /// Threads on the ledger
    #[arg(long)]
    pub clients: u16,
    /// Threads of TPC-C
    #[arg(long)]
    pub tpcc_clients: u16,
    /// Warehouses of a new population
    #[arg(long)]
    pub warehouses: u32,
    /// DRAM for pages
    #[arg(long)]
    pub buffer: u64,
    /// Bytes of log between checkpoints
    #[arg(long)]
    pub checkpoint: u64,
    /// Commits that a client of the ledger has outstanding
    #[arg(long)]
    pub window: u32,
    /// Log devices of a new database
    #[arg(long)]
    pub log_devices: u32,
    /// Bytes of a new flash cache
    #[arg(long)]
    pub cache: Option<u64>,
    /// Its policy
    #[arg(long, value_parser = compared, default_value = "gsc")]
    pub cache_policy: Compared,
    /// The number of the layout of a new store over several devices
    #[arg(long, value_parser = shape)]
    pub store_shape: Option<Shape>,
    /// Put new devices in the places of lost ones
    #[arg(long)]
    pub replace_lost: bool,
    /// Have pages of tables fragmented otherwise, again and again
    #[arg(long)]
    pub change_layouts: bool,
    /// Acknowledge before committing
    #[arg(long)]
    pub acknowledge_early: bool,
}

fn shape(number: &str) -> Result<Shape, String> {
    let found = number.parse().ok().and_then(Shape::numbered);
    found.ok_or_else(|| format!("there is no layout of number {number:?}"))
}

fn compared(name: &str) -> Result<Compared, String> {
    Compared::named(name).ok_or_else(|| format!("there is no cache policy {name:?}"))
}
