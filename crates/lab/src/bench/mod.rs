//! `firn lab bench`: durable commits on a real device, and papers' figures measured again.
//!
//! [`array`], [`cache`], [`delta`], [`log`], [`pages`], [`query`], [`reads`] and [`space`] share
//! figures and tables beside a paper's ([`figure`]), made of medians with their ranges
//! ([`sampled`]); targets before they are measured ([`wanted`]); running the simulations that
//! measure ([`cells`], [`simulation`]); the file that keeps what they found ([`kept`]); pictures
//! ([`picture`]) and pages ([`report`]).

mod ahead;
mod array;
mod beside;
mod cache;
mod cells;
mod commit;
mod delta;
mod figure;
mod kept;
mod log;
mod made;
mod pages;
mod picture;
mod query;
mod reads;
mod report;
mod sampled;
pub mod simulation;
mod space;
mod wanted;

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
    /// The figures of the ICL paper, over streams recorded in virtual time
    Delta(delta::BenchDelta),
    /// The figures of chapter 8 of Myers's thesis: codes over chips and disks, in virtual time
    Array(array::BenchArray),
    /// Reads of many pages at once, beside what a drive does alone; in virtual and in real time
    Reads(reads::BenchReads),
    /// What of the store's file comes back when rows go, by counts
    Space(space::BenchSpace),
    /// The figures of the hybrid-recovery paper: shadows beside the log, in virtual time
    Pages(pages::BenchPages),
    /// The figures of Myers' thesis on indexes and joins, and the planner's choices
    Query(query::BenchQuery),
    /// A page of tables, and pictures, of a file of results
    Report(report::Report),
}

impl Bench {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        match self {
            Bench::Commit(args) => args.json.as_deref(),
            Bench::Cache(args) => args.running.json.as_deref(),
            Bench::Log(args) => args.running.json.as_deref(),
            Bench::Delta(args) => args.running.json.as_deref(),
            Bench::Array(args) => args.running.json.as_deref(),
            Bench::Reads(args) => args.running.json.as_deref(),
            Bench::Space(args) => args.running.json.as_deref(),
            Bench::Pages(args) => args.running.json.as_deref(),
            Bench::Query(args) => args.running.json.as_deref(),
            Bench::Report(_) => None,
        }
    }

    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Bench::Commit(args) => commit::run(args),
            Bench::Cache(args) => cache::run(args),
            Bench::Log(args) => log::run(args),
            Bench::Delta(args) => delta::run(args),
            Bench::Array(args) => array::run(args),
            Bench::Reads(args) => reads::run(args),
            Bench::Space(args) => space::run(args),
            Bench::Pages(args) => pages::run(args),
            Bench::Query(args) => query::run(args),
            Bench::Report(args) => report::run(args),
        }
    }
}
