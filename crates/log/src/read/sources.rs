//! The sources from which a scan reads the log.

use crate::archive::files::ArchiveFiles;
use crate::archive::source::Archived;
use crate::ids::LogIdentity;
use crate::read::{ahead, read_ahead};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::Device;
use std::ops::Range;

/// Reads of the log's devices that are cached in memory for the second pass.
pub trait KeptReads: std::fmt::Debug + Send + Sync {
    /// Drops cached reads of a range of the device at this index of [`LogSources::devices`], so
    /// that the range is read once more.
    fn forget(&self, device: usize, range: Range<u64>);
}

/// The sources that [`crate::LogScan::find`] reads.
#[derive(Clone, Debug)]
pub struct LogSources {
    /// The log's devices, in the order of the identity's members.
    pub devices: Vec<Arc<dyn Device>>,
    /// What the superblock records of the log.
    pub identity: LogIdentity,
    /// LSN at which to begin: the redo start of the last checkpoint, or an older record.
    pub from: Lsn,
    /// How the scan uses the archive.
    pub archive: ArchiveUse,
    /// Set if the archive is the faster source: log before this LSN, which all the devices had when
    /// it was archived, is read from the archive as far as that has no gap, and the devices are
    /// read from there on.
    pub archive_first: Option<Lsn>,
    /// Whether each device is read ahead by a thread of its own. Without threads, reads have one
    /// order, which tests of failing devices replay; several devices are then still read in
    /// parallel, whenever one has nothing left.
    pub threads: bool,
    /// Bytes of DRAM for reading ahead, of all devices together; at least 320 KiB a device, or
    /// twice that with areas for hedged writes, are used whatever it says. A device profits from
    /// up to 5 MiB.
    pub read_ahead_bytes: usize,
    /// Cache of what was read from the devices. A place whose bytes decide where the log ends is
    /// read once more from the medium itself.
    pub kept_reads: Option<Arc<dyn KeptReads>>,
    /// The log was closed cleanly, and the group that contains this LSN was the last: nothing
    /// depends on what follows.
    pub closed_after: Option<Lsn>,
}

impl LogSources {
    /// Reads of one device that threads keep in flight.
    pub const READS_IN_FLIGHT: usize = ahead::READS;
    /// Bytes of each of them, where there is memory for it.
    pub const READ_BYTES: usize = read_ahead::CHUNK_MAX;

    /// The devices alone.
    #[must_use]
    pub fn new(devices: Vec<Arc<dyn Device>>, identity: LogIdentity, from: Lsn) -> LogSources {
        LogSources {
            devices,
            identity,
            from,
            archive: ArchiveUse::None,
            archive_first: None,
            threads: true,
            read_ahead_bytes: read_ahead::BYTES_USUAL,
            kept_reads: None,
            closed_after: None,
        }
    }

    /// Drops all cached reads.
    pub(crate) fn forget_all(&self) {
        for (place, device) in self.devices.iter().enumerate() {
            self.kept_reads.iter().for_each(|kept| kept.forget(place, 0..device.len()));
        }
    }

    /// Sets how the scan uses the archive.
    #[must_use]
    pub fn with_archive(mut self, archive: ArchiveUse) -> LogSources {
        self.archive = archive;
        self
    }

    /// Reads log before `until` from the archive, as far as it has it.
    #[must_use]
    pub fn with_archive_first(mut self, until: Option<Lsn>) -> LogSources {
        self.archive_first = until;
        self
    }

    /// Sets the cache of reads.
    #[must_use]
    pub fn with_kept_reads(mut self, kept: Arc<dyn KeptReads>) -> LogSources {
        self.kept_reads = Some(kept);
        self
    }

    /// Sets the last group of a log that was closed cleanly.
    #[must_use]
    pub fn closed_after(mut self, lsn: Option<Lsn>) -> LogSources {
        self.closed_after = lsn;
        self
    }

    /// Sets the memory for reading ahead.
    #[must_use]
    pub fn with_read_ahead_bytes(mut self, bytes: usize) -> LogSources {
        self.read_ahead_bytes = bytes;
        self
    }

    /// Sets whether threads read ahead.
    #[must_use]
    pub fn with_threads(mut self, threads: bool) -> LogSources {
        self.threads = threads;
        self
    }
}

/// How a scan uses the archive.
#[derive(Clone, Debug)]
pub enum ArchiveUse {
    /// There is none, or it is not used.
    None,
    /// The devices have all log that was acknowledged, and the archive a copy of what they had when
    /// it was archived. It is asked for blocks that the devices lack although they have later ones,
    /// or have blocks that say these were durable: only to replace damaged log, never for log
    /// beyond what the devices indicate. It is not opened before.
    Copy(ArchiveFiles),
    /// Log was archived before the devices had it ([`crate::Log::archived`]), and a crash came
    /// between. What the devices lack is taken from the archive, and [`crate::LogScan::open_log`]
    /// begins with a copy of it. The archive also replaces damaged log on the devices.
    Needed(Archived),
    /// As above, but the archive is lost: log from this LSN on that only the archive had is given
    /// up, acknowledged or not.
    Lost(Lsn),
}
