//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod a_check_finds_missing_and_wrong_entries;
mod a_failing_statement_changes_nothing;
mod an_index_is_built_while_writers_write;
mod an_interrupted_drop_of_a_page_file_ends;
mod common;
mod cursors_filter_rows;
mod cursors_go_on_after_a_failure;
mod cursors_keep_their_place;
mod definitions_survive_reopening;
mod dropped_tables_are_freed_when_unneeded;
mod index_builds_settle_notes;
mod index_rows_are_read_together;
mod large_values_agree_with_a_model;
mod large_values_read_in_order_are_read_ahead;
mod many_rows_are_read_with_one_call;
mod raw_tables_agree_with_a_model;
mod read_committed_statements_see_one_moment;
mod rows_are_counted_or_estimated;
mod scans_are_read_ahead;
mod statements_agree_with_a_model;
mod superseded_pages_are_freed_past_damage;
mod tables_are_analyzed;
mod tables_come_and_go_under_statements;
mod unique_indexes_hold_under_concurrency;
