//! The `firn` command.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match firn_cli::args::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return firn_cli::explain(&error),
    };
    match firn_cli::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("firn: {failure}");
            failure.exit_code()
        }
    }
}
