//! Stores and logs without space.

mod disk;
mod holes;
mod log_leaves_space_to_undo;
mod rollback_outgrows_the_log;
