//! Walking the records of each epoch from group to group: where its log ends, and whether log is
//! missing before that.

use crate::block::LSN_MAX;
use crate::error::{LogError, LogErrorKind};
use crate::read::audit::Audit;
use crate::read::epochs::{EpochRange, EpochTable, Span};
use crate::read::merge::Cursor;
use crate::read::underreplicated::{CopiedBlocks, UnderReplicated};
use crate::record::{FRAME, Frame, Kind};
use firndb_base::Lsn;
use firndb_base::codec::Reader as Bytes;
use std::ops::Range;

/// Result of walking an epoch's records.
pub(crate) struct Walk {
    pub span: Span,
    /// LSN at which a record's framing is wrong.
    pub broken: Option<Lsn>,
    /// All bytes before this LSN were found.
    pub reached: Lsn,
}

/// The blocks within the log that have too few copies, and whether there are more than were
/// recorded.
pub(crate) fn underreplicated_log(audit: Option<Audit>, walks: &[Walk]) -> (Vec<UnderReplicated>, bool) {
    let Some(audit) = audit else { return (Vec::new(), false) };
    let within = |(place, mut thin): (usize, UnderReplicated)| {
        let span = walks.iter().find(|walk| walk.span.epoch == place)?.span;
        // Bytes past the end are no log.
        thin.bytes.truncate(span.end.0.saturating_sub(thin.lsn.0) as usize);
        (!thin.bytes.is_empty()).then_some(thin)
    };
    (audit.underreplicated.into_iter().filter_map(within).collect(), audit.overflowed)
}

/// Further results of walking the epochs.
pub(crate) struct Found {
    pub copied_blocks: CopiedBlocks,
    /// Epochs on which nothing was built, with the LSN up to which they were found.
    pub voids: Vec<(usize, Lsn)>,
}

/// Walks the records of every epoch from the one at index `first` on.
pub(crate) fn walk_epochs(
    cursor: &mut Cursor,
    epochs: &EpochTable,
    first: usize,
    wanted: Range<Lsn>,
    found: &mut Found,
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
            // No log of this epoch was reported durable; `check_claims` verifies that.
            continue;
        }
        let (previous_end, copies_end) = read_epoch_start(cursor, range)?;
        if let Some(copies_end) = copies_end {
            let before = found.copied_blocks.clone();
            if !read_copies(cursor, copies_end, &mut found.copied_blocks)? {
                found.copied_blocks = before;
                found.voids.push((place, cursor.pos()));
                continue;
            }
        }
        while walks.len() > 1 && walks.last().is_some_and(|w| w.span.start >= previous_end) {
            walks.pop();
        }
        let last = walks.last_mut().expect("the first walk stays");
        if last.span.start >= previous_end {
            // `from` is between two epochs.
            last.span.end = last.span.start;
            last.broken = None;
        } else if last.span.end >= previous_end {
            last.span.end = previous_end;
            last.broken = None;
        } else {
            return Err(missing(last.broken.unwrap_or(last.span.end), previous_end));
        }
        let after_start = cursor.pos();
        let mut walk = walk(cursor, place, after_start..wanted.end, expected, progress)?;
        (walk.span.start, walk.span.previous_end) = (range.start, previous_end);
        walks.push(walk);
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
    let span = Span { epoch, start: wanted.start, end: wanted.start, previous_end: wanted.start };
    let mut found = Walk { span, broken: None, reached: wanted.start };
    walk_groups(cursor, &mut found, wanted.end, expected, progress)?;
    found.reached = cursor.pos();
    Ok(found)
}

