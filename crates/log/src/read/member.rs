//! One stream of a log device as recovery finds it: the member header, and the stream's sections
//! that may hold log.
//!
//! The area for reissued outliers is a stream of its own, and recovery reads it like a further
//! member (3.4: a "pseudo device").

use crate::block::{self, BLOCK, Owner, PAYLOAD, STREAM_MAIN, base};
use crate::error::{LogError, LogErrorKind};
use crate::ids::LogIdentity;
use crate::layout::{Geometry, MEMBER_COPIES, MemberHeader};
use crate::read::sections::{Mark, Sections};
use crate::write::space::{DeviceSpace, LiveSection};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability};
use std::collections::VecDeque;
use std::ops::Range;

/// A stream of a member of the log.
#[derive(Debug)]
pub(crate) struct Member {
    pub device: Arc<dyn Device>,
    pub owner: Owner,
    pub geometry: Geometry,
    pub sections: Sections,
    /// The newest section whose header is valid, if any was ever used.
    newest: Option<Mark>,
    /// The newest section that may hold log; 0 if none was ever used.
    last: u64,
    /// The oldest section that may hold log; 1 if none was ever used.
    oldest: u64,
    /// The member header, and the numbers of its copies that are to be written again.
    damaged_header: Option<(MemberHeader, Vec<u64>)>,
}

impl Member {
    /// Reads the device at `place` of the list: its main stream and, if there is one, its area for
    /// reissued outliers.
    pub fn read(
        device: Arc<dyn Device>,
        identity: &LogIdentity,
        place: usize,
    ) -> Result<(Member, Option<Member>), LogError> {
        let FoundHeader { header, damaged_copies } = find_member_header(&*device)?;
        let name = &device.info().name;
        let expected = identity.members[place];
        if header.database != identity.database {
            return Err(LogErrorKind::Damaged.error(format!(
                "{name} is a log device of database {}, not of database {}",
                header.database, identity.database
            )));
        }
        if header.member != expected {
            return Err(LogErrorKind::Damaged.error(format!(
                "{name} is member {} of the log where member {} was expected: a device is missing, or the \
                 devices were handed in in another order",
                header.member.0, expected.0
            )));
        }
        if header.retired {
            return Err(LogErrorKind::Damaged
                .error(format!("{name} has left the log of its database; it is no log device any more")));
        }
        if header.geometry.unit < device.info().logical_block as u64 {
            return Err(LogErrorKind::Damaged.error(format!(
                "{name} has blocks of {} bytes, but the log was made for blocks of up to {}: copy it to a device \
                 with smaller blocks",
                device.info().logical_block,
                header.geometry.unit
            )));
        }
        let owner = Owner::main(block::database_tag(identity.database), expected.0);
        let mut main = Member::read_stream(&device, owner, header.geometry)?;
        main.damaged_header = (!damaged_copies.is_empty()).then_some((header, damaged_copies));
        let area = header.area.map(|geometry| Member::read_stream(&device, owner.area(), geometry));
        Ok((main, area.transpose()?))
    }

    pub fn read_stream(
        device: &Arc<dyn Device>,
        owner: Owner,
        geometry: Geometry,
    ) -> Result<Member, LogError> {
        let sections = Sections::new(Arc::clone(device), owner, geometry);
        let newest = sections.newest()?;
        // Sections with unreadable headers may be newer than all with valid ones: sections never
        // used have valid headers, too.
        let mut begun = newest.map_or(0, |mark| mark.sequence);
        let mut last = begun;
        let most = last + geometry.sections - 1;
        while last < most && !sections.is_readable(last + 1)? {
            last += 1;
        }
        if newest.is_none() && last == most && !sections.is_readable(most + 1)? {
            if owner.stream == STREAM_MAIN {
                return Err(no_section_header(&**device, geometry));
            }
            begun = sections.newest_by_blocks()?.unwrap_or(0);
            last = begun.max(1) + geometry.sections - 1;
        }
        let oldest = (begun + 1).saturating_sub(geometry.sections).max(1);
        let device = Arc::clone(device);
        Ok(Member { device, owner, geometry, sections, newest, last, oldest, damaged_header: None })
    }

