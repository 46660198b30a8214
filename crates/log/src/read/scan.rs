//! Finding the end of the log at recovery, and proving that nothing durable is missing before it.
//!
//! One pass over the devices from the section that holds `from`. It walks the groups of each epoch,
//! and records for every block the durable LSN that the block carries. An epoch's log ends
//! * where the start record of a later epoch says it ended, or
//! * for the newest epoch, after the last whole group before the first missing byte.
//!
//! Log that ends before an LSN that a block of the same epoch says is durable is damage, not the
//! end. A place that cannot be read is not the end either, unless other devices have copies of all
//! that was there. Bytes right behind the log that hold no log are read once more before they are
//! taken for the end (`doubts.rs`). Blocks beyond the end that were never reported durable are
//! stray: the next epoch starts past them.
//!
//! Memory: 40 bytes for each section that was read and, while reading, 1 MiB for each stream: a
//! device has two streams if it has an area for reissued outliers.

use crate::archive::source::{ArchiveReader, Archived};
use crate::block::{LSN_MAX, next_base};
use crate::error::{LogError, LogErrorKind};
use crate::ids::{LogIdentity, MemberId};
use crate::log::{Log, Opening, check_members};
use crate::options::LogOptions;
use crate::read::doubts::Doubt;
use crate::read::epoch_walk::{Found, Walk, broken, check_claims, missing, underreplicated_log, walk_epochs};
use crate::read::epochs::{EpochTable, Span};
use crate::read::member::Member;
use crate::read::merge::{ArchivePart, Audit, Cursor, Streams};
use crate::read::records::Records;
use crate::read::sources::{ArchiveUse, LogSources};
use crate::read::underreplicated::{CopiedBlocks, UnderReplicated};
use firndb_base::sync::{Arc, thread};
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::Device;
use std::collections::BTreeSet;

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
            let found = LogScan::read_until(sources.clone(), until, progress);
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
                LogError::new(LogErrorKind::Failed, message)
            });
        }
    }

    /// Reads the log once. Returns `None` if a place at its end turned out to hold log when it was
    /// read again.
    fn read_until(
        sources: LogSources,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<LogScan>, LogError> {
        let kept = sources.kept_reads.clone();
        let LogSources {
            devices, identity, from, archive: tail, archive_first, threads, closed_after, ..
        } = sources;
        let archive = match &tail {
            ArchiveUse::Needed(archive) => Some(archive),
            ArchiveUse::None | ArchiveUse::Copy(_) | ArchiveUse::Lost(_) => None,
        };
        check_members(&devices, &identity)?;
        let epochs = Arc::new(EpochTable::new(&identity.epochs)?);
        let Some(first) = epochs.of(from).filter(|_| from.0 < LSN_MAX) else {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!("LSN {from} lies in no epoch of the log: {:?}", identity.epochs),
            ));
        };
        let spare = usize::from(identity.redundancy.least_from(from)) - 1;
        let mut lost = Vec::new();
        let places: Vec<Arc<dyn Device>> = devices.clone();
        let (mut members, areas) = read_members(devices, &identity, spare, &mut lost)?;
        let mut streams: Vec<Arc<Member>> = members.iter().cloned().chain(areas).collect();
        let mut copied_blocks = Arc::new(CopiedBlocks::default());
        // Repeated for each member that turns out to be unreadable, and for each epoch that carries
        // copied blocks.
        let (cursor, walks, voids) = loop {
            let is_lost = |member: &Arc<Member>| lost.iter().any(|(id, _)| id.0 == member.owner.member);
            members.retain(|member| !is_lost(member));
            streams.retain(|member| !is_lost(member));
            let part = tail.part(identity.database, archive_first);
            let asked = part.is_some();
            let read =
                Streams { members: streams.clone(), epochs: Arc::clone(&epochs), last_blocks: None, threads };
            let mut cursor = Cursor::new(read, first, from, part).with(&copied_blocks);
            if asked || identity.redundancy.least_from(from) > 1 || !identity.redundancy.steps().is_empty() {
                let (redundancy, absent) = (identity.redundancy.clone(), lost.len());
                cursor.audit =
                    Some(Audit { redundancy, absent, underreplicated: Vec::new(), overflowed: false });
            }
            let mut found = Found { copied_blocks: (*copied_blocks).clone(), voids: Vec::new() };
            let outcome = walk_epochs(&mut cursor, &epochs, first, from..until, &mut found, progress)
                .and_then(|walks| cursor.drain().map(|()| walks));
            match outcome {
                Err(error) if cursor.failed.is_some() && lost.len() < spare => {
                    lost.extend(cursor.failed.map(|member| (member, error)));
                }
                _ if found.copied_blocks != *copied_blocks => copied_blocks = Arc::new(found.copied_blocks),
                outcome => break (cursor, outcome?, found.voids),
            }
        };
        let mut cursor = cursor;
        let mut walks = walks;
        progress(cursor.bytes_read(), cursor.bytes_read());
        let believed = if let ArchiveUse::Lost(from) = tail { until.min(from) } else { until };
        check_claims(&cursor, &epochs, first, believed, &walks, &voids)?;
        if let Some(archive) = archive {
            check_archive(archive, &epochs, &walks)?;
        }
        let (underreplicated, overflowed) = underreplicated_log(cursor.audit.take(), &walks);
        let last = walks.last().expect("there is a walk at least for `from`");
        if let Some(lsn) = last.broken {
            return Err(broken(lsn));
        }
        let end = last.span.end;
        let closed = closed_after.is_some_and(|lsn| lsn < end);
        if until.0 == LSN_MAX && !closed {
            // The presumed ends of the log, and of epochs on which nothing was built. An epoch of
            // which no block was found may have had one in its first unit.
            let empty = epochs.ranges().iter().map(|range| range.start).filter(|&start| start > last.reached);
            let ends =
                [last.reached].into_iter().chain(voids.iter().map(|&(_, reached)| reached)).chain(empty);
            for end in ends.collect::<Vec<_>>() {
                let doubts = cursor.doubts_at(end);
                let member = |place: usize| cursor.readers()[place].member();
                let holders: BTreeSet<u32> = doubts
                    .iter()
                    .filter(|(_, doubt)| doubt.unreadable)
                    .map(|&(place, _)| member(place))
                    .collect();
                let copies = usize::from(identity.redundancy.least_from(end));
                if holders.len() + lost.len() >= copies && !holders.is_empty() {
                    return Err(unreadable(end, &cursor, &doubts));
                }
                for (place, doubt) in doubts.into_iter().filter(|(_, doubt)| !doubt.unreadable) {
                    let reader = &cursor.readers()[place];
                    let device = places.iter().position(|device| Arc::ptr_eq(device, reader.device()));
                    if let (Some(kept), Some(device)) = (&kept, device) {
                        let at = reader.offset(doubt.linear);
                        kept.forget(device, at..at + reader.unit_bytes());
                    }
                    if reader.reread_unit(doubt.linear, doubt.after)? {
                        return Ok(None);
                    }
                }
            }
        }
        let seen = cursor.readers().iter().map(|r| r.seen.max_end).max().unwrap_or(end);
        let devices_from = cursor.devices_from.unwrap_or(from).max(from);
        if seen < devices_from && devices_from > epochs.ranges()[first].start {
            // Log was durable up to `from` when `from` became the start, and its last block is
            // never recycled before later log is on the devices. The same holds for log that was
            // archived, up to the LSN from which the devices were read instead.
            return Err(missing(seen, devices_from));
        }
        let archived = archive.map_or(end, Archived::reach);
        let begun = streams.iter().map(|m| m.newest_first()).max().unwrap_or(end);
        Ok(Some(LogScan {
            whole: until.0 == LSN_MAX,
            next_start: next_base(end.max(seen).max(begun).max(archived).max(epochs.last().start)),
            from_archive: (cursor.from_archive, cursor.filled_until),
            archive_first: (cursor.archive_first > 0).then_some((devices_from, cursor.archive_first)),
            last_blocks: cursor.readers().iter().map(|r| r.seen.last_block).collect(),
            spans: walks.drain(..).map(|w| w.span).collect(),
            spare: spare - lost.len(),
            members,
            streams,
            epochs,
            from,
            copied_blocks,
            lost,
            underreplicated,
            overflowed,
            database: identity.database,
            archive: tail,
            threads,
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
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                "a log that is open cannot be opened once more",
            ));
        }
        if epoch <= self.epochs.last().epoch || start < self.next_start || start != next_base(start) {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!(
                    "a new epoch is higher than {} and starts at LSN {} or a later block: {epoch} at LSN {start} \
                     will not do",
                    self.epochs.last().epoch,
                    self.next_start
                ),
            ));
        }
        let resumed = self.streams.iter().zip(&self.last_blocks);
        let mut spaces: Vec<_> =
            resumed.map(|(stream, &last)| (stream.owner, stream.resume(last, self.from, start))).collect();
        let mut found_areas = spaces.split_off(self.members.len());
        let areas = self.members.iter().map(|member| {
            let place = found_areas.iter().position(|(owner, _)| *owner == member.owner.area())?;
            Some(found_areas.swap_remove(place).1)
        });
        let opening = Opening {
            database: self.database,
            devices: self.members.iter().map(|m| Arc::clone(&m.device)).collect(),
            owners: self.members.iter().map(|m| m.owner).collect(),
            areas: areas.collect(),
            spaces: spaces.into_iter().map(|(_, space)| space).collect(),
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

impl ArchiveUse {
    /// The archive's part for a cursor that reads log before `first` from it.
    fn part(&self, database: DatabaseId, first: Option<Lsn>) -> Option<ArchivePart> {
        let (reader, needed) = match self {
            ArchiveUse::None | ArchiveUse::Lost(_) => return None,
            ArchiveUse::Copy(files) => (ArchiveReader::new(files.clone(), database, Lsn(LSN_MAX)), false),
            ArchiveUse::Needed(archived) => (archived.reader(), true),
        };
        Some(ArchivePart { reader, needed, first })
    }
}

/// The archive's last chunk was written after all log before it had been archived: the scan must
/// have found that log.
fn check_archive(archive: &Archived, epochs: &EpochTable, walks: &[Walk]) -> Result<(), LogError> {
    let (mark, last) = (archive.end_mark(), walks.last().expect("there is a walk at least for `from`"));
    let range = epochs.ranges()[last.span.epoch];
    // For an older epoch, a later epoch's start record has said where it ended.
    let same = (range.epoch, range.start) == (mark.epoch, mark.start);
    if same && archive.claim() > last.reached { Err(missing(last.reached, archive.claim())) } else { Ok(()) }
}

/// The error for log that may continue at LSN `end`, where a device cannot be read, and on no other
/// device.
fn unreadable(end: Lsn, cursor: &Cursor, doubts: &[(usize, Doubt)]) -> LogError {
    let places: Vec<String> = doubts
        .iter()
        .filter(|(_, doubt)| doubt.unreadable)
        .map(|&(place, doubt)| {
            let reader = &cursor.readers()[place];
            let name = &reader.device().info().name;
            format!("{} bytes of {name} from byte {} on", reader.unit_bytes(), reader.offset(doubt.linear))
        })
        .collect();
    LogError::new(
        LogErrorKind::Damaged,
        format!(
            "the log is damaged: it may go on at LSN {end}, but where that would be cannot be read: {}. Restore the log \
             device from a copy, or restore a backup; or write zeros there, which gives up the commits that it may hold",
            places.join(", ")
        ),
    )
}

/// All main streams, and all areas for reissued outliers.
type MembersAndAreas = (Vec<Arc<Member>>, Vec<Arc<Member>>);

/// Reads the headers; up to `spare` devices that cannot be read are recorded in `lost`.
fn read_members(
    devices: Vec<Arc<dyn Device>>,
    identity: &LogIdentity,
    spare: usize,
    lost: &mut Vec<(MemberId, LogError)>,
) -> Result<MembersAndAreas, LogError> {
    let outcomes: Vec<Result<(Member, Option<Member>), LogError>> = if devices.len() == 1 {
        devices.into_iter().map(|device| Member::read(device, identity, 0)).collect()
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> = devices
                .into_iter()
                .enumerate()
                .map(|(place, device)| scope.spawn(move || Member::read(device, identity, place)))
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    };
    let (mut members, mut areas) = (Vec::new(), Vec::new());
    for (outcome, &member) in outcomes.into_iter().zip(&identity.members) {
        let (main, area) = match outcome {
            Err(error) if lost.len() < spare => {
                lost.push((member, error));
                continue;
            }
            outcome => outcome?,
        };
        members.push(Arc::new(main));
        areas.extend(area.map(Arc::new));
    }
    match members.iter().find(|m| m.geometry.unit != members[0].geometry.unit) {
        Some(other) => Err(LogError::new(
            LogErrorKind::Damaged,
            format!(
                "{} and {} are log devices of one database with different units",
                members[0].device.info().name,
                other.device.info().name
            ),
        )),
        None => Ok((members, areas)),
    }
}
