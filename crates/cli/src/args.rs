//! The command line.

use crate::cpu::Cpu;
use crate::sim::Sim;
use crate::size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use firn::CachePolicy;
use std::path::{Path, PathBuf};

/// Firn: an embeddable, transactional, flash-tiered storage engine.
#[derive(Debug, Parser)]
#[command(name = "firn", version, about, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a TPC-C database, run it with durable commits, check it, and print what happened
    Tpcc(Tpcc),
    /// Walk every page, tree, index and log block; exit status 1 if anything is damaged
    Check(Check),
    /// Show what a database says of itself
    Stat(Stat),
    /// Show what is stored: the log, a page, a table, or the catalog
    Dump(Dump),
    /// Copy a database, or verify a copy
    Backup(crate::backup::Backup),
    /// Make a database of a backup and archived log, as it was at any commit
    Restore(crate::backup::Restore),
    /// Look at archived log
    #[command(subcommand)]
    Archive(crate::backup::Archive),
    /// Measure a device and write its profile; or show two profiles side by side
    Characterize(crate::characterize::CharacterizeArgs),
    /// Mount a file system whose files behave as if they lay on another device
    Emulate(crate::emulate::Emulate),
    /// List the device profiles that ship, or show one
    Profiles(crate::profiles::Profiles),
    /// Show, attach, detach, resize or replace a database's flash cache
    #[command(subcommand)]
    Cache(crate::cache_device::Cache),
    /// Show, add, remove or replace the devices of a database's log
    #[command(subcommand)]
    Log(crate::log_array::Log),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Run whole databases under faults and power cuts, in virtual time, each from a seed
    Sim(Sim),
    /// Look for lost or half transactions
    #[command(subcommand)]
    Torture(Torture),
    /// Replay I/O traces into simulated flash, or compare the cost of its writes with theory
    #[command(subcommand)]
    Nand(crate::nand::Nand),
}

impl Command {
    /// The file that it is to write its results to, if any.
    #[must_use]
    pub fn results(&self) -> Option<&Path> {
        use crate::backup::Archive;
        use crate::{cache_device::Cache, log_array::Log, nand::Nand};
        let json = match self {
            Command::Tpcc(args) => &args.json,
            Command::Backup(args) => &args.json,
            Command::Restore(args) => &args.json,
            Command::Archive(Archive::List(args) | Archive::Verify(args)) => &args.json,
            Command::Cache(Cache::Status(args)) => &args.json,
            Command::Log(Log::Status(args)) => &args.json,
            Command::Characterize(args) => &args.json,
            Command::Emulate(args) => &args.json,
            Command::Profiles(args) => &args.json,
            Command::Bench(Bench::Commit(args)) => &args.json,
            Command::Bench(Bench::Cache(args)) => &args.json,
            Command::Bench(Bench::Log(args)) => &args.json,
            Command::Sim(args) => &args.json,
            Command::Nand(Nand::Replay(args)) => &args.json,
            Command::Nand(Nand::Cost(args)) => &args.json,
            Command::Torture(Torture::Kill(args)) => &args.json,
            Command::Check(_)
            | Command::Stat(_)
            | Command::Dump(_)
            | Command::Archive(Archive::Status(_) | Archive::Forget(_))
            | Command::Cache(
                Cache::Attach(_)
                | Cache::Detach(_)
                | Cache::Resize(_)
                | Cache::Replace(_)
                | Cache::Abandon(_),
            )
            | Command::Log(Log::Add(_) | Log::Remove(_) | Log::Replace(_))
            | Command::Torture(Torture::Child(_)) => return None,
        };
        json.as_deref()
    }
}

/// Isolation levels that TPC-C may run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationName {
    /// Each transaction sees the database as it was at its first read; of two that write one row, the first wins
    Snapshot,
    /// As if transactions had run one after the other
    Serializable,
}

/// When a client goes on after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CommitName {
    /// When the commit is durable
    Wait,
    /// At once; it is told when the commit is durable, and only durable commits count
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

/// `firn tpcc`.
#[derive(Args, Clone, Debug)]
pub struct Tpcc {
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
    /// Do not check the consistency conditions after loading and running: that reads the whole database
    #[arg(long, conflicts_with = "check_only")]
    pub no_check: bool,
    /// Files of log of a new database, written at once [as many as the device's latency asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub log_devices: Option<u32>,
    /// Where a new database's log is, instead of in --dir: a file or raw device; again for each log device
    #[arg(long, value_name = "PATH", conflicts_with = "log_devices")]
    pub log_path: Vec<PathBuf>,
    /// Where a new database's page store is, instead of in --dir: a file or raw device
    #[arg(long, value_name = "PATH")]
    pub store_path: Option<PathBuf>,
    /// Bytes of a new flash cache between DRAM and the page store, for example 2G (see docs/guide/cache.md); none if not given
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Where a new flash cache is, instead of in --dir: a file or raw device
    #[arg(long, value_name = "PATH", requires = "cache", conflicts_with = "sim")]
    pub cache_path: Option<PathBuf>,
    /// Who stays in the flash cache: keep, gsc, select, gr, fifo, lc, tac, exadata
    #[arg(long, value_name = "NAME", value_parser = cache_policy, default_value = "keep")]
    pub cache_policy: CachePolicy,
    /// At the end, whether more DRAM or more flash would serve better, if a byte of DRAM costs as much as so many of flash.
    /// Needs --sim or --emulate, whose profiles say what reads cost
    #[arg(long, value_name = "PRICE", requires = "machine", num_args = 0..=1, default_missing_value = "10")]
    pub advise: Option<f64>,
    /// Record what is asked of each of the database's files, as DIR/NAME.trace (see firn nand replay)
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Archive all log in this directory (see docs/guide/archive-and-backup.md)
    #[arg(long, value_name = "DIR", conflicts_with = "sim")]
    pub archive: Option<PathBuf>,
    /// Take a backup into this directory in the middle of the run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["load_only", "check_only", "sim"])]
    pub backup_to: Option<PathBuf>,
    /// Size of the population
    #[arg(long, value_enum, default_value_t = ScaleName::Full, hide = true)]
    pub scale: ScaleName,
    /// Run so many transactions a client, all of them counted, instead of --seconds
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// Simulated machines instead of this one.
    #[command(flatten)]
    pub simulated: TpccSim,
}

