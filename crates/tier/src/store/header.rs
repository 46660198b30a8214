//! The store's header: geometry and the number of groups, in two slots.
//!
//! Invariants:
//! * a change is written to both slots, first to the older one, each durable before the other is
//!   touched and before anything relies on the change: a crash leaves a whole slot, and after that
//!   *either* slot alone is enough; the next opening for work completes a change that a crash cut
//!   short;
//! * a group is counted only after its metadata pages are durable, and is no longer counted before
//!   the file is truncated.

use super::geometry::{Geometry, Slot};
use super::meta_page::SEQUENCE_MAX;
use super::options::Layout;
use crate::error::{TierError, TierErrorKind};
use firndb_base::{Crc32c, DatabaseId, Lsn};
use firndb_device::{AlignedBuf, Device, Durability};

/// Used bytes of a header slot.
pub(crate) const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"FIRNSTOR";
const FORMAT_VERSION: u32 = 2;
const CHECKSUM_AT: usize = 64;

/// Contents of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub database: DatabaseId,
    pub page_size: usize,
    pub layout: Layout,
    pub groups: u64,
    /// Records before this LSN may name groups that were cut off since; later ones may not.
    pub shrunk_at: Lsn,
    pub sequence: u64,
    pub slot: Slot,
}

/// What the slot has beside the one with the newest header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// The same contents.
    Same,
    /// Others, or none: a crash came between the writes of a change.
    Other,
    /// It cannot be read, or holds something that is no header: a write that a crash tore, or
    /// damage.
    Bad,
}

impl Header {
    pub(crate) fn encode(&self, out: &mut [u8]) {
        assert!(out.len() >= HEADER_BYTES && self.sequence > 0);
        out.fill(0);
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.page_size as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.database.0);
        out[32..36].copy_from_slice(&(self.layout.meta_bytes as u32).to_le_bytes());
        out[36..40].copy_from_slice(&self.layout.maps_per_group.to_le_bytes());
        out[40..48].copy_from_slice(&self.groups.to_le_bytes());
        out[48..56].copy_from_slice(&self.shrunk_at.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.sequence.to_le_bytes());
        let checksum = checksum(out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes one slot; `None` if it is torn or was never written.
    pub(super) fn decode(name: &str, slot: Slot, bytes: &[u8]) -> Option<Result<Header, TierError>> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let sound_sequence = (1..=SEQUENCE_MAX).contains(&u64_at(56));
        if bytes[0..8] != MAGIC || u32_at(CHECKSUM_AT) != checksum(bytes) || !sound_sequence {
            return None;
        }
        if u32_at(8) != FORMAT_VERSION {
            let message = format!(
                "the store {name} has format version {}, this program knows version {FORMAT_VERSION}: use a newer program",
                u32_at(8)
            );
            return Some(Err(TierError::new(TierErrorKind::TooNew, message)));
        }
        Some(Ok(Header {
            database: DatabaseId(bytes[16..32].try_into().expect("sixteen bytes")),
            page_size: u32_at(12) as usize,
            layout: Layout { meta_bytes: u32_at(32) as usize, maps_per_group: u32_at(36) },
            groups: u64_at(40),
            shrunk_at: Lsn(u64_at(48)),
            sequence: u64_at(56),
            slot,
        }))
    }

    /// The database that either slot names.
    pub(crate) fn owner(device: &dyn Device) -> Option<DatabaseId> {
        let mut buf = AlignedBuf::zeroed(slot_bytes(device));
        [Slot::A, Slot::B].into_iter().find_map(|slot| {
            let offset = Geometry::header_offset(slot);
            let there = device.len() >= offset + buf.len() as u64 && device.read(offset, &mut buf).is_ok();
            let header = Header::decode(&device.info().name, slot, &buf).filter(|_| there)?;
            header.ok().map(|header| header.database)
        })
    }

