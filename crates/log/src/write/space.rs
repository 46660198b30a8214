//! The place of a stream's next request on its device, and the sections that may be reused.
//!
//! Invariants: the live sections have consecutive sequence numbers and the newest is the one being
//! filled; there are never more of them than the ring has sections; a section leaves the list only
//! when all log in it is before the truncation point, and never while it is the newest; LSNs never
//! decrease.

use crate::block::{BLOCK, Owner, base};
use crate::layout::{Geometry, STRIDES, SectionHeader};
use firndb_base::{Epoch, Lsn};
use std::collections::VecDeque;

/// A section that may hold log still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveSection {
    pub sequence: u64,
    /// No log in the section reaches past this LSN.
    pub end: Lsn,
}

/// The ring of sections of one device, as the writer sees it.
#[derive(Debug)]
pub(crate) struct DeviceSpace {
    geometry: Geometry,
    /// Sequence number of the newest section begun; 0 if none.
    sequence: u64,
    /// Next free unit of that section; `section_units` if there is none.
    unit: u64,
    live: VecDeque<LiveSection>,
    /// LSNs at the strides of the newest section, for the next section's header.
    index: [u64; STRIDES],
    /// LSN of the block written last.
    last_block: Lsn,
}

impl DeviceSpace {
    /// Space of a device just formatted.
    pub fn empty(geometry: Geometry) -> DeviceSpace {
        DeviceSpace::resume(geometry, 0, geometry.section_units, VecDeque::new())
    }

    /// Continues in section `sequence` at `unit`.
    pub fn resume(geometry: Geometry, sequence: u64, unit: u64, live: VecDeque<LiveSection>) -> DeviceSpace {
        let mut own = VecDeque::with_capacity(geometry.sections as usize);
        own.extend(live);
        let space =
            DeviceSpace { geometry, sequence, unit, live: own, index: [0; STRIDES], last_block: Lsn::ZERO };
        space.check();
        space
    }

    /// Asserts the invariants that the file's head states.
    pub fn check(&self) {
        assert!(self.live.len() as u64 <= self.geometry.sections);
        assert!(self.unit >= 1 && self.unit <= self.geometry.section_units);
        assert!(self.live.back().is_none_or(|newest| newest.sequence == self.sequence));
        assert!(self.live.front().is_none_or(|l| l.sequence + self.live.len() as u64 == self.sequence + 1));
        if cfg!(debug_assertions) {
            let mut following = self.live.iter().zip(self.live.iter().skip(1));
            assert!(following.all(|(s, next)| s.sequence + 1 == next.sequence), "sections are consecutive");
            assert!(self.live.back().is_none_or(|newest| base(self.last_block) <= newest.end));
        }
    }

    fn free_sections(&self) -> u64 {
        self.geometry.sections - self.live.len() as u64
    }

    /// Bytes that can be written before a section must be freed, headers not counted.
    pub fn free_bytes(&self) -> u64 {
        let units = self.geometry.section_units - self.unit
            + self.free_sections() * (self.geometry.section_units - 1);
        units * self.geometry.unit
    }

    /// Whether log from `lsn` on may follow: it is not below any log that the stream holds.
    pub fn may_follow(&self, lsn: Lsn) -> bool {
        self.live.back().is_none_or(|newest| newest.end <= lsn)
    }

    /// Units, section headers included, that `units` units of blocks would take.
    pub fn units_with_headers(&self, units: u64) -> u64 {
        let left = self.geometry.section_units - self.unit;
        units + units.saturating_sub(left).div_ceil(self.geometry.section_units - 1)
    }

    /// Units of blocks that a request of at most `units` units, section headers included, can hold:
    /// up to the ring's end or the last free unit.
    pub fn extent(&self, units: u64) -> u64 {
        let (mut unit, mut free, mut sequence) = (self.unit, self.free_sections(), self.sequence);
        let (mut used, mut blocks) = (0, 0);
        loop {
            let full = unit == self.geometry.section_units;
            let apart = full && used > 0 && sequence.is_multiple_of(self.geometry.sections);
            if used + 1 + u64::from(full) > units || apart || (full && free == 0) {
                return blocks;
            }
            if full {
                (unit, free, sequence, used) = (1, free - 1, sequence + 1, used + 1);
            }
            (unit, used, blocks) = (unit + 1, used + 1, blocks + 1);
        }
    }

    /// Whether all log on the device lies before `lsn`.
    pub fn is_drained(&self, lsn: Lsn) -> bool {
        self.live.back().is_none_or(|newest| newest.end <= lsn)
    }

