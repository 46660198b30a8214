//! The store's header: geometry and the number of groups, in two slots written alternately.
//!
//! Invariants: the slot being overwritten is never the newest; a group is counted only after its metadata
//! pages are durable, and is no longer counted before its space is given back.

use super::geometry::{Geometry, Slot};
use super::options::Layout;
use crate::{TierError, TierErrorKind};
use firn_base::{Crc32c, DatabaseId, Lsn};
use firn_device::{AlignedBuf, Device, Durability};

/// Bytes of a header slot that mean something.
pub(crate) const HEADER_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"FIRNSTOR";
const FORMAT_VERSION: u32 = 1;
const CHECKSUM_AT: usize = 64;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub database: DatabaseId,
    pub page_size: usize,
    pub layout: Layout,
    pub groups: u64,
    /// Records before this LSN may speak of groups that were given back since; later ones may not.
    pub shrunk_at: Lsn,
    pub sequence: u64,
    pub slot: Slot,
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

    /// One slot; `None` if it is torn or was never written.
    fn decode(name: &str, slot: Slot, bytes: &[u8]) -> Option<Result<Header, TierError>> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[0..8] != MAGIC || u32_at(CHECKSUM_AT) != checksum(bytes) || u64_at(56) == 0 {
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

    /// Finds the header of `database` on `device`, and whether a slot holds something that is no header: a
    /// write that a crash tore, or damage.
    pub(crate) fn load(device: &dyn Device, database: DatabaseId) -> Result<(Header, bool), TierError> {
        let mut bad_slot = false;
        let name = &device.info().name;
        let mut newest: Option<Header> = None;
        let mut foreign = None;
        let mut buf = AlignedBuf::zeroed(slot_bytes(device));
        for slot in [Slot::A, Slot::B] {
            let offset = Geometry::header_offset(slot);
            if device.len() < offset + buf.len() as u64 {
                continue;
            }
            device.read(offset, &mut buf)?;
            match Header::decode(name, slot, &buf) {
                None => bad_slot |= buf.iter().any(|&byte| byte != 0),
                Some(header) => {
                    let header = header?;
                    if header.database != database {
                        foreign = Some(header.database);
                    } else if newest.is_none_or(|newest| newest.sequence < header.sequence) {
                        newest = Some(header);
                    }
                }
            }
        }
        match (newest, foreign) {
            (Some(header), _) => Ok((header, bad_slot)),
            (None, Some(other)) => Err(TierError::new(
                TierErrorKind::Damaged,
                format!("{name} belongs to database {other}, not to {database}: check the paths"),
            )),
            (None, None) => Err(TierError::new(
                TierErrorKind::Damaged,
                format!("{name} holds no store: both header slots are empty or damaged"),
            )),
        }
    }

    /// The same header with a higher sequence in the other slot, durable when this returns.
    pub(crate) fn store_next(
        &self,
        device: &dyn Device,
        groups: u64,
        shrunk_at: Lsn,
    ) -> Result<Header, TierError> {
        let next =
            Header { groups, shrunk_at, sequence: self.sequence + 1, slot: self.slot.other(), ..*self };
        next.store(device)?;
        Ok(next)
    }

    pub(crate) fn store(&self, device: &dyn Device) -> Result<(), TierError> {
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
    use firn_device::{Fill, MemoryDevice};

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
        assert_eq!(out[8..16], [1, 0, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!(out[16..32], [9; 16]);
        assert_eq!(out[32..40], [0, 0x10, 0, 0, 24, 0, 0, 0]);
        assert_eq!(out[40..64], [3, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[64..68], 0x8A23_24DBu32.to_le_bytes());
        assert!(out[68..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_torn_header_write_leaves_the_one_before() {
        let device = MemoryDevice::new("store");
        device.grow(4 * 65536, Fill::Sparse).unwrap();
        let first = header();
        first.store(&device).unwrap();
        let second = first.store_next(&device, 4, Lsn(80)).unwrap();
        assert_eq!(Header::load(&device, first.database).unwrap(), (second, false));
        let mut block = [0u8; 512];
        device.read(65536, &mut block).unwrap();
        block[41] ^= 1;
        device.write(65536, &block, Durability::Durable).unwrap();
        assert_eq!(Header::load(&device, first.database).unwrap(), (first, true));
        let other = Header::load(&device, DatabaseId([1; 16])).unwrap_err();
        assert_eq!(other.kind, TierErrorKind::Damaged);
    }
}
