//! Dropped tables, deleted rows, large values.

mod dropped;
mod ghosts_are_removed;
mod ghosts_left_by_a_crash;
mod large_values;
mod loading;
