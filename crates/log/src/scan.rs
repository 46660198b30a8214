//! Finding the log: where it ends, and that nothing durable is missing before that.
//!
//! One pass over the devices from the section that holds `from`: it walks the groups of each epoch, and
//! notes what every block says was durable when it was written. An epoch's log ends
//! * where the start record of a later epoch says it ended, or
//! * for the newest epoch, after the last whole group before the first missing byte.
//!
//! Log that ends before something that a block of the same epoch says is durable is damage, not the end.
//! Blocks beyond the end that nobody was told are durable are ghosts: the next epoch starts past them.
//!
//! Memory: the section headers (half a KiB a section) and, while reading, half a MiB for each device.

use crate::block::{LSN_MAX, next_base};
use crate::epochs::{EpochRange, EpochTable};
use crate::log::{Opening, check_members};
use crate::member::Member;
use crate::merge::Cursor;
use crate::reader::Reader;
use crate::record::{FRAME, Frame, Kind};
use crate::{Log, LogError, LogErrorKind, LogOptions, Records};
use firn_base::codec::Reader as Bytes;
use firn_base::sync::{Arc, thread};
use firn_base::{DatabaseId, Epoch, Lsn};
use firn_device::Device;
use std::ops::Range;

/// Names one log device within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u32);

/// What the superblock knows of the log, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// Whose log it is.
    pub database: DatabaseId,
    /// Every member, in the order of the devices handed in.
    pub members: Vec<MemberId>,
    /// Each epoch that log still in use may carry, with the LSN at which it starts; ascending. The first
    /// epoch of a database starts at [`Lsn::FIRST`].
    pub epochs: Vec<(Epoch, Lsn)>,
}

/// The log of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Place of the epoch in the table.
    pub epoch: usize,
    pub start: Lsn,
    pub end: Lsn,
}

/// The log as found on the devices, up to its end.
pub struct LogScan {
    /// The main streams, in the order of the devices.
    members: Vec<Arc<Member>>,
    /// All streams: the main ones, then the areas for re-issued outliers.
    streams: Vec<Arc<Member>>,
    epochs: Arc<EpochTable>,
    from: Lsn,
    /// Ascending; at least one.
    spans: Vec<Span>,
    next_start: Lsn,
    /// The log was read whole, up to its end.
    whole: bool,
    /// By stream: linear position of the last block that is log.
    last_blocks: Vec<Option<u64>>,
}

/// What walking an epoch's records found.
struct Walk {
    span: Span,
    /// A record's framing is wrong at this LSN.
    broken: Option<Lsn>,
}

impl LogScan {
    /// Finds the log from `from` (the redo start of the last checkpoint) to its end, reading all devices
    /// side by side. `progress` is told bytes read and bytes expected.
    pub fn new(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        from: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        LogScan::find(devices, identity, from, Lsn(LSN_MAX), progress)
    }

    /// As [`LogScan::new`], of a log that is open and being written: up to `until`, an LSN that its
    /// [`Log::durable`] has answered, and not further. The log must not be truncated past `from` while the
    /// scan is in use. No log can be opened from it.
    pub fn up_to(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        from: Lsn,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        LogScan::find(devices, identity, from, until.min(Lsn(LSN_MAX - 1)), progress)
    }

    fn find(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        from: Lsn,
        until: Lsn,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        check_members(&devices, &identity)?;
        let epochs = Arc::new(EpochTable::new(&identity.epochs)?);
        let Some(first) = epochs.of(from).filter(|_| from.0 < LSN_MAX) else {
            return Err(LogError::new(
                LogErrorKind::BadArgument,
                format!("LSN {from} lies in no epoch of the log: {:?}", identity.epochs),
            ));
        };
        let (members, areas) = read_members(devices, &identity)?;
        let streams: Vec<Arc<Member>> = members.iter().cloned().chain(areas).collect();
        let mut cursor =
            Cursor::new(Arc::clone(&epochs), readers(&streams, &epochs, from, None), first, from);
        let mut walks = walk_epochs(&mut cursor, &epochs, first, from..until, progress)?;
        cursor.drain()?;
        progress(cursor.bytes_read, cursor.bytes_read);
        check_claims(&cursor, &epochs, first, until, &walks)?;
        let last = walks.last().expect("there is a walk at least for `from`");
        if let Some(lsn) = last.broken {
            return Err(broken(lsn));
        }
        let end = last.span.end;
        let seen = cursor.readers().iter().map(|r| r.seen.max_end).max().unwrap_or(end);
        if seen < from && from > epochs.ranges()[first].start {
            // Log was durable up to `from` when it became the start, and its last block is never recycled
            // before later log lies elsewhere.
            return Err(missing(seen, from));
        }
        let begun = streams.iter().map(|m| m.newest_first()).max().unwrap_or(end);
        Ok(LogScan {
            whole: until.0 == LSN_MAX,
            next_start: next_base(end.max(seen).max(begun).max(epochs.last().start)),
            last_blocks: cursor.readers().iter().map(|r| r.seen.last_block).collect(),
            spans: walks.drain(..).map(|w| w.span).collect(),
            members,
            streams,
            epochs,
            from,
        })
    }

