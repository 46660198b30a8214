//! The laboratory, reached as `firn lab`: what measures, simulates and tortures the engine, and no
//! operator needs.
//!
//! Place in the tree: above the engine and beside `crates/cli`, which offers [`Lab`] under its
//! feature `lab`. It may use any crate below it, tool crates with rich dependencies too; nothing
//! else depends on it.
//!
//! * `bench`: small durable commits on a real device; the figures of FlashLogging and FaCE in
//!   virtual time;
//! * `tpcc`: TPC-C on emulated devices, in virtual or in real time, with the `cost` model of
//!   processors;
//! * `characterize`: devices of profiles measured as in Myers's thesis, chapter 3;
//! * `sim`: whole databases under faults and power cuts, each from a seed (`crates/sim`);
//! * `torture`: processes killed while they commit, and what survives compared with what was
//!   acknowledged;
//! * `emulate`: a file system whose files behave as if they lay on another device
//!   (`crates/emulate-fs`);
//! * `nand`: traces replayed into simulated flash (`crates/emulate`).
//!
//! Invariant: a figure depends on arguments and seed alone wherever time is virtual. Result files
//! name the command, its configuration, the seed and the commit of the source.

#![forbid(unsafe_code)]
#![allow(missing_docs)]

mod bench;
mod caches;
mod characterize;
mod cost;
mod emulate;
mod nand;
mod sim;
mod torture;
mod tpcc;

pub use caches::cache_kinds;

use clap::Subcommand;
use firndb_console::Failure;
use std::path::Path;

/// `firn lab`.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Measure
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run TPC-C on emulated devices, in virtual or in real time
    Tpcc(Box<tpcc::Tpcc>),
    /// Measure emulated devices as Myers's thesis does, beside its tables and figures
    Characterize(characterize::Characterize),
    /// Run whole databases under faults and power cuts, in virtual time, each from a seed
    Sim(sim::Sim),
    /// Look for lost or half transactions
    #[command(subcommand)]
    Torture(torture::args::Torture),
    /// Mount a file system whose files behave as if they lay on another device
    Emulate(emulate::Emulate),
    /// Replay I/O traces into simulated flash, or compare the cost of its writes with theory
    #[command(subcommand)]
    Nand(nand::Nand),
}

impl Lab {
    /// The result file that the arguments name.
    pub fn results(&self) -> Option<&Path> {
        match self {
            Lab::Bench(command) => command.results(),
            Lab::Tpcc(args) => args.run.json.as_deref(),
            Lab::Characterize(args) => args.results(),
            Lab::Sim(args) => args.json.as_deref(),
            Lab::Torture(command) => command.results(),
            Lab::Emulate(args) => args.json.as_deref(),
            Lab::Nand(command) => command.results(),
        }
    }

    /// Runs the command to its end.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            Lab::Bench(command) => command.run(),
            Lab::Tpcc(args) => tpcc::run(args),
            Lab::Characterize(args) => characterize::run(args),
            Lab::Sim(args) => sim::run(args),
            Lab::Torture(command) => torture::run(command),
            Lab::Emulate(args) => emulate::run(args),
            Lab::Nand(command) => command.run(),
        }
    }
}
