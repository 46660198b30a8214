//! The `firn` command.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match firn_cli::run(firn_cli::args::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("firn: {failure}");
            failure.exit_code()
        }
    }
}
