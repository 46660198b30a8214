//! Whole databases under faults and power cuts, on a deterministic scheduler, from a seed.
//!
//! Place in the tree: beside the engine, above it. A *scenario* ([`scenario`]) follows from a seed:
//! sizes, devices, clients, faults, power cuts. A *run* ([`mod@run`]) plays it inside
//! [`firndb_base::sim`], the engine's own code with its own threads in virtual time, and says what
//! was wrong. A *swarm* ([`swarm`]) runs many seeds.
//!
//! What passes below DRAM is watched by a [`shadow`].
//!
//! Invariants: a run depends on its seed alone (equal seeds: equal traces, equal narratives, equal
//! verdicts); a verdict's `wrong` is empty unless the engine broke a promise of
//! `docs/fault-model.md`.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

pub mod array;
pub mod chores;
pub mod client;
mod hours;
mod images;
pub mod journal;
pub mod ledger;
pub mod machine;
pub mod medium;
pub mod restoring;
pub mod run;
pub mod scenario;
pub mod shadow;
pub mod shelf;
pub mod swarm;

pub use run::{Summary, Verdict, run};
pub use scenario::{Canary, Scenario};
