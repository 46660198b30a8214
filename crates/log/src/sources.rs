//! What a scan reads the log from.

use crate::LogIdentity;
use crate::archive::{ArchiveFiles, Archived};
use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_device::Device;

/// What [`crate::LogScan::find`] reads.
#[derive(Clone, Debug)]
pub struct LogSources {
    /// The log's devices, in the order of the identity's members.
    pub devices: Vec<Arc<dyn Device>>,
    /// What the superblock knows of the log.
    pub identity: LogIdentity,
    /// Where to begin: the redo start of the last checkpoint, or an older record.
    pub from: Lsn,
    /// What the archive is asked for.
    pub archive: ArchiveUse,
    /// The archive is the faster source: log before this LSN, which all the devices had when it was archived, is read from
    /// it as far as it has that without a hole, and the devices are read from there on.
    pub archive_first: Option<Lsn>,
    /// Whether each device is read ahead by a thread of its own. Without, what is read has one order, which tests of
    /// failing devices replay; several devices are read side by side all the same, each time one has nothing left.
    pub threads: bool,
}

impl LogSources {
    /// The devices alone.
    #[must_use]
    pub fn new(devices: Vec<Arc<dyn Device>>, identity: LogIdentity, from: Lsn) -> LogSources {
        LogSources { devices, identity, from, archive: ArchiveUse::None, archive_first: None, threads: true }
    }

    /// With the archive in this part.
    #[must_use]
    pub fn with_archive(mut self, archive: ArchiveUse) -> LogSources {
        self.archive = archive;
        self
    }

    /// With log before `until` read from the archive, if that has it.
    #[must_use]
    pub fn with_archive_first(mut self, until: Option<Lsn>) -> LogSources {
        self.archive_first = until;
        self
    }

    /// With or without threads that read ahead.
    #[must_use]
    pub fn with_threads(mut self, threads: bool) -> LogSources {
        self.threads = threads;
        self
    }
}

/// The archive's part in a scan.
#[derive(Clone, Debug)]
pub enum ArchiveUse {
    /// There is none, or it is not asked.
    None,
    /// The devices have all log that was acknowledged, and the archive a copy of what they had when it was archived. It is
    /// asked for blocks that the devices lack although they have later ones, or say that these were durable: for what is damaged,
    /// never for more log than the devices tell of. It is not opened before.
    Copy(ArchiveFiles),
    /// Log was archived before the devices had it ([`crate::Log::archived`]), and a crash came between: what they lack is
    /// taken from the archive, and [`crate::LogScan::open_log`] begins with a copy of that. Damage on the devices is made up
    /// for, too.
    Needed(Archived),
    /// As above, and the archive is lost: what only it had from this LSN on is given up, acknowledged or not.
    Lost(Lsn),
}
