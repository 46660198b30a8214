//! One reading of the log: all streams are merged and walked to the log's end, and what that end
//! rests on is checked.
//!
//! Log that ends before an LSN that a block of the same epoch says is durable is damage, not the
//! end. A place that cannot be read is not the end either, unless other devices have copies of all
//! that was there. Bytes right behind the log that hold no log are read once more before they are
//! taken for the end (`doubts.rs`).

use crate::archive::source::{ArchiveReader, Archived};
use crate::block::{LSN_MAX, next_base};
use crate::error::{LogError, LogErrorKind};
use crate::ids::{LogIdentity, MemberId};
use crate::log::check_members;
use crate::read::audit::Audit;
use crate::read::doubts::Doubt;
use crate::read::epoch_walk::{Found, Walk, broken, check_claims, missing, underreplicated_log, walk_epochs};
use crate::read::epochs::EpochTable;
use crate::read::member::Member;
use crate::read::merge::{ArchivePart, Cursor, Streams};
use crate::read::reader::Reader;
use crate::read::sources::{ArchiveUse, LogSources};
use crate::read::underreplicated::{CopiedBlocks, UnderReplicated};
use firndb_base::sync::{Arc, thread};
use firndb_base::{DatabaseId, Lsn};
use firndb_device::Device;
use std::collections::BTreeSet;

/// What is read, and what was learned of it so far.
pub(crate) struct Reading<'a> {
    sources: &'a LogSources,
    until: Lsn,
    pub epochs: Arc<EpochTable>,
    /// Index of the epoch that holds the first LSN wanted.
    first: usize,
    /// The main streams, in the order of the devices.
    pub members: Vec<Arc<Member>>,
    /// All streams: the main ones, then the areas for reissued outliers.
    pub streams: Vec<Arc<Member>>,
    /// Members that may be unreadable, since other members have copies of their log.
    pub spare: usize,
    /// Those that are.
    pub lost: Vec<(MemberId, LogError)>,
    /// Copies of blocks that later epochs carry.
    pub copied_blocks: Arc<CopiedBlocks>,
}

/// The log, walked to its end.
pub(crate) struct Walked {
    cursor: Cursor,
    walks: Vec<Walk>,
    /// Epochs on which nothing was built, with the LSN up to which they were found.
    voids: Vec<(usize, Lsn)>,
}

/// The log with its end, which was checked.
pub(crate) struct Checked {
    pub cursor: Cursor,
    pub walks: Vec<Walk>,
    pub next_start: Lsn,
    pub archive_first: Option<(Lsn, u64)>,
    pub underreplicated: Vec<UnderReplicated>,
    pub overflowed: bool,
}

