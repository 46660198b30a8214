//! How a device is divided: two copies of the member header, a ring of equal sections for the main
//! stream, and, where outliers may be hidden, a second ring for the requests that are issued again.
//!
//! ```text
//! | member header | its copy | section 0           | section 1 | ... | section n-1 | section 0 | ... | section a-1 |
//!                            | header | blocks ... |            main stream        |             area            |
//! ```
//!
//! Everything is aligned to the log's *unit*: the largest logical block of its devices, at least
//! 512 bytes. Each header takes a whole unit. Section `i` carries the sequence numbers `s` with
//! `(s - 1) % n == i`: sequence numbers grow by one per section for ever, so they give the ring's
//! order and its newest section.
//!
//! Invariants: units divide sections; a section has a header and at least one unit for blocks; a
//! main stream has at least [`SECTIONS_MIN`] sections on each device, an area [`AREA_SECTIONS_MIN`]
//! or none; neither reaches into the other.

use crate::block::{self, BLOCK, HEADER, LSN_MAX, Owner, TYPE_MEMBER, TYPE_SECTION, u16_at, u32_at, u64_at};
use crate::error::{LogError, LogErrorKind};
use crate::ids::MemberId;
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::AlignedBuf;

/// With fewer sections there would be none to recycle.
pub(crate) const SECTIONS_MIN: u64 = 6;
/// Index entries in a section header: LSNs of the previous section.
pub(crate) const STRIDES: usize = (BLOCK - HEADER) / 8;
/// With fewer sections there would be none to recycle while one is being filled.
pub(crate) const AREA_SECTIONS_MIN: u64 = 2;
/// Part of all sections that becomes the area for reissued outliers, as a divisor. The area need
/// only hold what is reissued between two truncations, which is a few percent of the log.
const AREA_SHARE: u64 = 16;
const SECTION_BYTES_USUAL: u64 = 1 << 20;
/// Copies of the member header at the device's start.
pub(crate) const MEMBER_COPIES: u64 = 2;

/// Sizes of one ring of sections on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Where the ring begins on the device, in bytes.
    pub start: u64,
    /// Unit in bytes.
    pub unit: u64,
    /// Units of a section, its header's included.
    pub section_units: u64,
    pub sections: u64,
}

impl Geometry {
    /// Chooses sizes for a device of `device_len` bytes; `wanted` is the requested section size in
    /// bytes, or 0. Returns the rings of the main stream and, if `hides` and the device is large
    /// enough, of the area for reissued outliers.
    pub fn choose(
        name: &str,
        device_len: u64,
        unit: u64,
        wanted: u64,
        hides: bool,
    ) -> Result<(Geometry, Option<Geometry>), LogError> {
        let start = MEMBER_COPIES * unit;
        let space = device_len.saturating_sub(start);
        let usual = if wanted > 0 { wanted } else { SECTION_BYTES_USUAL.max(space / 1024) };
        let section_units = (usual.min(space / 16) / unit).max(2);
        let sections = space / (section_units * unit);
        let area_sections = (sections / AREA_SHARE).max(AREA_SECTIONS_MIN);
        let split = hides && sections >= SECTIONS_MIN + area_sections;
        let geometry = Geometry {
            start,
            unit,
            section_units,
            sections: if split { sections - area_sections } else { sections },
        };
        if !geometry.is_sound(device_len, SECTIONS_MIN) {
            let least = (MEMBER_COPIES + 2 * SECTIONS_MIN) * unit;
            return Err(LogErrorKind::BadArgument.error(format!(
                "{name}: {device_len} bytes are too few for a log device, which needs at least {least}"
            )));
        }
        let area = split.then(|| geometry.area(area_sections));
        debug_assert!(area.is_none_or(|area| area.is_sound(device_len, AREA_SECTIONS_MIN)), "{area:?}");
        Ok((geometry, area))
    }

    /// The ring of `sections` sections behind this one.
    fn area(&self, sections: u64) -> Geometry {
        Geometry { start: self.start + self.ring_bytes(), sections, ..*self }
    }

    fn is_sound(&self, device_len: u64, sections_min: u64) -> bool {
        let Some(section) = self.section_units.checked_mul(self.unit) else { return false };
        let Some(ring) = section.checked_mul(self.sections) else { return false };
        let unit_sound = self.unit.is_power_of_two() && (512..=65536).contains(&self.unit);
        unit_sound
            && self.section_units >= 2
            && self.sections >= sections_min
            && ring.checked_add(self.start).is_some_and(|end| end <= device_len)
    }

    pub fn section_bytes(&self) -> u64 {
        self.section_units * self.unit
    }
    /// Bytes of all sections.
    pub fn ring_bytes(&self) -> u64 {
        self.section_bytes() * self.sections
    }
    /// Bytes for blocks in all sections.
    pub fn capacity_bytes(&self) -> u64 {
        (self.section_units - 1) * self.unit * self.sections
    }
    /// Linear position at which the `sequence`-th section begins, in bytes written since the log
    /// was created.
    pub fn linear(&self, sequence: u64) -> u64 {
        assert!(sequence > 0, "sequence number 0 stands for a section never used");
        (sequence - 1) * self.section_bytes()
    }
    /// Offset on the device of a linear position.
    pub fn offset(&self, linear: u64) -> u64 {
        self.start + linear % self.ring_bytes()
    }
    /// Units between two entries of the index that a section header holds.
    pub fn stride_units(&self) -> u64 {
        self.section_units.div_ceil(STRIDES as u64)
    }
}