fn cache_policy(name: &str) -> Result<CachePolicy, String> {
    CachePolicy::named(name)
        .ok_or_else(|| "it is one of keep, gsc, select, gr, fifo, lc, tac and exadata".to_owned())
}

/// `firn tpcc --sim` and `--emulate`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Emulated devices")]
pub struct TpccSim {
    /// Run in virtual time, in memory, on devices as their profiles say: equal arguments give equal figures on any
    /// machine
    #[arg(long, group = "machine", conflicts_with_all = [
        "dir", "no_load", "load_only", "check_only", "log_devices", "log_path", "store_path", "trace",
    ])]
    pub sim: bool,
    /// Run in real time, on files that take as long as devices of these profiles
    #[arg(long, group = "machine", conflicts_with_all = ["sim", "log_devices", "log_path", "trace"])]
    pub emulate: bool,
    /// Profile of a log device (a name that `firn profiles` lists, or a TOML file); again for each device. NAME@fast and
    /// NAME@slow take what is not known of the device at that end
    #[arg(long, value_name = "PROFILE", requires = "machine", default_value = "nvme")]
    pub profile_log: Vec<String>,
    /// Profile of the page store's device
    #[arg(long, value_name = "PROFILE", requires = "machine", default_value = "nvme")]
    pub profile_data: String,
    /// Profile of the flash cache's device [the first log device's]
    #[arg(long, value_name = "PROFILE", requires = "machine")]
    pub profile_cache: Option<String>,
    /// Cores of the simulated machine
    #[arg(long, value_name = "N", requires = "sim", conflicts_with = "emulate", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sim_cores: u32,
    /// What computing costs: `firn` (as measured), `firn*FACTOR`, `paper` (as in FlashLogging's time; `paper-slow`,
    /// `paper-fast`), `ideal=RATE` (what lets all cores do so many New-Orders a minute if the log never holds them up),
    /// `free`
    #[arg(long, value_name = "COST", requires = "sim", conflicts_with = "emulate", default_value = "firn")]
    pub cpu: Cpu,
}

/// `firn check`.
#[derive(Args, Clone, Debug)]
pub struct Check {
    /// The database's directory
    pub dir: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `firn stat`.
#[derive(Args, Clone, Debug)]
pub struct Stat {
    /// The database's directory
    pub dir: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `firn dump`.
#[derive(Args, Clone, Debug)]
pub struct Dump {
    /// The database's directory
    pub dir: PathBuf,
    /// The log's records since the last checkpoint
    #[arg(long, conflicts_with_all = ["page", "table"])]
    pub log: bool,
    /// A page's bytes
    #[arg(long, value_name = "N", conflicts_with = "table")]
    pub page: Option<u64>,
    /// A table's rows: of a typed table each column with its name
    #[arg(long, value_name = "T")]
    pub table: Option<String>,
    /// Keys and values as they are stored, byte by byte
    #[arg(long, requires = "table")]
    pub raw: bool,
}

/// `firn bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Small durable commits, beside the raw device's synchronous writes
    Commit(BenchCommit),
    /// The tables and figures of the FaCE paper, measured again in virtual time
    Cache(crate::bench_cache::BenchCache),
    /// The figures of the FlashLogging paper, measured again in virtual time
    Log(crate::bench_log::BenchLog),
}

/// `firn bench commit`.
#[derive(Args, Clone, Debug)]
pub struct BenchCommit {
    /// Where the database and the raw file are made, and removed again
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Client counts, in turn
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    pub clients: Vec<u32>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// How often each measurement is made; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Log devices [as many as the device's latency asks for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub log_devices: Option<u32>,
    /// Measure 8 clients also beside N threads that spin [2 if N is not given]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub spinners: Option<u32>,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `firn torture`.
#[derive(Debug, Subcommand)]
pub enum Torture {
    /// Kill the process that commits, again and again; compare what is left with what was acknowledged
    Kill(TortureKill),
    /// The process that is killed
    #[command(hide = true)]
    Child(TortureChild),
}

/// `firn torture kill`.
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
    /// Give each database a flash cache of so many bytes, for example 4M, of a drawn policy; none if not given
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Start again with an empty directory after so many rounds
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

/// `firn torture child`.
#[derive(Args, Clone, Debug)]
pub struct TortureChild {
    /// The database's directory
    #[arg(long)]
    pub dir: PathBuf,
    /// Of the ledger
    #[arg(long)]
    pub seed: u64,
    /// Makes TPC-C's inputs differ from life to life
    #[arg(long)]
    pub life: u64,
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
    #[arg(long, value_parser = cache_policy, default_value = "gsc")]
    pub cache_policy: CachePolicy,
    /// Acknowledge before committing
    #[arg(long)]
    pub acknowledge_early: bool,
}
