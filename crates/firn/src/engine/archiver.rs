//! The archive as the engine uses it: a step function, a hold on the log, and a state. The archive
//! itself is in `crate::backup::archive`, above the engine; the facade hands in what opens it.

use crate::engine::Engine;
use crate::engine::log_holds::LogHolds;
use crate::engine::superblock::Superblock;
use crate::error::Error;
use crate::options::archive::{ArchiveFull, ArchiveSettings};
use firndb_base::{Lsn, Progress};
use firndb_log::ReadLog;
use std::path::PathBuf;
use std::time::Duration;

/// The state of the archive of an open database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveStatistics {
    /// Its directory.
    pub directory: PathBuf,
    /// All log before this LSN is archived, except for gaps; `None` until it is known.
    pub archived: Option<Lsn>,
    /// Bytes of durable log that are not archived yet.
    pub behind_bytes: u64,
    /// Writes since the database was opened.
    pub writes: u64,
    /// Writes of log that the log's devices lacked, which may have acknowledged commits.
    pub early_writes: u64,
    /// Bytes of log archived since the database was opened.
    pub bytes: u64,
    /// Gaps found or declared since the database was opened: log that the archive will never have.
    pub gaps: Vec<(Lsn, Lsn)>,
    /// Why the archive does not proceed at the moment.
    pub failing: Option<String>,
}

/// The archive of an open database.
pub(crate) trait Archiver: Send + Sync {
    /// Gives it the log before this opening's epoch that recovery has read.
    fn take_read(&self, read: ReadLog);
    /// Archives one piece of log if there is enough, or whatever there is if `all`. Does nothing
    /// while another thread does.
    fn step(&self, engine: &Engine, all: bool) -> Progress;
    /// Waits until there may be something to archive.
    fn wait(&self, engine: &Engine);
    /// Ends the waits for the archive, and those that begin later: the database is being closed.
    fn stop_waiting(&self);
    /// Whether no thread may wait for the archive any more.
    fn is_closing(&self) -> bool;
    /// Waits until more is archived than `seen`; false if that did not happen within the archive's
    /// patience, or will not because the database is being closed.
    fn wait_beyond(&self, seen: Option<Lsn>) -> bool;
    /// Archives what is left and seals the segment, for at most `limit`: the database is being
    /// closed.
    fn finish(&self, engine: &Engine, limit: Duration);
    /// All log before this LSN is archived, except for gaps.
    fn archived(&self) -> Option<Lsn>;
    /// Whether its directory cannot be used.
    fn is_away(&self) -> bool;
    /// What happens when the log is full because it is not archived.
    fn when_full(&self) -> ArchiveFull;
    /// Why the archive does not proceed, as a clause for error messages.
    fn trouble(&self) -> String;
    /// Its state, combined with that of this database's log.
    fn statistics(&self, engine: &Engine) -> ArchiveStatistics;
}

/// Opens archives for a database that is being opened or created.
pub(crate) trait OpenArchive {
    /// The archive at `path`, with its hold on the log, which ends at `log_end`.
    ///
    /// Errors: `BadArgument` if it is another database's, or holds more log than this database has.
    fn open(
        &self,
        superblock: &Superblock,
        path: Option<String>,
        log_end: Lsn,
        options: &ArchiveSettings,
        retention: &LogHolds,
    ) -> Result<Option<Box<dyn Archiver>>, Error>;
    /// The archive at `path`, of which only the state is shown: nothing is created, written or
    /// held.
    fn open_read_only(
        &self,
        superblock: &Superblock,
        path: Option<&str>,
        log_end: Lsn,
        options: &ArchiveSettings,
    ) -> Option<Box<dyn Archiver>>;
}
