//! Dropped tables, deleted rows, large values.

mod dropped;
mod ghosts_are_removed;
mod large_values;
mod loading;
