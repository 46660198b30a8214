//! TPC-C on a Firn database as a command: arguments, load, measured run, consistency check, report,
//! result file.
//!
//! Place in the tree: above [`firndb_workloads`], which holds the workload itself for any engine,
//! and below the two programs that run it. `firn tpcc` (`crates/cli`) runs it on this machine's
//! devices; `firn lab tpcc` (`crates/lab`) hands in a [`Machine`] of emulated ones, in real or in
//! virtual time.
//!
//! Invariants: only commits that are known durable count; the counters of the report cover the
//! measured interval and neither load nor check; a load that was cut off is never taken for a
//! population ([`tables::open`]). Time and threads come from `firndb_base`, so that a run may be a
//! simulation.

#![forbid(unsafe_code)]
#![allow(missing_docs)]

mod args;
mod backup;
mod load;
mod machine;
pub mod report;
mod run;
pub mod tables;
mod tape;

pub use args::{CommitName, IsolationName, ScaleName, TpccArgs};
pub use machine::Machine;
pub use run::{isolation, measure_and_report, prepare, run_on_files, with_cache, with_memory};