    /// Bytes ever written to the stream, section headers included.
    pub fn written_bytes(&self) -> u64 {
        match self.sequence {
            0 => 0,
            sequence => self.geometry.linear(sequence) + self.unit * self.geometry.unit,
        }
    }

    /// Alignment of everything on the device, in bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.geometry.unit
    }

    /// Bytes of blocks that all sections can hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.geometry.capacity_bytes()
    }

    /// Whether the next unit needs a new section.
    pub fn is_section_full(&self) -> bool {
        self.unit == self.geometry.section_units
    }

    /// Whether a new section can be begun.
    pub fn has_free_section(&self) -> bool {
        self.free_sections() > 0
    }

    /// Whether the next section begins at the ring's start, and so is not contiguous with the
    /// newest one on the device.
    pub fn wraps_next(&self) -> bool {
        self.sequence.is_multiple_of(self.geometry.sections)
    }

    /// Begins the next section, whose first block will be that of `first`. Returns its header.
    pub fn begin_section(&mut self, epoch: Epoch, first: Lsn) -> SectionHeader {
        assert!(self.is_section_full() && self.has_free_section());
        let index = std::mem::replace(&mut self.index, [0; STRIDES]);
        self.sequence += 1;
        self.unit = 1;
        self.live.push_back(LiveSection { sequence: self.sequence, end: first });
        self.index[0] = first.0;
        self.check();
        SectionHeader { epoch, first, sequence: self.sequence, index }
    }

    /// Begins the next section and writes its header into `out`, a unit. Returns the header's
    /// offset on the device.
    pub fn write_header(&mut self, epoch: Epoch, owner: Owner, first: Lsn, out: &mut [u8]) -> u64 {
        out.fill(0);
        self.begin_section(epoch, first).encode(owner, &mut out[..BLOCK]);
        self.offset() - self.geometry.unit
    }

    /// Offset on the device of the next unit. Directly after `begin_section`, the section's header
    /// is the unit before it.
    pub fn offset(&self) -> u64 {
        self.geometry.offset(self.geometry.linear(self.sequence) + self.unit * self.geometry.unit)
    }

    /// Allocates the next unit for blocks from `first` up to `end`.
    pub fn take_unit(&mut self, first: Lsn, end: Lsn) {
        assert!(!self.is_section_full());
        let stride = self.geometry.stride_units();
        if self.unit.is_multiple_of(stride) {
            self.index[(self.unit / stride) as usize] = first.0;
        }
        self.unit += 1;
        let newest = self.live.back_mut().expect("the newest section is live");
        assert!(self.last_block <= first && newest.end <= end, "LSNs of a stream never decrease");
        self.last_block = if end > first { base(Lsn(end.0 - 1)) } else { first };
        newest.end = end;
    }

    /// Releases the unit allocated last, which begins with the block of `first`, so that it is
    /// written again in place.
    pub fn step_back(&mut self, first: Lsn) {
        assert!(self.unit > 1, "a section's first unit is its header's");
        assert!(first <= self.last_block, "the unit taken last holds the last block");
        (self.unit, self.last_block) = (self.unit - 1, first);
    }

    /// Frees the sections whose log lies before `lsn`.
    pub fn truncate(&mut self, lsn: Lsn) {
        while self.live.front().is_some_and(|s| s.end <= lsn && s.sequence != self.sequence) {
            self.live.pop_front();
        }
        self.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_freed_exactly_when_its_last_byte_lies_before_the_truncation_point() {
        let geometry = Geometry { start: 1024, unit: 512, section_units: 3, sections: 6 };
        let mut space = DeviceSpace::empty(geometry);
        assert_eq!(space.free_bytes(), 6 * 2 * 512);
        let mut lsn = Lsn(4720);
        for _ in 0..3 {
            space.begin_section(Epoch(1), lsn);
            for _ in 0..2 {
                space.take_unit(lsn, lsn.advance(472));
                lsn = lsn.advance(472);
            }
        }
        let first_end = Lsn(4720 + 2 * 472);
        space.truncate(Lsn(first_end.0 - 1));
        assert_eq!(space.free_bytes(), 3 * 2 * 512);
        space.truncate(first_end);
        assert_eq!(space.free_bytes(), 4 * 2 * 512);
        // The newest section stays even if no log in it is needed.
        space.truncate(Lsn::MAX);
        assert_eq!(space.free_bytes(), 5 * 2 * 512);
    }
}
