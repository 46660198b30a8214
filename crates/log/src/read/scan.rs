//! Finding the end of the log at recovery, and proving that nothing durable is missing before it.
//!
//! One pass over the devices from the section that holds `from`. It walks the groups of each epoch,
//! and records for every block the durable LSN that the block carries. An epoch's log ends
//! * where the start record of a later epoch says it ended, or
//! * for the newest epoch, after the last whole group before the first missing byte.
//!
//! What the end rests on is checked (`reading.rs`). Blocks beyond the end that were never reported
//! durable are stray: the next epoch starts past them.
//!
//! A scan may find more than an earlier one did after which an epoch was begun, as long as that
//! epoch has no durable log: a request that a crash tore without the header of its section is no
//! log, but is read if that header turns unreadable later. It was never acknowledged, and nothing
//! durable was built on its absence.
//!
//! Memory: 40 bytes for each section that was read and, while reading, what `read_ahead.rs` gives
//! each stream: a device has two streams if it has an area for reissued outliers.

use crate::block::{LSN_MAX, Owner, next_base};
use crate::error::{LogError, LogErrorKind};
use crate::ids::{LogIdentity, MemberId};
use crate::log::{Log, Opening};
use crate::members::new_member::NewMember;
use crate::options::LogOptions;
use crate::read::epochs::{EpochTable, Span};
use crate::read::member::Member;
use crate::read::merge::{Cursor, Streams};
use crate::read::reading::Reading;
use crate::read::records::Records;
use crate::read::sources::{ArchiveUse, LogSources};
use crate::read::underreplicated::{CopiedBlocks, UnderReplicated};
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::Device;

/// Most times that the log is read if places at its end return other bytes each time.
const READS_MAX: usize = 3;

/// The log as found on the devices, up to its end.
pub struct LogScan {
    /// The main streams, in the order of the devices.
    members: Vec<Arc<Member>>,
    /// All streams: the main ones, then the areas for reissued outliers.
    streams: Vec<Arc<Member>>,
    epochs: Arc<EpochTable>,
    from: Lsn,
    /// Ascending; at least one.
    spans: Vec<Span>,
    next_start: Lsn,
    /// The scan read to the log's end, so that the log may be opened from it.
    whole: bool,
    /// By stream: linear position of the last block that is log.
    last_blocks: Vec<Option<u64>>,
    copied_blocks: Arc<CopiedBlocks>,
    /// Members that could not be read, and why; other members have copies of their log.
    lost: Vec<(MemberId, LogError)>,
    /// Further members that may fail while records are read.
    spare: usize,
    /// Blocks with too few copies, oldest first.
    underreplicated: Vec<UnderReplicated>,
    /// There are more such blocks than `underreplicated` holds.
    overflowed: bool,
    database: DatabaseId,
    archive: ArchiveUse,
    /// Threads read the devices ahead.
    threads: bool,
    read_ahead_bytes: usize,
    /// Log before this LSN was read from the archive: this many bytes.
    archive_first: Option<(Lsn, u64)>,
    /// Bytes of log that only the archive had, and where the last of them ends.
    from_archive: (u64, Lsn),
}

impl LogScan {
    /// Finds the log from `from` (the redo start of the last checkpoint) to its end, reading all
    /// devices in parallel, and no archive ([`LogScan::find`] can). `progress` is called with bytes
    /// read and bytes expected.
    pub fn new(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        from: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        LogScan::find(LogSources::new(devices, identity, from), progress)
    }

    /// As [`LogScan::new`], for an open log, up to `until` and no further: an LSN that its
    /// [`Log::on_devices`] has returned. The log is being written meanwhile, and must not be
    /// truncated past `from` while the scan is in use. No log can be opened from this scan.
    pub fn up_to(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        from: Lsn,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        // The devices have commits to write: they are read only when the scan needs more.
        let sources = LogSources::new(devices, identity, from).with_threads(false);
        LogScan::find_until(sources, until.min(Lsn(LSN_MAX - 1)), progress)
    }

    /// Finds the log from `sources.from` to its end, reading all devices in parallel, and the
    /// archive as `sources` asks for.
    pub fn find(sources: LogSources, progress: &mut dyn FnMut(u64, u64)) -> Result<LogScan, LogError> {
        if sources.archive_first.is_some() {
            // The archive only saves time: after any error, the devices alone decide.
            match LogScan::find_until(sources.clone(), Lsn(LSN_MAX), progress) {
                Err(_) => {}
                found => return found,
            }
            let sources = sources.with_archive_first(None);
            return LogScan::find_until(sources, Lsn(LSN_MAX), progress);
        }
        LogScan::find_until(sources, Lsn(LSN_MAX), progress)
    }

    /// As `read_until`, repeated if decisive bytes turned out to differ from those read first.
    fn find_until(
        sources: LogSources,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        let mut reads = 1;
        loop {
            let found = LogScan::read_until(&sources, until, progress);
            let again = match &found {
                Ok(Some(_)) => false,
                Ok(None) => true,
                // A read may have been corrupted in transfer. For an open log, the caller tries
                // again.
                Err(error) => error.kind == LogErrorKind::Damaged && until.0 == LSN_MAX,
            };
            if again && reads < READS_MAX {
                if found.is_err() {
                    sources.forget_all();
                    reads = READS_MAX - 1;
                }
                reads += 1;
                continue;
            }
            return found?.ok_or_else(|| {
                let message =
                    "a log device reads other bytes each time: replace it, or open the database again";
                LogErrorKind::Failed.error(message)
            });
        }
    }

