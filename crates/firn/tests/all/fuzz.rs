//! The fuzzers of `fuzz/`, run for a short time, and their seeds.

mod delta_seeds;
mod page_row_seeds;
pub mod runs_are_short_here;
mod seeds;
