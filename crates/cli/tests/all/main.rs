//! The tests of the command lines, in one program: each file is one promise or one way to break it.
//!
//! Those of `firn lab` are here, too ([`lab`]): only this crate's tests can run the command.

mod backups_restore_to_any_commit;
mod characterize_measures_and_leaves_nothing;
mod commands_answer_in_sentences;
mod compaction_is_a_command;
mod ctrl_c_ends_every_command;
mod flash_cache_is_managed;
#[cfg(feature = "lab")]
mod lab;
mod log_devices_are_managed;
mod looking_changes_nothing;
mod page_files_go_in_and_out;
mod store_devices_are_managed;
mod support;
mod tables_are_analyzed;
mod threads_may_be_refused;
mod tpcc_runs_as_a_new_user_would;
