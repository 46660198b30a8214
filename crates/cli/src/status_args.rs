//! The arguments of commands that show the state of some of a database's devices.

use clap::Args;
use std::path::PathBuf;

/// `firn log status`, `firn array status` and `firn cache status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The database's directory
    pub dir: PathBuf,
    /// Write it to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