    /// Reads the log once. Returns `None` if a place at its end turned out to hold log when it was
    /// read again.
    fn read_until(
        sources: &LogSources,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<LogScan>, LogError> {
        let mut reading = Reading::begin(sources, until)?;
        let Some(found) = reading.walk(progress)?.check(&reading)? else { return Ok(None) };
        let Reading { members, streams, epochs, copied_blocks, lost, spare, .. } = reading;
        let readers = found.cursor.readers();
        Ok(Some(LogScan {
            whole: until.0 == LSN_MAX,
            next_start: found.next_start,
            from_archive: (found.cursor.from_archive, found.cursor.filled_until),
            archive_first: found.archive_first,
            last_blocks: readers.iter().map(|r| r.seen.last_block).collect(),
            spans: found.walks.iter().map(|w| w.span).collect(),
            spare: spare - lost.len(),
            members,
            streams,
            epochs,
            from: sources.from,
            copied_blocks,
            lost,
            underreplicated: found.underreplicated,
            overflowed: found.overflowed,
            database: sources.identity.database,
            archive: sources.archive.clone(),
            threads: sources.threads,
            read_ahead_bytes: sources.read_ahead_bytes,
        }))
    }

    /// First LSN after the last whole group.
    pub fn end(&self) -> Lsn {
        self.spans.last().expect("at least one").end
    }

    /// The newest epoch in which log was found. No log of a later one was acknowledged.
    #[must_use]
    pub fn newest_epoch(&self) -> Epoch {
        self.epoch(self.spans.last().expect("at least one").epoch)
    }

    /// First LSN at which the next epoch may start: at or after `end()`, on a block boundary, past
    /// everything that a block of an earlier epoch could claim.
    pub fn next_epoch_start(&self) -> Lsn {
        self.next_start
    }

    /// The records from `from` to the end, in LSN order, without an incomplete last group and
    /// without the log's own records. May be called more than once. `from` is a record's LSN at or
    /// after the one given to `new`.
    pub fn records(&self, from: Lsn) -> Records<'_> {
        Records::new(self, from)
    }

    /// Members that could not be read, and why. As far as it was acknowledged, the log is complete
    /// without them.
    #[must_use]
    pub fn lost(&self) -> &[(MemberId, LogError)] {
        &self.lost
    }

    /// Bytes of log that only the archive had.
    #[must_use]
    pub fn from_archive(&self) -> u64 {
        self.from_archive.0
    }

    /// End of the last of these bytes.
    #[must_use]
    pub fn from_archive_until(&self) -> Lsn {
        self.from_archive.1
    }

    /// Bytes of log that were read from the archive because it was named as the faster source.
    #[must_use]
    pub fn archive_first(&self) -> u64 {
        self.archive_first.map_or(0, |(_, bytes)| bytes)
    }

    /// Whether blocks were found on fewer devices than required: [`LogScan::open_log`] copies them.
    #[must_use]
    pub fn has_thin_log(&self) -> bool {
        self.overflowed || !self.underreplicated.is_empty()
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The epoch at an index of the table.
    pub(crate) fn epoch(&self, place: usize) -> Epoch {
        self.epochs.ranges()[place].epoch
    }
    /// Its start.
    pub(crate) fn epoch_start(&self, place: usize) -> Lsn {
        self.epochs.ranges()[place].start
    }

    pub(crate) fn cursor(&self, epoch: usize, from: Lsn) -> Cursor {
        let streams = Streams {
            members: self.streams.clone(),
            epochs: Arc::clone(&self.epochs),
            last_blocks: Some(self.last_blocks.clone()),
            threads: self.threads,
            read_ahead_bytes: self.read_ahead_bytes,
        };
        let first = self.archive_first.map(|(until, _)| until).filter(|&until| from < until);
        let archive = self.archive.part(self.database, first);
        let mut cursor = Cursor::new(streams, epoch, from, archive).with(&self.copied_blocks);
        cursor.spare = self.spare;
        cursor
    }

    /// Opens the log for appending in `epoch`, which the caller has made durable in the superblock
    /// with its start at `start`. Log before `end()` stays readable through this scan until the log
    /// is truncated past it: redo reads records while eviction already appends.
    ///
    /// The epoch's first record is the log's own, so `Log::end` of the opened log is a few bytes
    /// past `start`.
    pub fn open_log(&self, epoch: Epoch, start: Lsn, options: LogOptions) -> Result<Arc<Log>, LogError> {
        if !self.whole {
            return Err(LogErrorKind::BadArgument.error("a log that is open cannot be opened once more"));
        }
        if epoch <= self.epochs.last().epoch || start < self.next_start || start != next_base(start) {
            return Err(LogErrorKind::BadArgument.error(format!(
                "a new epoch is higher than {} and starts at LSN {} or a later block: {epoch} at LSN {start} \
                     will not do",
                self.epochs.last().epoch,
                self.next_start
            )));
        }
        let space = |owner: Owner| {
            let place = self.streams.iter().position(|stream| stream.owner == owner)?;
            Some(self.streams[place].resume(self.last_blocks[place], self.from, start))
        };
        let members = self.members.iter().map(|member| NewMember {
            device: Arc::clone(&member.device),
            owner: member.owner,
            space: space(member.owner).expect("each member has a main stream"),
            area: space(member.owner.area()),
        });
        let opening = Opening {
            database: self.database,
            members: members.collect(),
            epoch,
            start,
            oldest: self.from,
            previous_end: Some(self.end()),
            underreplicated: if self.overflowed { None } else { Some(self.underreplicated.clone()) },
        };
        self.members.iter().for_each(|member| member.repair_header());
        Log::open(opening, options)
    }
}

impl std::fmt::Debug for LogScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogScan").field("from", &self.from).field("end", &self.end()).finish_non_exhaustive()
    }
}
