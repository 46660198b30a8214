//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod batches_match_a_model;
mod batches_work_when_no_ring_can_be_made;
mod block_devices_and_full_file_systems;
mod counts_are_exact;
mod crash_images_hold_what_was_made_durable;
mod faults_happen_as_planned;
mod files_have_one_user;
mod files_keep_what_is_written;
mod overlays_leave_the_base_alone;
mod reads_complete_one_by_one;
mod recording_writes_what_was_asked;
