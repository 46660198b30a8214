//! `firn lab bench`: durable commits on a real device, and papers' figures measured again.
//!
//! [`cache`] and [`log`] share figures and tables beside a paper's ([`figure`]), their pictures
//! ([`picture`]) and simulations that measure ([`simulation`]).

mod cache;
mod commit;
mod figure;
mod log;
mod picture;
mod simulation;

use clap::Subcommand;
use firndb_console::Failure;
use std::path::Path;

/// `firn lab bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Small durable commits, beside the raw device's synchronous writes
    Commit(commit::BenchCommit),
    /// The tables and figures of the FaCE paper, measured again in virtual time
    Cache(cache::BenchCache),
    /// The figures of the FlashLogging paper, measured again in virtual time
    Log(log::args::BenchLog),
}

impl Bench {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        match self {
            Bench::Commit(args) => args.json.as_deref(),
            Bench::Cache(args) => args.json.as_deref(),
            Bench::Log(args) => args.json.as_deref(),
        }
    }

    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Bench::Commit(args) => commit::run(args),
            Bench::Cache(args) => cache::run(args),
            Bench::Log(args) => log::run(args),
        }
    }
}
