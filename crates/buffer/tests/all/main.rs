//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_slow_page_holds_up_no_other;
mod changes_are_counted_from_the_base;
mod common;
mod eviction_is_a_pipeline;
mod failures_lose_nothing;
mod many_threads_see_every_change;
mod pages_are_read_ahead;
mod pages_are_redone_as_they_come_in;
mod pages_come_and_go;
mod scans_leave_the_working_set;
