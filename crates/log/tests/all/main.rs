//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_device_may_fail_join_and_leave;
mod a_failed_write_wakes_everybody;
mod a_flush_never_fails_for_space;
mod a_full_device_keeps_no_thread_busy;
mod a_stalled_device_stalls_no_commit;
mod an_open_log_can_be_read;
mod basics;
mod closing_ends_although_a_device_hangs;
mod commits_share_requests;
mod copies_survive_lost_devices;
mod crashes_keep_what_was_flushed;
mod damage_is_reported_not_taken_for_the_end;
mod damage_where_chunks_meet;
mod hiding_pays;
mod log_nobody_waits_for_gathers;
mod no_bytes_make_a_scan_panic;
mod places_that_cannot_be_read;
mod reads_that_are_spoilt;
mod section_headers_that_cannot_be_read;
mod streams_are_read_ahead;
mod support;
mod the_archive_completes_commits;
mod the_archive_holds_the_log;
mod the_faster_source_is_read_first;
mod the_format_is_pinned;
mod what_handing_over_costs;