impl Reading<'_> {
    /// Reads the members' headers.
    pub fn begin(sources: &LogSources, until: Lsn) -> Result<Reading<'_>, LogError> {
        let LogSources { identity, from, .. } = sources;
        check_members(&sources.devices, identity)?;
        let epochs = Arc::new(EpochTable::new(&identity.epochs)?);
        let Some(first) = epochs.of(*from).filter(|_| from.0 < LSN_MAX) else {
            return Err(LogErrorKind::BadArgument
                .error(format!("LSN {from} lies in no epoch of the log: {:?}", identity.epochs)));
        };
        let spare = usize::from(identity.redundancy.least_from(*from)) - 1;
        let mut lost = Vec::new();
        let (members, areas) = read_members(sources.devices.clone(), identity, spare, &mut lost)?;
        let streams = members.iter().cloned().chain(areas).collect();
        let copied_blocks = Arc::default();
        Ok(Reading { sources, until, epochs, first, members, streams, spare, lost, copied_blocks })
    }

    /// Walks the log. Repeated for each member that turns out to be unreadable, and for each epoch
    /// that carries copied blocks.
    pub fn walk(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<Walked, LogError> {
        loop {
            let lost = &self.lost;
            let is_read = |member: &Arc<Member>| lost.iter().all(|(id, _)| id.0 != member.owner.member);
            self.members.retain(is_read);
            self.streams.retain(is_read);
            let mut cursor = self.cursor();
            let mut found = Found { copied_blocks: (*self.copied_blocks).clone(), voids: Vec::new() };
            let wanted = self.sources.from..self.until;
            let outcome = walk_epochs(&mut cursor, &self.epochs, self.first, wanted, &mut found, progress)
                .and_then(|walks| cursor.drain().map(|()| walks));
            match outcome {
                Err(error) if cursor.failed.is_some() && self.lost.len() < self.spare => {
                    self.lost.extend(cursor.failed.map(|member| (member, error)));
                }
                _ if found.copied_blocks != *self.copied_blocks => {
                    self.copied_blocks = Arc::new(found.copied_blocks);
                }
                outcome => {
                    let walks = outcome?;
                    progress(cursor.bytes_read(), cursor.bytes_read());
                    return Ok(Walked { cursor, walks, voids: found.voids });
                }
            }
        }
    }

    /// A cursor over all streams. It counts copies where log should have several, or may be in the
    /// archive.
    fn cursor(&self) -> Cursor {
        let (identity, from) = (&self.sources.identity, self.sources.from);
        let archive = self.sources.archive.part(identity.database, self.sources.archive_first);
        let redundancy = identity.redundancy.clone();
        let counts = archive.is_some() || redundancy.least_from(from) > 1 || !redundancy.steps().is_empty();
        let streams = Streams {
            members: self.streams.clone(),
            epochs: Arc::clone(&self.epochs),
            last_blocks: None,
            threads: self.sources.threads,
            read_ahead_bytes: self.sources.read_ahead_bytes,
        };
        let mut cursor = Cursor::new(streams, self.first, from, archive).with(&self.copied_blocks);
        cursor.audit = counts.then(|| Audit::new(redundancy, self.lost.len()));
        cursor
    }

    /// The archive, if it has log that the devices may lack.
    fn archive(&self) -> Option<&Archived> {
        match &self.sources.archive {
            ArchiveUse::Needed(archive) => Some(archive),
            ArchiveUse::None | ArchiveUse::Copy(_) | ArchiveUse::Lost(_) => None,
        }
    }

    /// Whether a place where log may go on at one of `ends` holds log when it is read again. Fails
    /// if such a place cannot be read, and too few other devices would have its log.
    fn has_log_at(&self, cursor: &mut Cursor, ends: &[Lsn]) -> Result<bool, LogError> {
        for &end in ends {
            let doubts = cursor.doubts_at(end);
            let (unreadable, readable): (Vec<_>, Vec<_>) =
                doubts.into_iter().partition(|(_, doubt)| doubt.unreadable);
            let holders: BTreeSet<u32> =
                unreadable.iter().map(|&(place, _)| cursor.readers()[place].member()).collect();
            let copies = usize::from(self.sources.identity.redundancy.least_from(end));
            if holders.len() + self.lost.len() >= copies && !holders.is_empty() {
                return Err(unreadable_at(end, cursor, &unreadable));
            }
            for (place, doubt) in readable {
                let reader = &cursor.readers()[place];
                self.forget(reader, doubt.linear);
                if reader.reread_unit(doubt.linear, doubt.after)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Drops what is cached of a unit, so that it is read from the medium.
    fn forget(&self, reader: &Reader, linear: u64) {
        let device = self.sources.devices.iter().position(|device| Arc::ptr_eq(device, reader.device()));
        if let (Some(kept), Some(device)) = (&self.sources.kept_reads, device) {
            let at = reader.offset(linear);
            kept.forget(device, at..at + reader.unit_bytes());
        }
    }
}

impl Walked {
    /// Checks what the log's end rests on. Returns `None` if a place there turns out to hold log
    /// when it is read again.
    pub fn check(mut self, reading: &Reading<'_>) -> Result<Option<Checked>, LogError> {
        let Reading { sources, until, epochs, first, streams, .. } = reading;
        let believed = if let ArchiveUse::Lost(from) = sources.archive { from.min(*until) } else { *until };
        check_claims(&self.cursor, epochs, *first, believed, &self.walks, &self.voids)?;
        if let Some(archive) = reading.archive() {
            check_archive(archive, epochs, &self.walks)?;
        }
        let (underreplicated, overflowed) = underreplicated_log(self.cursor.audit.take(), &self.walks);
        let last = self.walks.last().expect("there is a walk at least for `from`");
        if let Some(lsn) = last.broken {
            return Err(broken(lsn));
        }
        let (end, reached) = (last.span.end, last.reached);
        let closed = sources.closed_after.is_some_and(|lsn| lsn < end);
        if until.0 == LSN_MAX && !closed {
            let ends = self.presumed_ends(epochs, reached);
            if reading.has_log_at(&mut self.cursor, &ends)? {
                return Ok(None);
            }
        }
        let Walked { cursor, walks, .. } = self;
        let seen = cursor.readers().iter().map(|r| r.seen.max_end).max().unwrap_or(end);
        let devices_from = cursor.devices_from.unwrap_or(sources.from).max(sources.from);
        if seen < devices_from && devices_from > epochs.ranges()[*first].start {
            // Log was durable up to `from` when `from` became the start, and its last block is
            // never recycled before later log is on the devices. The same holds for log that was
            // archived, up to the LSN from which the devices were read instead.
            return Err(missing(seen, devices_from));
        }
        let archived = reading.archive().map_or(end, Archived::reach);
        let begun = streams.iter().map(|m| m.newest_first()).max().unwrap_or(end);
        let next_start = next_base(end.max(seen).max(begun).max(archived).max(epochs.last().start));
        let archive_first = (cursor.archive_first > 0).then_some((devices_from, cursor.archive_first));
        Ok(Some(Checked { cursor, walks, next_start, archive_first, underreplicated, overflowed }))
    }

    /// The presumed ends of the log, which reaches up to `reached`, and of epochs on which nothing
    /// was built. An epoch of which no block was found may have had one in its first unit.
    fn presumed_ends(&self, epochs: &EpochTable, reached: Lsn) -> Vec<Lsn> {
        let voids = self.voids.iter().map(|&(_, reached)| reached);
        let empty = epochs.ranges().iter().map(|range| range.start).filter(|&start| start > reached);
        [reached].into_iter().chain(voids).chain(empty).collect()
    }
}

impl ArchiveUse {
    /// The archive's part for a cursor that reads log before `first` from it.
    pub(crate) fn part(&self, database: DatabaseId, first: Option<Lsn>) -> Option<ArchivePart> {
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
fn unreadable_at(end: Lsn, cursor: &Cursor, doubts: &[(usize, Doubt)]) -> LogError {
    let places: Vec<String> = doubts
        .iter()
        .map(|&(place, doubt)| {
            let reader = &cursor.readers()[place];
            let name = &reader.device().info().name;
            format!("{} bytes of {name} from byte {} on", reader.unit_bytes(), reader.offset(doubt.linear))
        })
        .collect();
    LogErrorKind::Damaged.error(format!(
            "the log is damaged: it may go on at LSN {end}, but where that would be cannot be read: {}. Restore the log \
             device from a copy, or restore a backup; or write zeros there, which gives up the commits that it may hold",
            places.join(", ")
        ))
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
    let devices = devices.into_iter().enumerate().collect();
    let outcomes = thread::each(devices, |(place, device)| Member::read(device, identity, place));
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
        Some(other) => Err(LogErrorKind::Damaged.error(format!(
            "{} and {} are log devices of one database with different units",
            members[0].device.info().name,
            other.device.info().name
        ))),
        None => Ok((members, areas)),
    }
}
