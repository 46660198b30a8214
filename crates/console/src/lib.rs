//! What the commands of Firn share: standard output and result files, failures and exit status,
//! Ctrl-C, progress bars, tables, charts, and how sizes and moments are read and shown.
//!
//! Place in the tree: above the engine, below the programs. `firn` (`crates/cli`), its TPC-C run
//! (`crates/tpcc`) and the laboratory (`crates/lab`) print, fail and stop through this crate, so
//! that all of them have the same exit status and the same form of output.
//!
//! Failure: a command returns [`Failure`], a sentence with an exit status; a write to standard
//! output that failed is remembered, and reported once, by [`output::finish`].

#![forbid(unsafe_code)]

pub mod chart;
mod failure;
pub mod interrupt;
pub mod moment;
pub mod output;
pub mod progress;
pub mod report;
pub mod size;
pub mod table;

pub use failure::Failure;

/// The commit that this program was built from, if the build knew it; result files name it.
pub fn commit_of_source() -> &'static str {
    option_env!("FIRN_COMMIT").unwrap_or("unknown")
}