    /// First LSN after the last whole group.
    pub fn end(&self) -> Lsn {
        self.spans.last().expect("at least one").end
    }

    /// Where the next epoch may start: at or after `end()`, on a block boundary, past everything that an
    /// old block could claim.
    pub fn next_epoch_start(&self) -> Lsn {
        self.next_start
    }

    /// The records from `from` to the end, in LSN order, incomplete last group and the log's own records
    /// left out. May be called more than once. `from` is a record's LSN at or after the one given to `new`.
    pub fn records(&self, from: Lsn) -> Records<'_> {
        Records::new(self, from)
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The epoch at a place of the table.
    pub(crate) fn epoch(&self, place: usize) -> Epoch {
        self.epochs.ranges()[place].epoch
    }
    /// Where it starts.
    pub(crate) fn epoch_start(&self, place: usize) -> Lsn {
        self.epochs.ranges()[place].start
    }

    pub(crate) fn cursor(&self, epoch: usize, from: Lsn) -> Cursor {
        let readers = readers(&self.streams, &self.epochs, from, Some(&self.last_blocks));
        Cursor::new(Arc::clone(&self.epochs), readers, epoch, from)
    }

    /// Opens the log for appending in `epoch`, which the caller has made durable in the superblock with
    /// its start at `start`. What lies before `end()` stays readable through this scan until the log is
    /// truncated past it: redo reads records while eviction already appends.
    ///
    /// The epoch's first record is the log's own, so `Log::end` of the opened log lies a few bytes past `start`.
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
            devices: self.members.iter().map(|m| Arc::clone(&m.device)).collect(),
            owners: self.members.iter().map(|m| m.owner).collect(),
            areas: areas.collect(),
            spaces: spaces.into_iter().map(|(_, space)| space).collect(),
            epoch,
            start,
            oldest: self.from,
            previous_end: Some(self.end()),
        };
        Log::open(opening, options)
    }
}

impl std::fmt::Debug for LogScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogScan").field("from", &self.from).field("end", &self.end()).finish_non_exhaustive()
    }
}

/// All main streams, and all areas for re-issued outliers.
type Streams = (Vec<Arc<Member>>, Vec<Arc<Member>>);

