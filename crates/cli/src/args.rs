//! The command line.

use clap::{Args, Parser, Subcommand};
use firndb_tpcc::TpccArgs;
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
    Tpcc(TpccArgs),
    /// Walk every page, tree, index and log block; exit status 1 if anything is damaged
    Check(Check),
    /// Show what a database says of itself
    Stat(Stat),
    /// Read tables and keep what planning needs: counts, clustering of indexes, sampled rows
    Analyze(crate::analyze::Analyze),
    /// Give the space of deleted rows and sparse pages back to the file system
    Compact(crate::compact::Compact),
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
    /// List the device profiles that ship, or show one
    Profiles(crate::profiles::Profiles),
    /// Show, attach, detach, resize or replace a database's flash cache
    #[command(subcommand)]
    Cache(crate::cache_device::Cache),
    /// List page files, make one of a file, or copy one to a file
    #[command(subcommand)]
    Pagefile(crate::page_files::PageFiles),
    /// Show, add, remove or replace the devices of a database's log
    #[command(subcommand)]
    Log(crate::log_array::Log),
    /// Show and change the devices of a store that has several
    #[command(subcommand)]
    Array(crate::store_array::Array),
    /// Measure, simulate and torture the engine: nothing that a database needs in operation
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(firndb_lab::Lab),
}

impl Command {
    /// The file that it is to write its results to, if any.
    #[must_use]
    pub fn results(&self) -> Option<&Path> {
        use crate::backup::Archive;
        use crate::cache_device::Cache;
        use crate::log_array::Log;
        use crate::store_array::Array;
        let json = match self {
            Command::Tpcc(args) => &args.json,
            Command::Backup(args) => &args.json,
            Command::Restore(args) => &args.json,
            Command::Archive(Archive::List(args) | Archive::Verify(args)) => &args.json,
            Command::Cache(Cache::Status(args)) => &args.json,
            Command::Log(Log::Status(args)) => &args.json,
            Command::Array(Array::Status(args)) => &args.json,
            Command::Characterize(args) => &args.json,
            Command::Profiles(args) => &args.json,
            Command::Check(_)
            | Command::Stat(_)
            | Command::Analyze(_)
            | Command::Compact(_)
            | Command::Dump(_)
            | Command::Archive(Archive::Status(_) | Archive::Forget(_))
            | Command::Cache(
                Cache::Attach(_)
                | Cache::Detach(_)
                | Cache::Resize(_)
                | Cache::Replace(_)
                | Cache::Abandon(_),
            )
            | Command::Pagefile(_)
            | Command::Array(Array::Replace(_) | Array::Scrub(_) | Array::Layout(_))
            | Command::Log(Log::Add(_) | Log::Remove(_) | Log::Replace(_)) => return None,
            #[cfg(feature = "lab")]
            Command::Lab(command) => return command.results(),
        };
        json.as_deref()
    }

    /// What Ctrl-C leaves of it, until it can stop in order; of the laboratory's, each says for
    /// itself.
    #[must_use]
    pub fn leaves(&self) -> Option<&'static str> {
        use crate::backup::Archive;
        use crate::cache_device::Cache;
        use crate::log_array::Log;
        use crate::page_files::PageFiles;
        use crate::store_array::Array;
        Some(match self {
            #[cfg(feature = "lab")]
            Command::Lab(_) => return None,
            Command::Check(_)
            | Command::Stat(_)
            | Command::Dump(_)
            | Command::Archive(Archive::List(_) | Archive::Verify(_) | Archive::Status(_))
            | Command::Characterize(_)
            | Command::Profiles(_)
            | Command::Cache(Cache::Status(_))
            | Command::Pagefile(PageFiles::List(_) | PageFiles::Export(_))
            | Command::Log(Log::Status(_))
            | Command::Array(Array::Status(_)) => "nothing was changed",
            Command::Array(Array::Scrub(_)) => {
                "what was mended stays; the next opening recovers the database, and scrubbing begins anew"
            }
            Command::Restore(_) => {
                "restore again, into the same directory; if a database is there already, it is whole"
            }
            _ => "the next opening recovers the database",
        })
    }
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
