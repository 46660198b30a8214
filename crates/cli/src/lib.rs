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
///
/// Errors: those of the command, and what it said could not be written to standard output.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let prepared = arguments.command.results().map(output::ResultFile::prepare).transpose()?;
    let outcome = dispatch(&arguments.command);
    drop(prepared);
    // A command that failed says why, which matters more.
    outcome.and(output::finish())
}

/// Writes what the command line's parser has to say; the exit status is then 2 for bad arguments, 0 for help that was asked
/// for.
pub fn explain(error: &clap::Error) -> std::process::ExitCode {
    use std::process::ExitCode;
    if error.use_stderr() {
        // There is nowhere else to say it.
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render();
    let shown = match std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    let _ = std::io::Write::write_all(&mut output::Out, shown.as_bytes());
    match output::finish() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("firn: {failure}");
            failure.exit_code()
        }
    }
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Tpcc(tpcc) => tpcc::run(tpcc),
        Command::Check(check) => inspect::check(check),
        Command::Stat(stat) => inspect::stat(stat),
        Command::Dump(dump) => inspect::dump(dump),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Archive(command) => backup::archive(command),
        Command::Log(command) => log_array::run(command),
        Command::Cache(command) => cache_device::run(command),
        Command::Characterize(characterize) => characterize::run(characterize),
        Command::Emulate(emulate) => emulate::run(emulate),
        Command::Profiles(profiles) => profiles::run(profiles),
        Command::Bench(Bench::Commit(commit)) => bench_commit::run(commit),
        Command::Bench(Bench::Cache(cache)) => bench_cache::run(cache),
        Command::Bench(Bench::Log(log)) => bench_log::run(log),
        Command::Sim(args) => sim::run(args),
        Command::Nand(nand) => nand.run(),
        Command::Torture(Torture::Kill(kill)) => torture::kill(kill),
        Command::Torture(Torture::Child(child)) => torture::child::run(child),
    }
}

/// The commit that this binary was built from, if the build knew it.
pub(crate) fn commit_of_source() -> &'static str {
    option_env!("FIRN_COMMIT").unwrap_or("unknown")
}