    /// Rewrites the copies of the member header that are damaged or unreadable, from the intact
    /// one. Each is one write; if one fails, the next opening tries again.
    pub fn repair_header(&self) {
        let Some((header, damaged_copies)) = &self.damaged_header else { return };
        let unit = self.geometry.unit as usize;
        let copies = header.encode();
        for copy in damaged_copies {
            let at = *copy as usize * unit;
            let _ = self.device.write(at as u64, &copies[at..at + unit], Durability::Durable);
        }
    }

    fn newest_sequence(&self) -> u64 {
        self.newest.map_or(0, |mark| mark.sequence)
    }

    /// The oldest section that may hold log from `from` on. All blocks before it are below the LSN
    /// at which it begins. Meaningful only if there is a section at all.
    fn first_sequence(&self, from: Lsn) -> u64 {
        // Strictly before: a fuller copy of a section's first block may be in the section before.
        self.sections.last_before(self.oldest, self.last, base(from)).unwrap_or(self.oldest)
    }

    /// Whether blocks up to that of `lsn` at a linear position are of a later lap of the ring: the
    /// section there is older than one that begins at a lower LSN.
    ///
    /// The place behind the newest section's is also the oldest's. Two kinds of blocks of the newer
    /// section are met where those of the older one are sought: log, if the section's header cannot
    /// be read (the place is read once more behind the newest section, where it counts); and blocks
    /// of a request that a crash tore, if the header did not reach the device.
    pub fn is_of_later_lap(&self, linear: u64, lsn: Lsn) -> bool {
        let Some(newest) = self.newest else { return false };
        let sequence = linear / self.geometry.section_bytes() + 1;
        if sequence >= newest.sequence || lsn < newest.first {
            return false;
        }
        // The block with which the newest section begins may be in the section before, too.
        let mut between = sequence + 1..newest.sequence;
        lsn > newest.first
            || between.find_map(|between| self.sections.first(between)).is_some_and(|lsn| lsn < newest.first)
    }
    /// The linear positions that may hold log from `from` on.
    pub fn range(&self, from: Lsn) -> Range<u64> {
        let last = self.last;
        if last == 0 {
            return 0..0;
        }
        let first = self.first_sequence(from);
        let start = self.geometry.linear(first);
        start + self.skip(first, from)..self.geometry.linear(last) + self.geometry.section_bytes()
    }

    /// Bytes of section `sequence` that need not be read, by the index in the next section's
    /// header.
    fn skip(&self, sequence: u64, from: Lsn) -> u64 {
        if sequence >= self.newest_sequence() {
            return 0;
        }
        let Some(next) = self.sections.header(sequence + 1) else { return 0 };
        let stride = self.geometry.stride_units();
        let entries = next.index.iter().take(self.geometry.section_units.div_ceil(stride) as usize);
        let mut before = entries.enumerate().filter(|&(_, &lsn)| lsn != 0 && lsn < base(from).0);
        before.next_back().map_or(0, |(i, _)| i as u64 * stride * self.geometry.unit)
    }

    /// LSN at which the newest section begins. Perhaps nothing was written behind its header: log
    /// must not continue below this LSN, or it would look like blocks left over from an earlier
    /// lap.
    pub fn newest_first(&self) -> Lsn {
        self.newest.map_or(Lsn::ZERO, |mark| mark.first)
    }

    /// The space by the section headers alone, with the newest section counted as full.
    pub fn filled(&self, oldest: Lsn) -> DeviceSpace {
        let section = self.geometry.section_bytes();
        let newest = self.newest.map(|mark| self.geometry.linear(mark.sequence));
        let last = newest.map(|begin| begin + section - self.geometry.unit);
        self.resume(last, oldest, Lsn(block::LSN_MAX))
    }

