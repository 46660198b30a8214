//! Openings after crashes.

mod openings_without_end;
mod reads_the_faster_source;
mod redo_on_demand;