fn read_members(devices: Vec<Arc<dyn Device>>, identity: &LogIdentity) -> Result<Streams, LogError> {
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
    for outcome in outcomes {
        let (main, area) = outcome?;
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

/// A reader for each stream from the first block that may matter; up to the last block of log, if known.
fn readers(
    members: &[Arc<Member>],
    epochs: &Arc<EpochTable>,
    from: Lsn,
    last_blocks: Option<&[Option<u64>]>,
) -> Vec<Reader> {
    members
        .iter()
        .enumerate()
        .map(|(i, member)| {
            let mut range = member.range(from);
            if let Some(last_blocks) = last_blocks {
                let end = last_blocks[i].map_or(range.start, |last| last + crate::block::BLOCK as u64);
                range.end = end.max(range.start);
            }
            Reader::new(Arc::clone(member), Arc::clone(epochs), range)
        })
        .collect()
}

/// Walks the records of every epoch from the one at place `first` on.
fn walk_epochs(
    cursor: &mut Cursor,
    epochs: &EpochTable,
    first: usize,
    wanted: Range<Lsn>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Walk>, LogError> {
    let expected = cursor.left();
    let mut walks = vec![walk(cursor, first, wanted.clone(), expected, progress)?];
    for (place, range) in epochs.ranges().iter().enumerate().skip(first + 1) {
        if range.start == range.limit || range.start >= wanted.end {
            continue;
        }
        cursor.seek(place, range.start);
        if cursor.available()? == 0 {
            // Nobody was told that anything of this epoch is durable; `check_claims` makes sure of it.
            continue;
        }
        let previous_end = read_epoch_start(cursor, range)?;
        while walks.len() > 1 && walks.last().is_some_and(|w| w.span.start >= previous_end) {
            walks.pop();
        }
        let last = walks.last_mut().expect("the first walk stays");
        if last.span.start >= previous_end {
            // `from` lies between two epochs.
            last.span.end = last.span.start;
            last.broken = None;
        } else if last.span.end >= previous_end {
            last.span.end = previous_end;
            last.broken = None;
        } else {
            return Err(missing(last.broken.unwrap_or(last.span.end), previous_end));
        }
        let after_start = cursor.pos();
        let mut found = walk(cursor, place, after_start..wanted.end, expected, progress)?;
        found.span.start = range.start;
        walks.push(found);
    }
    Ok(walks)
}

/// Walks records from the cursor's position to the last whole group.
fn walk(
    cursor: &mut Cursor,
    epoch: usize,
    wanted: Range<Lsn>,
    expected: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Walk, LogError> {
    let mut found = Walk { span: Span { epoch, start: wanted.start, end: wanted.start }, broken: None };
    let mut told = u64::MAX;
    loop {
        let lsn = cursor.pos();
        if found.span.end == lsn && lsn >= wanted.end {
            return Ok(found);
        }
        let mut bytes = [0; FRAME];
        if !cursor.read(&mut bytes)? {
            return Ok(found);
        }
        let Some(frame) = Frame::decode(lsn, bytes) else {
            found.broken = Some(lsn);
            return Ok(found);
        };
        if !cursor.skip(frame.body_len)? {
            return Ok(found);
        }
        if !frame.more {
            found.span.end = cursor.pos();
        }
        if cursor.bytes_read != told {
            told = cursor.bytes_read;
            progress(told, expected);
        }
    }
}

/// Reads the first record of an epoch; answers where the log before it ended.
fn read_epoch_start(cursor: &mut Cursor, range: &EpochRange) -> Result<Lsn, LogError> {
    let mut bytes = [0; FRAME];
    let mut body = [0; 12];
    let whole = cursor.read(&mut bytes)? && cursor.read(&mut body)?;
    let frame = Frame::decode(range.start, bytes);
    let mut fields = Bytes::new(&body);
    let (epoch, previous_end) = (fields.u32().unwrap_or(0), fields.u64().unwrap_or(u64::MAX));
    let expected = Frame { body_len: body.len(), more: false, kind: Kind::EPOCH_START };
    if !whole || frame != Some(expected) || epoch != range.epoch.0 || previous_end > range.start.0 {
        return Err(broken(range.start));
    }
    Ok(Lsn(previous_end))
}

/// No block may say that something is durable which was not found.
fn check_claims(
    cursor: &Cursor,
    epochs: &EpochTable,
    first: usize,
    until: Lsn,
    walks: &[Walk],
) -> Result<(), LogError> {
    if let Some(epoch) = cursor.readers().iter().filter_map(|r| r.seen.unknown).max() {
        return Err(LogError::new(
            LogErrorKind::Damaged,
            format!(
                "the log holds blocks of epoch {epoch}, but the superblock knows epochs up to {} only: the superblock \
                 is older than the log",
                epochs.last().epoch
            ),
        ));
    }
    for (place, range) in epochs.ranges().iter().enumerate().skip(first) {
        let claim = cursor.readers().iter().map(|r| r.seen.claims[place]).max().unwrap_or(Lsn::ZERO);
        let claim = claim.min(until);
        let walk = walks.iter().find(|w| w.span.epoch == place);
        let end = walk.map_or(range.start, |w| w.span.end);
        if claim > end && claim > range.start {
            return Err(missing(walk.and_then(|w| w.broken).unwrap_or(end), claim));
        }
    }
    Ok(())
}

fn missing(from: Lsn, to: Lsn) -> LogError {
    LogError::new(
        LogErrorKind::Damaged,
        format!(
            "the log is damaged: what follows LSN {from} cannot be read, although it was durable up to LSN {to}. Restore \
             the log device from a copy, or restore a backup"
        ),
    )
}

fn broken(lsn: Lsn) -> LogError {
    LogError::new(
        LogErrorKind::Damaged,
        format!("the log is damaged: there is no record at LSN {lsn}, where one must begin"),
    )
}
