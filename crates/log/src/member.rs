//! One stream of a log device as recovery finds it: the member header, and which of the stream's sections may hold log.
//!
//! The area for re-issued outliers is a stream, hence a member to be read, of its own (3.4: a "pseudo device").

use crate::block::{self, BLOCK, Owner, PAYLOAD, base};
use crate::layout::{Geometry, MEMBER_COPIES, MemberHeader};
use crate::sections::{Mark, Sections};
use crate::space::{DeviceSpace, LiveSection};
use crate::{LogError, LogErrorKind, LogIdentity};
use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_device::{AlignedBuf, Device, DeviceErrorKind};
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
}

fn damaged(message: String) -> LogError {
    LogError::new(LogErrorKind::Damaged, message)
}

impl Member {
    /// Reads the device at `place` of the list handed in: its main stream and, if there is one, its area for
    /// re-issued outliers.
    pub fn read(
        device: Arc<dyn Device>,
        identity: &LogIdentity,
        place: usize,
    ) -> Result<(Member, Option<Member>), LogError> {
        let header = read_member_header(&*device)?;
        let name = &device.info().name;
        let expected = identity.members[place];
        if header.database != identity.database {
            return Err(damaged(format!(
                "{name} is a log device of database {}, not of database {}",
                header.database, identity.database
            )));
        }
        if header.member != expected {
            return Err(damaged(format!(
                "{name} is member {} of the log where member {} was expected: a device is missing, or the \
                 devices were handed in in another order",
                header.member.0, expected.0
            )));
        }
        if header.retired {
            return Err(damaged(format!(
                "{name} has left the log of its database; it is no log device any more"
            )));
        }
        if header.geometry.unit < device.info().logical_block as u64 {
            return Err(damaged(format!(
                "{name} has blocks of {} bytes, but the log was made for blocks of up to {}: copy it to a device \
                 with smaller blocks",
                device.info().logical_block,
                header.geometry.unit
            )));
        }
        let owner = Owner::main(block::database_tag(identity.database), expected.0);
        let main = Member::read_stream(&device, owner, header.geometry)?;
        let area = header.area.map(|geometry| Member::read_stream(&device, owner.area(), geometry));
        Ok((main, area.transpose()?))
    }

    fn read_stream(device: &Arc<dyn Device>, owner: Owner, geometry: Geometry) -> Result<Member, LogError> {
        let sections = Sections::new(Arc::clone(device), owner, geometry);
        let newest = sections.newest()?;
        // A section whose header is unreadable may be newer than all whose headers are valid: sections never used
        // have valid headers, too.
        let sequence = newest.map_or(0, |mark| mark.sequence);
        let last = if sections.is_readable(sequence + 1)? { sequence } else { sequence + 1 };
        Ok(Member { device: Arc::clone(device), owner, geometry, sections, newest, last })
    }

    fn newest_sequence(&self) -> u64 {
        self.newest.map_or(0, |mark| mark.sequence)
    }

    /// The oldest section that may hold log from `from` on. All blocks before it lie before the LSN at
    /// which it begins. Meaningful only if there is a section at all.
    fn first_sequence(&self, from: Lsn) -> u64 {
        let oldest = (self.last + 1).saturating_sub(self.geometry.sections).max(1);
        // Strictly before: a fuller copy of a section's first block may lie in the section before.
        self.sections.last_before(oldest, self.last, base(from)).unwrap_or(oldest)
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

    /// Bytes of section `sequence` that need not be read, by the index in the next section's header.
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

    /// LSN at which the newest section begins. Nothing at all may have been written behind its header: log
    /// must not go on before it, or it would look like what an earlier lap left over.
    pub fn newest_first(&self) -> Lsn {
        self.newest.map_or(Lsn::ZERO, |mark| mark.first)
    }

    /// As far as the section headers tell, with the newest section as if it were full.
    pub fn filled(&self, oldest: Lsn) -> DeviceSpace {
        let section = self.geometry.section_bytes();
        let newest = self.newest.map(|mark| self.geometry.linear(mark.sequence));
        let last = newest.map(|begin| begin + section - self.geometry.unit);
        self.resume(last, oldest, Lsn(block::LSN_MAX))
    }

    /// Goes on writing behind the last block of log, found at `last_block`. Sections that may hold log
    /// from `oldest` on are kept; none holds log at or past `start`.
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
    let logical = device.info().logical_block;
    let mut buf = AlignedBuf::zeroed(logical.max(4096));
    if device.is_empty()
        && let Err(error) = device.read(0, &mut buf[..logical])
        && error.kind == DeviceErrorKind::Failed
    {
        // It is not there, which is more than that it has no header.
        return Err(error.into());
    }
    // Both copies lie in the first two units, whose size is not known yet: try the sizes there are.
    for at in std::iter::once(0).chain((9..=16).map(|shift| 1u64 << shift)) {
        let start = at - at % logical as u64;
        let within = (at - start) as usize;
        let len = (within + BLOCK).next_multiple_of(logical);
        if start + len as u64 > device.len() || len > buf.len() {
            continue;
        }
        device.read(start, &mut buf[..len])?;
        let header = MemberHeader::decode(&buf[within..within + BLOCK], device.len());
        if let Some(header) = header.filter(|h| at == 0 || at == h.geometry.unit * (MEMBER_COPIES - 1)) {
            return Ok(header);
        }
    }
    Err(damaged(format!("{} is not a log device: it has no valid member header", device.info().name)))
}
