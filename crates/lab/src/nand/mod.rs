//! `firn lab nand`: simulated flash on the command line.

mod cost;
mod replay;
pub mod report;

use clap::{Args, Subcommand, ValueEnum};
use firndb_console::{Failure, size};
use firndb_emulate::blkparse::{BlkAction, BlkDevice};
use firndb_emulate::nand::replay::Pace;
use firndb_emulate::nand::{
    FlashTimes, Geometry, NandConfig, NandError, Translation, VictimPolicy, WearLevelling,
};
use std::path::{Path, PathBuf};

/// `firn lab nand`.
#[derive(Debug, Subcommand)]
pub enum Nand {
    /// Replay a recorded trace into simulated flash; report write amplification, wear and time
    Replay(Replay),
    /// The cost of a write over the live share of the flash: Myers's equations beside simulation
    Cost(Cost),
}

impl Nand {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        match self {
            Nand::Replay(args) => args.json.as_deref(),
            Nand::Cost(args) => args.json.as_deref(),
        }
    }

    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Nand::Replay(replay) => replay::run(replay),
            Nand::Cost(cost) => cost::run(cost),
        }
    }
}

/// Translation layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FtlName {
    /// Page-level map, log-structured: what SSDs do
    Page,
    /// Block-level map with log blocks: what cards and sticks do
    Block,
    /// Static map: every write erases and rewrites its block (Myers, equation 2.1)
    Naive,
    /// Dynamic map with random victims (Myers, equation 2.2)
    Dynamic,
}

/// Which block garbage collection of the page-level map reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GcName {
    /// The one with the fewest live pages
    Greedy,
    /// Any
    Random,
    /// The one with the most free space times age over cost
    CostBenefit,
}

/// How erases are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WearName {
    /// Not
    None,
    /// By the choice of free blocks
    Dynamic,
    /// Also by moving data that never change
    Static,
}

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Recognized by its first line
    Auto,
    /// Recorded by Firn
    Firn,
    /// Printed by blkparse in its default format
    Blkparse,
}

/// Which of an operation's lines count in a trace of blkparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActionName {
    /// D
    Issued,
    /// C
    Completed,
    /// Q
    Queued,
}

/// When operations are asked of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaceName {
    /// At their recorded times
    Recorded,
    /// Each when the one before is done
    Closed,
}

/// What the flash is built of.
#[derive(Args, Debug)]
pub struct Chips {
    /// Bytes of a flash page
    #[arg(long, default_value = "4096", value_parser = size::parse)]
    pub page: u64,
    /// Pages of an erase block
    #[arg(long, default_value_t = 64)]
    pub pages_per_block: u32,
    /// Chips that work side by side
    #[arg(long, default_value_t = 4)]
    pub chips: u32,
    /// Chips that share a bus
    #[arg(long, default_value_t = 1)]
    pub chips_per_channel: u32,
    /// Time of reading a page, in microseconds
    #[arg(long, default_value_t = 20.0)]
    pub read_us: f64,
    /// Time of programming a page, in microseconds
    #[arg(long, default_value_t = 200.0)]
    pub program_us: f64,
    /// Time of erasing a block, in microseconds
    #[arg(long, default_value_t = 1500.0)]
    pub erase_us: f64,
    /// Time of moving a page over the bus, in microseconds
    #[arg(long, default_value_t = 0.0)]
    pub transfer_us: f64,
}

