//! The archive, backups and restores.

mod backup_and_restore;
mod completes_commits;
mod in_its_place;
mod lags_and_gaps;
mod restore_is_whole_or_refused;
mod shadows;
pub mod support;
