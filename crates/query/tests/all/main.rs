//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod broken_operators_are_noticed;
mod common;
mod joins_count_before_they_choose;
mod naive;
mod plans_agree_with_a_naive_evaluator;
mod queries_end_when_asked;
mod queries_keep_their_memory;
mod queries_see_one_state;
mod samples_agree_with_a_naive_evaluator;
mod spill_devices_fail;
