//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_database_survives_reopening;
mod a_seed_replays_the_whole_engine;
mod archive;
mod bad_input;
mod closing_ends_although_a_device_hangs;
mod compaction;
mod crashes;
mod damage;
mod devices_can_be_wrapped;
mod examples_run;
mod failing_calls;
mod flash_cache;
mod full_devices;
mod fuzz;
mod histories;
mod isolation;
mod log_devices;
mod looking_does_not_touch;
mod model;
mod page_file_images;
mod page_files;
mod page_parts;
mod profiles_decide_settings;
mod queries;
mod queries_spill;
mod raw_devices;
mod recovery;
mod store_devices;
mod support;
mod tables;
mod tables_are_analyzed_in_the_background;
mod the_map_gets_memory;
mod threads_in_small;
mod transact_runs_again;
mod two_processes_are_refused;