/// `firn lab nand replay`.
#[derive(Args, Debug)]
pub struct Replay {
    /// The trace: of firn tpcc --trace, or the text output of blkparse
    pub trace: PathBuf,
    /// Its format
    #[arg(long, value_enum, default_value_t = FormatName::Auto)]
    pub format: FormatName,
    /// Which lines of blkparse count
    #[arg(long, value_enum, default_value_t = ActionName::Issued)]
    pub action: ActionName,
    /// Which device of a blkparse trace [the only one]
    #[arg(long, value_name = "MAJOR,MINOR")]
    pub device: Option<BlkDevice>,
    /// Translation layer
    #[arg(long, value_enum, default_value_t = FtlName::Page)]
    pub ftl: FtlName,
    /// Garbage collection of the page-level map
    #[arg(long, value_enum, default_value_t = GcName::Greedy)]
    pub gc: GcName,
    /// Bytes that the host can use, for example 4G [what the trace touches]
    #[arg(long, value_parser = size::parse)]
    pub capacity: Option<u64>,
    /// Flash besides, as a share of the capacity
    #[arg(long, default_value_t = 0.07)]
    pub over_provisioning: f64,
    /// Wear levelling of the page-level and block-level maps
    #[arg(long, value_enum, default_value_t = WearName::Static)]
    pub wear: WearName,
    /// Difference in erases that static wear levelling leaves alone
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub wear_spread: u32,
    /// Erases that a block endures
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub erase_limit: u32,
    /// What the flash is built of
    #[command(flatten)]
    pub chips: Chips,
    /// Share of the capacity that is written before the trace begins (0 to 1)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub fill: f64,
    /// How often the trace is replayed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// How often it is replayed before anything is counted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u32,
    /// When operations are asked of the flash
    #[arg(long, value_enum, default_value_t = PaceName::Recorded)]
    pub pace: PaceName,
    /// Leave out what the trace never touches: its pages are numbered anew, as they come
    #[arg(long)]
    pub dense: bool,
    /// Of random victims
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `firn lab nand cost`.
#[derive(Args, Debug)]
pub struct Cost {
    /// Every live share from 0 to 0.95 that whole pages allow, instead of a few
    #[arg(long)]
    pub curve: bool,
    /// Draw the curve into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Pages of an erase block
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub pages_per_block: u32,
    /// Time of reading a page, in microseconds
    #[arg(long, default_value_t = 20.0)]
    pub read_us: f64,
    /// Time of programming a page, in microseconds
    #[arg(long, default_value_t = 200.0)]
    pub program_us: f64,
    /// Time of erasing a block, in microseconds
    #[arg(long, default_value_t = 1500.0)]
    pub erase_us: f64,
    /// Draws pages and victims
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn failure(error: NandError) -> Failure {
    match error {
        NandError::BadConfig(message) => Failure::bad_argument(message),
        other => Failure::new(other.to_string()),
    }
}

/// Bytes up to which a trace's reach is no reason to advise `--dense`.
const LARGE: u64 = 1 << 30;

/// Microseconds of the command line in nanoseconds; at most a minute.
pub fn nanoseconds(what: &str, us: f64) -> Result<u64, Failure> {
    if (0.0..=60e6).contains(&us) {
        return Ok((us * 1000.0).round() as u64);
    }
    Err(Failure::bad_argument(format!("{what} is {us}; it must be from 0 to 60000000 microseconds")))
}

impl Chips {
    fn geometry(&self) -> Result<Geometry, Failure> {
        let page_bytes =
            u32::try_from(self.page).map_err(|_| Failure::bad_argument("--page is larger than any page"))?;
        Ok(Geometry {
            page_bytes,
            pages_per_block: self.pages_per_block,
            blocks_per_chip: 1,
            chips: self.chips,
            chips_per_channel: self.chips_per_channel,
        })
    }

    fn times(&self) -> Result<FlashTimes, Failure> {
        Ok(FlashTimes {
            read_ns: nanoseconds("--read-us", self.read_us)?,
            program_ns: nanoseconds("--program-us", self.program_us)?,
            erase_ns: nanoseconds("--erase-us", self.erase_us)?,
            transfer_ns: nanoseconds("--transfer-us", self.transfer_us)?,
        })
    }
}

impl Replay {
    /// The flash, with `touched` bytes for the host unless a capacity was given.
    pub fn config(&self, touched: u64) -> Result<NandConfig, Failure> {
        let translation = match self.ftl {
            FtlName::Page => Translation::Page,
            FtlName::Block => Translation::Block,
            FtlName::Naive => Translation::Naive,
            FtlName::Dynamic => Translation::Dynamic,
        };
        let capacity = self.capacity.unwrap_or(touched);
        let geometry = self.chips.geometry()?;
        let sized = NandConfig::sized_with(geometry, translation, capacity, self.over_provisioning);
        let mut config = sized.map_err(|error| match error {
            NandError::BadConfig(message) if self.capacity.is_none() && !self.dense && touched > LARGE => {
                Failure::bad_argument(format!(
                    "{message}. The trace touches places up to {}; --dense leaves out what lies untouched between them",
                    size::show(touched)
                ))
            }
            other => failure(other),
        })?;
        config.times = self.chips.times()?;
        config.erase_limit = self.erase_limit;
        config.seed = self.seed;
        config.victim = match self.gc {
            GcName::Greedy => VictimPolicy::Greedy,
            GcName::Random => VictimPolicy::Random,
            GcName::CostBenefit => VictimPolicy::CostBenefit,
        };
        config.wear_levelling = match self.wear {
            WearName::None => WearLevelling::None,
            WearName::Dynamic => WearLevelling::Dynamic,
            WearName::Static => WearLevelling::Static { spread: self.wear_spread },
        };
        Ok(config)
    }

    /// When operations are asked of the flash.
    pub fn pace(&self) -> Pace {
        match self.pace {
            PaceName::Recorded => Pace::Recorded,
            PaceName::Closed => Pace::Closed,
        }
    }

    /// Which lines of blkparse count.
    pub fn blk_action(&self) -> BlkAction {
        match self.action {
            ActionName::Issued => BlkAction::Issued,
            ActionName::Completed => BlkAction::Completed,
            ActionName::Queued => BlkAction::Queued,
        }
    }
}
