//! The tests of this crate's public interface, in one program: each file is one promise or one way to break it.

mod a_full_log_buffer_stops_nobody_else;
mod common;
mod ghosts_wait_for_log;
mod review_prepared_transactions;
mod review_spilling_beside_undo;
mod waits_end_in_time;
