//! The `firn` command as a library: its commands, and Firn as one of the engines that workloads drive.
//!
//! Output is for people unless `--json FILE` asks for more. Errors are sentences on standard error; the exit
//! status is 2 for bad arguments, 1 for failures (damage found among them) and 130 after Ctrl-C.
#![forbid(unsafe_code)]

pub mod adapter;
mod advice;
pub mod args;
mod backup;
mod bench;
mod bench_cache;
mod bench_commit;
mod bench_commit_report;
mod bench_log;
mod cache_device;
mod characterize;
mod characterize_compare;
mod characterize_pictures;
mod characterize_report;
mod cpu;
mod emulate;
mod emulate_report;
mod failure;
mod inspect;
mod interrupt;
mod log_array;
mod moment;
mod nand;
mod nand_cost;
mod nand_replay;
mod nand_report;
mod output;
mod profiles;
mod progress;
mod raw_device;
pub mod sim;
mod size;
mod table;
mod tape;
mod torture;
mod tpcc;
mod tpcc_backup;
mod tpcc_machine;
mod tpcc_sim;
mod tpcc_table;
mod whole_tables;

pub use failure::Failure;

use args::{Arguments, Bench, Command, Torture};

/// Runs a command line to its end.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Tpcc(tpcc) => tpcc::run(&tpcc),
        Command::Check(check) => inspect::check(&check),
        Command::Stat(stat) => inspect::stat(&stat),
        Command::Dump(dump) => inspect::dump(&dump),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Archive(command) => backup::archive(&command),
        Command::Log(command) => log_array::run(&command),
        Command::Cache(command) => cache_device::run(&command),
        Command::Characterize(characterize) => characterize::run(&characterize),
        Command::Emulate(emulate) => emulate::run(&emulate),
        Command::Profiles(profiles) => profiles::run(&profiles),
        Command::Bench(Bench::Commit(commit)) => bench_commit::run(&commit),
        Command::Bench(Bench::Cache(cache)) => bench_cache::run(&cache),
        Command::Bench(Bench::Log(log)) => bench_log::run(&log),
        Command::Sim(args) => sim::run(&args),
        Command::Nand(nand) => nand.run(),
        Command::Torture(Torture::Kill(kill)) => torture::kill(&kill),
        Command::Torture(Torture::Child(child)) => torture::child::run(&child),
    }
}

/// The commit that this binary was built from, if the build knew it.
pub(crate) fn commit_of_source() -> &'static str {
    option_env!("FIRN_COMMIT").unwrap_or("unknown")
}