    /// The space for writing on behind the last block of log, found at `last_block`. Sections that
    /// may hold log from `oldest` on are kept; none holds log at or past `start`.
    pub fn resume(&self, last_block: Option<u64>, oldest: Lsn, start: Lsn) -> DeviceSpace {
        let geometry = self.geometry;
        let found = last_block.map(|linear| {
            let within = linear % geometry.section_bytes();
            (linear / geometry.section_bytes() + 1, within / geometry.unit + 1)
        });
        let newest = self.newest_sequence();
        let (sequence, unit) = match found {
            Some((sequence, unit)) if sequence == newest => (sequence, unit),
            // The newest section's header is damaged: leave the section as it is and begin another.
            Some((sequence, _)) if sequence > newest => (sequence, geometry.section_units),
            _ if newest > 0 => (newest, 1),
            _ => return DeviceSpace::empty(geometry),
        };
        let first = self.first_sequence(oldest).min(sequence);
        let live: VecDeque<LiveSection> = (first.max((sequence + 1).saturating_sub(geometry.sections))
            ..=sequence)
            .map(|s| {
                let next = if s < sequence { self.sections.first(s + 1) } else { None };
                let end = next.map_or(start, |first| start.min(Lsn(first.0 + PAYLOAD as u64)));
                LiveSection { sequence: s, end }
            })
            .collect();
        DeviceSpace::resume(geometry, sequence, unit, live)
    }
}

pub(crate) fn read_member_header(device: &dyn Device) -> Result<MemberHeader, LogError> {
    Ok(find_member_header(device)?.header)
}

fn no_section_header(device: &dyn Device, geometry: Geometry) -> LogError {
    LogErrorKind::Damaged.error(format!(
        "the log is damaged: no header of the {} sections of {} from byte {} on can be read. Restore the log \
         device from a copy, or restore a backup",
        geometry.sections,
        device.info().name,
        geometry.start
    ))
}

/// A device's member header.
struct FoundHeader {
    header: MemberHeader,
    /// Numbers of the copies that are damaged or cannot be read.
    damaged_copies: Vec<u64>,
}

/// Reads the member header, copy by copy: either is enough.
///
/// Errors: the device's, if a copy cannot be read and there is no other; `Damaged` if there is no
/// header.
fn find_member_header(device: &dyn Device) -> Result<FoundHeader, LogError> {
    let logical = device.info().logical_block;
    let mut buf = AlignedBuf::zeroed(logical.max(4096));
    if device.is_empty() {
        // The read may return the reason.
        return Err(match device.read(0, &mut buf[..logical]) {
            Err(error) if error.kind == DeviceErrorKind::Failed => error.into(),
            _ => no_header(device),
        });
    }
    let mut failed: Option<LogError> = None;
    // Both copies are in the first two units, whose size is not known yet: try all possible sizes.
    for at in std::iter::once(0).chain((9..=16).map(|shift| 1u64 << shift)) {
        match read_copy(device, at, &mut buf) {
            Ok(Some(header)) if at == 0 || at == header.geometry.unit * (MEMBER_COPIES - 1) => {
                let mut other = |copy: u64| {
                    matches!(read_copy(device, copy * header.geometry.unit, &mut buf), Ok(Some(_)))
                };
                let damaged_copies = match at {
                    0 => (1..MEMBER_COPIES).filter(|&copy| !other(copy)).collect(),
                    _ => vec![0],
                };
                return Ok(FoundHeader { header, damaged_copies });
            }
            Ok(_) => {}
            Err(error) if error.kind == DeviceErrorKind::Failed => failed = failed.or(Some(error.into())),
            Err(error) => return Err(error.into()),
        }
    }
    // An unreadable device counts as absent, which says more than a missing header.
    Err(failed.unwrap_or_else(|| no_header(device)))
}

/// The member header at this offset; `None` if there is none, or the device ends before.
fn read_copy(
    device: &dyn Device,
    at: u64,
    buf: &mut AlignedBuf,
) -> Result<Option<MemberHeader>, DeviceError> {
    let logical = device.info().logical_block;
    let start = at - at % logical as u64;
    let within = (at - start) as usize;
    let len = (within + BLOCK).next_multiple_of(logical);
    if start + len as u64 > device.len() || len > buf.len() {
        return Ok(None);
    }
    device.read(start, &mut buf[..len])?;
    Ok(MemberHeader::decode(&buf[within..within + BLOCK], device.len()))
}

fn no_header(device: &dyn Device) -> LogError {
    LogErrorKind::Damaged
        .error(format!("{} is not a log device: it has no valid member header", device.info().name))
}
