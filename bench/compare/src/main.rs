//! `compare`: Firn and its peers on the same workloads, in turn, with medians.

mod command;
mod commit;
mod job;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;
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
