//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod indexes_follow_their_tables;
mod refused_transactions_run_again_whole;
mod the_driver_counts_what_is_durable;
mod tpcc_keeps_its_conditions;
