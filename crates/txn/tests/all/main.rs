//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_full_log_buffer_stops_no_other_thread;
mod batches_of_a_scan;
mod common;
mod created_trees_are_freed_although_the_log_is_full;
mod ghosts_wait_for_log;
mod lists_are_locked_in_their_order;
mod prepared_transactions_keep_their_locks_and_their_log;
mod spilling_runs_beside_undo;
mod waits_end_in_time;
mod what_is_taken_back_takes_no_memory;