fn walk_groups(
    cursor: &mut Cursor,
    found: &mut Walk,
    end: Lsn,
    expected: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LogError> {
    let mut reported = u64::MAX;
    loop {
        let lsn = cursor.pos();
        if found.span.end == lsn && lsn >= end {
            return Ok(());
        }
        let mut bytes = [0; FRAME];
        if !cursor.read(&mut bytes)? {
            return Ok(());
        }
        let Some(frame) = Frame::decode(lsn, bytes) else {
            found.broken = Some(lsn);
            return Ok(());
        };
        if !cursor.skip(frame.body_len)? {
            return Ok(());
        }
        if !frame.more {
            found.span.end = cursor.pos();
        }
        if cursor.bytes_read() != reported {
            reported = cursor.bytes_read();
            progress(reported, expected.max(reported));
        }
    }
}

/// Reads the first record of an epoch. Returns where the log before it ended and, if copies of
/// blocks follow, where they end.
fn read_epoch_start(cursor: &mut Cursor, range: &EpochRange) -> Result<(Lsn, Option<Lsn>), LogError> {
    let mut bytes = [0; FRAME];
    let mut body = [0; 20];
    let mut whole = cursor.read(&mut bytes)?;
    let frame = Frame::decode(range.start, bytes).filter(|frame| [12, 20].contains(&frame.body_len));
    let body_len = frame.map_or(0, |frame| frame.body_len);
    whole &= cursor.read(&mut body[..body_len])?;
    let mut fields = Bytes::new(&body[..body_len]);
    let (epoch, previous_end) = (fields.u32().unwrap_or(0), fields.u64().unwrap_or(u64::MAX));
    let copies_end = fields.u64().ok().map(Lsn);
    let expected = Frame { body_len, more: false, kind: Kind::EPOCH_START };
    let ends_later = copies_end.is_none_or(|end| end >= cursor.pos() && end.0 < LSN_MAX);
    let sound = whole && frame == Some(expected) && ends_later;
    if !sound || epoch != range.epoch.0 || previous_end > range.start.0 {
        return Err(broken(range.start));
    }
    Ok((Lsn(previous_end), copies_end))
}

/// Reads copies of blocks up to `end`. Returns false if the log ends before.
fn read_copies(cursor: &mut Cursor, end: Lsn, copied_blocks: &mut CopiedBlocks) -> Result<bool, LogError> {
    while cursor.pos() < end {
        let (lsn, mut bytes) = (cursor.pos(), [0; FRAME]);
        if !cursor.read(&mut bytes)? {
            return Ok(false);
        }
        let frame = Frame::decode(lsn, bytes).filter(|f| f.kind == Kind::COPIED && f.end(lsn) <= end);
        let Some(frame) = frame else { return Err(broken(lsn)) };
        let mut body = vec![0; frame.body_len];
        if !cursor.read(&mut body)? {
            return Ok(false);
        }
        copied_blocks.insert(UnderReplicated::decode(&body).ok_or_else(|| broken(lsn))?);
    }
    Ok(true)
}

/// Fails if a block says that log before `believed` is durable that was not found.
pub(crate) fn check_claims(
    cursor: &Cursor,
    epochs: &EpochTable,
    first: usize,
    believed: Lsn,
    walks: &[Walk],
    voids: &[(usize, Lsn)],
) -> Result<(), LogError> {
    if let Some(epoch) = cursor.readers().iter().filter_map(|r| r.seen.unknown).max() {
        return Err(LogErrorKind::Damaged.error(format!(
                "the log holds blocks of epoch {epoch}, but the superblock knows epochs up to {} only: the superblock \
                 is older than the log",
                epochs.last().epoch
            )));
    }
    for (place, range) in epochs.ranges().iter().enumerate().skip(first) {
        let claim = cursor.readers().iter().map(|r| r.seen.claims[place]).max().unwrap_or(Lsn::ZERO);
        let claim = claim.min(believed);
        let walk = walks.iter().find(|w| w.span.epoch == place);
        let void = voids.iter().find(|(epoch, _)| *epoch == place).map(|&(_, reached)| reached);
        let end = void.unwrap_or_else(|| walk.map_or(range.start, |w| w.span.end));
        if claim > end && claim > range.start {
            return Err(missing(walk.and_then(|w| w.broken).unwrap_or(end), claim));
        }
    }
    Ok(())
}

pub(crate) fn missing(from: Lsn, to: Lsn) -> LogError {
    LogErrorKind::Damaged.error(format!(
            "the log is damaged: what follows LSN {from} cannot be read, although it was durable up to LSN {to}. Restore \
             the log device from a copy, or restore a backup"
        ))
}

pub(crate) fn broken(lsn: Lsn) -> LogError {
    LogErrorKind::Damaged
        .error(format!("the log is damaged: there is no record at LSN {lsn}, where one must begin"))
}