/// The first block of a section.
///
/// ```text
///  0..20  as in a log block, type 2; the epoch is that in which the section was begun
/// 20  u8   stream
/// 21  u8   zero
/// 22  u16  entries of the index
/// 24  u64  LSN of the first block in this section
/// 32  u64  sequence number
/// 40  u64* the section before: LSN of the block at the start of each stride; 0 if not known
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub epoch: Epoch,
    pub first: Lsn,
    pub sequence: u64,
    pub index: [u64; STRIDES],
}

impl SectionHeader {
    /// Header of a section that was never used.
    pub fn unused(epoch: Epoch) -> SectionHeader {
        SectionHeader { epoch, first: Lsn::ZERO, sequence: 0, index: [0; STRIDES] }
    }

    /// Fills one block, without the checksum.
    pub fn encode(&self, owner: Owner, out: &mut [u8]) {
        block::put_prefix(out, TYPE_SECTION, owner, self.epoch);
        out[20] = owner.stream;
        out[21] = 0;
        out[22..24].copy_from_slice(&(STRIDES as u16).to_le_bytes());
        out[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        for (slot, lsn) in out[HEADER..].chunks_exact_mut(8).zip(self.index) {
            slot.copy_from_slice(&lsn.to_le_bytes());
        }
    }

    /// The header found at section `place` of the ring; `None` if there is no valid one for this
    /// place.
    pub fn decode(owner: Owner, geometry: &Geometry, place: u64, bytes: &[u8]) -> Option<SectionHeader> {
        let epoch = block::check_prefix(bytes, TYPE_SECTION, owner)?;
        let mut index = [0; STRIDES];
        for (slot, lsn) in bytes[HEADER..].chunks_exact(8).zip(&mut index) {
            *lsn = u64_at(slot, 0);
        }
        let header =
            SectionHeader { epoch, first: Lsn(u64_at(bytes, 24)), sequence: u64_at(bytes, 32), index };
        let placed = header.sequence == 0 || (header.sequence - 1) % geometry.sections == place;
        let bounded = header.sequence < LSN_MAX / geometry.section_bytes() && header.first.0 < LSN_MAX;
        (placed && bounded && bytes[20] == owner.stream && usize::from(u16_at(bytes, 22)) == STRIDES)
            .then_some(header)
    }
}

/// The first block of a device, and of the unit after it.
///
/// ```text
///  0..20  as in a log block, type 3; the epoch is that in which the log was created
/// 20  u32  members of the log
/// 24  u32  place of this member among them
/// 28  u32  unit in bytes
/// 32  u64  section size in bytes
/// 40  u64  sections of the main stream
/// 48  u64  sections of the area for reissued outliers, which follow those of the main stream;
///          0 if there is none, and then the format's version is 1, else 2
/// 56  16B  database id
/// 72  u8   1: has left the log
/// 73       zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberHeader {
    pub database: DatabaseId,
    pub epoch: Epoch,
    pub member: MemberId,
    pub members: u32,
    pub place: u32,
    pub geometry: Geometry,
    /// The ring for reissued outliers, if the device has one.
    pub area: Option<Geometry>,
    /// The device has left the log.
    pub retired: bool,
}

impl MemberHeader {
    /// Both copies, to be written at offset 0.
    pub fn encode(&self) -> AlignedBuf {
        let unit = self.geometry.unit as usize;
        let mut out = AlignedBuf::zeroed(unit * MEMBER_COPIES as usize);
        for copy in out.chunks_exact_mut(unit) {
            let first = &mut copy[..BLOCK];
            let owner = Owner::main(block::database_tag(self.database), self.member.0);
            block::put_prefix(first, TYPE_MEMBER, owner, self.epoch);
            first[20..24].copy_from_slice(&self.members.to_le_bytes());
            first[24..28].copy_from_slice(&self.place.to_le_bytes());
            first[28..32].copy_from_slice(&(self.geometry.unit as u32).to_le_bytes());
            first[32..40].copy_from_slice(&self.geometry.section_bytes().to_le_bytes());
            first[40..48].copy_from_slice(&self.geometry.sections.to_le_bytes());
            if let Some(area) = self.area {
                first[7] = block::VERSION_WITH_AREA;
                first[48..56].copy_from_slice(&area.sections.to_le_bytes());
            }
            first[56..72].copy_from_slice(&self.database.0);
            first[72] = u8::from(self.retired);
            block::seal(first);
        }
        out
    }

    /// Decodes a member header of any database and member; `None` if `bytes` is none, or it does
    /// not fit the device.
    pub fn decode(bytes: &[u8], device_len: u64) -> Option<MemberHeader> {
        let member = MemberId(u32_at(bytes, 12));
        let epoch = block::check_prefix(bytes, TYPE_MEMBER, Owner::main(u32_at(bytes, 8), member.0))?;
        let unit = u64::from(u32_at(bytes, 28));
        let section_bytes = u64_at(bytes, 32);
        let geometry = Geometry {
            start: MEMBER_COPIES * unit,
            unit,
            section_units: section_bytes.checked_div(unit)?,
            sections: u64_at(bytes, 40),
        };
        if !geometry.is_sound(device_len, SECTIONS_MIN) || geometry.section_bytes() != section_bytes {
            return None;
        }
        let area_sections = u64_at(bytes, 48);
        let area = (area_sections > 0).then(|| geometry.area(area_sections));
        if area.is_some_and(|area| !area.is_sound(device_len, AREA_SECTIONS_MIN)) {
            return None;
        }
        let header = MemberHeader {
            database: DatabaseId(bytes[56..72].try_into().expect("sixteen bytes")),
            epoch,
            member,
            members: u32_at(bytes, 20),
            place: u32_at(bytes, 24),
            geometry,
            area,
            retired: bytes[72] != 0,
        };
        // A log has version 2 if and only if it has an area.
        (area.is_some() == (bytes[7] == block::VERSION_WITH_AREA)).then_some(header)
    }
}
