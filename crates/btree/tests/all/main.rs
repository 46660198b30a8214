//! The tests of this crate's public interface, in one program: each file is one promise or one way
//! to break it.

mod behaves_like_a_sorted_map;
mod bulk_loads_build_whole_trees;
mod calls_beside_structure_changes;
mod checks_find_damage;
mod clearing_goes_past_damage;
mod common;
mod entries_name_pages;
mod errors_change_nothing;
mod garbage_is_swept_from_leaves;
mod leaves_are_named_by_the_nodes_above;
mod many_keys_are_looked_up_by_leaf;
mod no_device_is_waited_for_under_latches;
mod no_latch_is_held_over_a_read;
mod nodes_move_to_lower_numbers;
mod reads_fail_beside_descents;
mod redo_rebuilds_every_page;
mod shapes_of_trees;
mod threads_share_a_tree;
