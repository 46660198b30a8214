//! Copies of a database beside the database: the archive of its log, base backups, and restoring
//! from both.
//!
//! Place in the stack: above `engine`, which it reads and whose log it holds
//! (`engine/log_holds.rs`); the engine reaches the archive through a trait
//! (`engine/archiver.rs`) and imports nothing from here. The facade is above.

pub(crate) mod archive;
pub(crate) mod archive_survey;
pub(crate) mod base_backup;
pub(crate) mod manifest;
pub(crate) mod pages;
pub(crate) mod restore;
pub(crate) mod shadow_images;