    /// Whether `bytes` begin like a header slot.
    pub(crate) fn is_begun(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Finds the header of `database` on `device`, and what its other slot has.
    pub(crate) fn load(device: &dyn Device, database: DatabaseId) -> Result<(Header, Beside), TierError> {
        let (mut bad_slot, mut headers) = (false, 0);
        let name = &device.info().name;
        let mut newest: Option<Header> = None;
        let (mut foreign, mut unreadable) = (None, None);
        let mut buf = AlignedBuf::zeroed(slot_bytes(device));
        for slot in [Slot::A, Slot::B] {
            let offset = Geometry::header_offset(slot);
            if device.len() < offset + buf.len() as u64 {
                continue;
            }
            if let Err(error) = device.read(offset, &mut buf) {
                (bad_slot, unreadable) = (true, Some(error));
                continue;
            }
            match Header::decode(name, slot, &buf) {
                None => bad_slot |= buf.iter().any(|&byte| byte != 0),
                Some(header) => {
                    let header = header?;
                    if header.database != database {
                        foreign = Some(header.database);
                        continue;
                    }
                    headers += u32::from(newest.is_none_or(|newest| newest.says_as(&header)));
                    if newest.is_none_or(|newest| newest.sequence < header.sequence) {
                        newest = Some(header);
                    }
                }
            }
        }
        match (newest, foreign, unreadable) {
            (Some(header), ..) => match (bad_slot, headers) {
                (true, _) => Ok((header, Beside::Bad)),
                (false, 2) => Ok((header, Beside::Same)),
                (false, _) => Ok((header, Beside::Other)),
            },
            (None, _, Some(error)) => Err(error.into()),
            (None, Some(other), None) => Err(TierError::new(
                TierErrorKind::Damaged,
                format!("{name} belongs to database {other}, not to {database}: check the paths"),
            )),
            (None, None, None) => Err(TierError::new(
                TierErrorKind::Damaged,
                format!("{name} holds no store: both header slots are empty or damaged"),
            )),
        }
    }

    fn says_as(&self, other: &Header) -> bool {
        Header { sequence: self.sequence, slot: self.slot, ..*other } == *self
    }

    /// Writes the other slot, with the same contents; returns what it has then. This one must be
    /// durable: a process may have ended before what was found there was.
    pub(crate) fn store_beside(&self, device: &dyn Device) -> Result<Header, TierError> {
        let beside = self.next_slot();
        beside.store(device)?;
        Ok(beside)
    }

    /// The header with other contents, durable in both slots when this returns.
    pub(crate) fn store_next(
        &self,
        device: &dyn Device,
        groups: u64,
        shrunk_at: Lsn,
    ) -> Result<Header, TierError> {
        Header { groups, shrunk_at, ..*self }.next_slot().store_both(device)
    }

    /// Writes this slot and then the other one, with the same contents; returns the newer.
    pub(crate) fn store_both(self, device: &dyn Device) -> Result<Header, TierError> {
        self.store(device)?;
        let second = self.next_slot();
        second.store(device)?;
        Ok(second)
    }

    fn next_slot(self) -> Header {
        Header { sequence: self.sequence + 1, slot: self.slot.other(), ..self }
    }

    fn store(&self, device: &dyn Device) -> Result<(), TierError> {
        let mut buf = AlignedBuf::zeroed(slot_bytes(device));
        self.encode(&mut buf[..HEADER_BYTES]);
        device.write(Geometry::header_offset(self.slot), &buf, Durability::Durable)?;
        Ok(())
    }
}

/// Bytes written for a header slot: whole blocks of any device.
pub(crate) fn slot_bytes(device: &dyn Device) -> usize {
    device.info().logical_block.max(HEADER_BYTES)
}

fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&bytes[CHECKSUM_AT + 4..HEADER_BYTES]).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::sync::Arc;
    use firndb_device::{FaultPlan, Faulty, Fill, MemoryDevice};

    fn header() -> Header {
        Header {
            database: DatabaseId([9; 16]),
            page_size: 4096,
            layout: Layout::default(),
            groups: 3,
            shrunk_at: Lsn(77),
            sequence: 1,
            slot: Slot::A,
        }
    }

    #[test]
    fn the_header_has_golden_bytes() {
        let mut out = vec![0xEE; HEADER_BYTES];
        header().encode(&mut out);
        assert_eq!(&out[..8], b"FIRNSTOR");
        assert_eq!(out[8..16], [2, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(out[16..32], [9; 16]);
        assert_eq!(out[32..40], [0, 0x10, 0, 0, 24, 0, 0, 0]);
        assert_eq!(out[40..64], [3, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[64..68], 0x1F95_7FCFu32.to_le_bytes());
        assert!(out[68..].iter().all(|byte| *byte == 0));
    }

    fn formatted() -> (Arc<dyn Device>, Header) {
        let device = MemoryDevice::new("store");
        device.grow(4 * 65536, Fill::Sparse).unwrap();
        let header = header().store_both(&device).unwrap();
        (Arc::new(device), header)
    }

    fn spoil(device: &dyn Device, slot: Slot) {
        let mut block = [0u8; 512];
        device.read(Geometry::header_offset(slot), &mut block).unwrap();
        block[41] ^= 1;
        device.write(Geometry::header_offset(slot), &block, Durability::Durable).unwrap();
    }

    #[test]
    fn a_torn_header_write_leaves_the_one_before() {
        let (device, first) = formatted();
        let next = Header { groups: 4, shrunk_at: Lsn(80), ..first }.next_slot();
        next.store(&*device).unwrap();
        assert_eq!(Header::load(&*device, first.database).unwrap(), (next, Beside::Other));
        spoil(&*device, next.slot);
        assert_eq!(Header::load(&*device, first.database).unwrap(), (first, Beside::Bad));
        let other = Header::load(&*device, DatabaseId([1; 16])).unwrap_err();
        assert_eq!(other.kind, TierErrorKind::Damaged);
    }

    /// The next write could not pass the sequence: it ended the process, or began again at 0 and
    /// was not seen.
    #[test]
    fn a_sequence_that_no_write_comes_to_is_damage() {
        let (device, first) = formatted();
        let last = |sequence| Header { sequence, groups: 9, ..first }.next_slot().store(&*device).unwrap();
        last(u64::MAX - 1);
        assert_eq!(Header::load(&*device, first.database).unwrap(), (first, Beside::Bad));
        last(SEQUENCE_MAX - 1);
        assert_eq!(Header::load(&*device, first.database).unwrap().0.groups, 9);
    }

    /// The slots were once written in turn: one flipped bit in the newer one made a restore
    /// necessary, though the other was intact.
    #[test]
    fn either_slot_is_enough() {
        for slot in [Slot::A, Slot::B] {
            let (device, first) = formatted();
            let second = first.store_next(&*device, 4, Lsn(80)).unwrap();
            assert_eq!(Header::load(&*device, first.database).unwrap(), (second, Beside::Same));
            let rotten = MemoryDevice::new("store");
            rotten.grow(4 * 65536, Fill::Sparse).unwrap();
            second.store_both(&rotten).unwrap();
            spoil(&rotten, slot);
            let (found, beside) = Header::load(&rotten, first.database).unwrap();
            assert_eq!((found.groups, found.shrunk_at, beside), (4, Lsn(80), Beside::Bad));

            let bad = Faulty::new(device.clone(), &FaultPlan::new(0));
            bad.make_unreadable(Geometry::header_offset(slot), 512);
            let (found, beside) = Header::load(&bad, first.database).unwrap();
            assert_eq!((found.groups, found.shrunk_at, beside), (4, Lsn(80), Beside::Bad));
            let third = found.store_next(&bad, 5, Lsn(90)).unwrap();
            assert_eq!(bad.unreadable_blocks(), 0, "the next change mends the slot");
            assert_eq!(Header::load(&*device, first.database).unwrap(), (third, Beside::Same));
        }
    }

    #[test]
    fn slots_that_cannot_be_read_are_an_error_of_the_device() {
        let (device, first) = formatted();
        let bad = Faulty::new(device, &FaultPlan::new(0));
        for slot in [Slot::A, Slot::B] {
            bad.make_unreadable(Geometry::header_offset(slot), 512);
        }
        assert_eq!(Header::load(&bad, first.database).unwrap_err().kind, TierErrorKind::Failed);
    }
}
