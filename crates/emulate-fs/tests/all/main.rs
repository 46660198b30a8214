//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_power_cut_leaves_a_prefix_of_names;
mod a_shipped_profile_is_kept;
mod faults_come_as_scripted;
mod files_behave_as_in_a_plain_directory;
mod memory_maps_are_written_back;
mod power_cuts_spare_what_was_committed;
mod requests_take_the_devices_time;
mod support;
