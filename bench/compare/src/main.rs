//! `compare`: Firn and its peers on the same workloads, in turn, with medians.

mod child;
mod command;
mod commit;
mod firn;
mod job;
mod lmdb;
mod memory_limit;
mod pages;
mod process_io;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
mod targets;
#[cfg(test)]
mod tests;
mod tpcc;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match command::Command::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}
