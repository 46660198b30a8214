//! Tests of the store as a whole, over a log that the tests control.

mod adopt;
mod carried;
mod check_beside;
mod concurrency;
mod crash;
mod crowded;
mod damage;
mod delta_crash;
mod delta_damage;
mod delta_failures;
mod delta_holds;
mod delta_model;
mod delta_reads;
mod delta_threads;
mod full;
mod give_back;
pub(crate) mod harness;
mod lost_sight;
mod many_reads;
mod map_damage;
mod map_log;
mod model;
mod open;
mod redo;
mod segments;
mod syncs;
mod whereabouts;
