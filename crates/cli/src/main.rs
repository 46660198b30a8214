//! The `firn` command: what operators use, and behind the feature `lab` the laboratory
//! (`crates/lab`).
//!
//! Output is for people unless `--json FILE` asks for more. Errors are sentences on standard error;
//! the exit status is 2 for bad arguments, 1 for failures (damage found among them) and 130 after
//! Ctrl-C.
#![forbid(unsafe_code)]

mod analyze;
mod args;
mod backup;
mod cache_device;
mod caches;
mod characterize;
mod characterize_compare;
mod characterize_pictures;
mod characterize_report;
mod compact;
mod inspect;
mod inspect_json;
mod json;
mod log_array;
mod page_files;
mod profiles;
mod status_args;
mod store_array;
mod tables;

use args::{Arguments, Command};
use clap::Parser;
use firndb_console::{Failure, interrupt, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("firn: {failure}");
            failure.exit_code()
        }
    }
}

/// Runs a command line to its end.
///
/// Errors: those of the command, and output that could not be written.
fn run(arguments: Arguments) -> Result<(), Failure> {
    let prepared = arguments.command.results().map(output::ResultFile::prepare).transpose()?;
    let outcome = dispatch(&arguments.command);
    drop(prepared);
    // A command that failed says why, which matters more.
    outcome.and(output::finish())
}

/// Writes what the command line's parser has to say; the exit status is then 2 for bad arguments, 0
/// for help that was asked for.
fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // There is nowhere else to say it.
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render();
    let shown = if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        text.ansi().to_string()
    } else {
        text.to_string()
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
    if let Some(leaves) = command.leaves() {
        interrupt::at_once(leaves)?;
    }
    match command {
        Command::Tpcc(tpcc) => firndb_tpcc::run_on_files(tpcc, None, caches::kinds()),
        Command::Check(check) => inspect::check(check),
        Command::Stat(stat) => inspect::stat(stat),
        Command::Analyze(args) => analyze::run(args),
        Command::Compact(args) => compact::run(args),
        Command::Dump(dump) => inspect::dump(dump),
        Command::Backup(args) => backup::backup(args),
        Command::Restore(args) => backup::restore(args),
        Command::Archive(command) => backup::archive(command),
        Command::Log(command) => log_array::run(command),
        Command::Array(command) => store_array::run(command),
        Command::Pagefile(command) => page_files::run(command),
        Command::Cache(command) => cache_device::run(command),
        Command::Characterize(characterize) => characterize::run(characterize),
        Command::Profiles(profiles) => profiles::run(profiles),
        #[cfg(feature = "lab")]
        Command::Lab(command) => command.run(),
    }
}
