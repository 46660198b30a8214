//! Openings after crashes.

mod emulated;
mod first_commit_in_time;
mod openings_without_end;
mod reads_the_faster_source;
mod redo_on_demand;
mod waiters_undo_losers;
mod writes_wait_for_the_limit;
