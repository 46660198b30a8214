//! Workloads for Firn and its peers: TPC-C and small durable commits, over a small engine trait.
//!
//! Place in the tree: beside the engine, not in it. This crate knows no engine; adapters implement
//! [`Engine`] (or [`PlainTransaction`], with secondary indexes from [`Indexed`]), so that every
//! engine does exactly the same work.
//!
//! Invariants: a commit counts only when it is known durable; inputs depend on seeds only, never on
//! an engine's results; a row of a wrong length is reported, never used.

#![forbid(unsafe_code)]

pub mod commit_bench;
mod driver;
mod engine;
pub mod history;
mod indexed;
mod latency;
mod layout;
mod memory;
mod random;
mod report;
pub mod results;
mod schema;
pub mod tpcc;
pub mod wall;

pub use driver::{Attempt, Client, DriverOptions, Length, LiveRate, drive};
pub use engine::{
    Access, Change, Commit, CommitMode, Engine, EngineError, Found, KeyRange, Outcome, PendingCommit, Retry,
    Scan, Session, Transaction, Visit, Visitor,
};
pub use indexed::{IndexBuffers, Indexed, PlainSchema, PlainTable, PlainTransaction};
pub use latency::{Latency, LatencyRecorder};
pub use layout::{Integer, Number, Text};
pub use memory::{MemoryEngine, MemorySession, MemoryTransaction};
pub use random::Random;
pub use report::{KindReport, RetryCounts, RunReport};
pub use schema::{IndexId, IndexSpec, Part, Schema, TableId, TableSpec, make_successor};
