//! The tests of this crate's public interface, in one program: each file is one promise or one way to break it.

mod backups_restore_to_any_commit;
mod bench_log_measures_and_replays;
mod characterize_measures_and_leaves_nothing;
mod commands_answer_in_sentences;
mod emulate_mounts_and_ends_in_order;
mod flash_cache_is_managed;
mod kill_nine_loses_nothing;
mod log_devices_are_managed;
mod looking_changes_nothing;
mod nand_replays_what_was_recorded;
mod support;
mod the_cache_bench_measures_alike;
mod tpcc_in_virtual_time_replays;
mod tpcc_runs_as_a_new_user_would;
