//! A metadata page on the device: a header of 64 bytes and a body, written alternately to two
//! slots.
//!
//! Invariants:
//! * a slot is valid only if magic, database, identity, length and checksum are right, and its
//!   sequence is odd in slot A, even in slot B: a read that came from the other slot is seen;
//! * of two valid slots the one with the higher sequence is the page;
//! * `lsn` is the LSN of the last record that the page contains the changes of: redo applies a
//!   record to the page if and only if the record's LSN is greater.

use super::geometry::{Geometry, Slot};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{Crc32c, DatabaseId, Lsn};
use std::fmt;

/// Bytes of a metadata page's header.
pub(crate) const META_HEADER_BYTES: usize = 64;
/// A higher sequence, of a metadata page or a header, is damage: the next write must be able to
/// pass it.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;
const MAGIC: [u8; 8] = *b"FIRNMETA";
const CHECKSUM_AT: usize = 60;

/// Identity of a metadata page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MetaId {
    /// Sums over all groups.
    Totals,
    /// Places in use and pages allocated in a group.
    Bitmap(u64),
    /// Map entries; map pages are counted through all groups.
    Map(u64),
}

impl MetaId {
    pub(crate) fn kind(self) -> u8 {
        match self {
            MetaId::Totals => 1,
            MetaId::Bitmap(_) => 2,
            MetaId::Map(_) => 3,
        }
    }
    pub(crate) fn number(self) -> u64 {
        match self {
            MetaId::Totals => 0,
            MetaId::Bitmap(number) | MetaId::Map(number) => number,
        }
    }
}

impl fmt::Debug for MetaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaId::Totals => write!(f, "the totals page"),
            MetaId::Bitmap(group) => write!(f, "the bitmap page of group {group}"),
            MetaId::Map(map) => write!(f, "map page {map}"),
        }
    }
}

/// A metadata page as read from, or to be written to, one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaImage {
    pub lsn: Lsn,
    pub sequence: u64,
    pub slot: Slot,
    pub body: Box<[u8]>,
}

/// Writes a metadata page into `out`, which is `geometry.meta_bytes` long.
pub(crate) fn encode(database: DatabaseId, id: MetaId, lsn: Lsn, sequence: u64, body: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), META_HEADER_BYTES + body.len());
    assert!(sequence > 0, "sequences start at one");
    out[..META_HEADER_BYTES].fill(0);
    out[0..8].copy_from_slice(&MAGIC);
    out[8..24].copy_from_slice(&database.0);
    out[24] = id.kind();
    out[32..40].copy_from_slice(&id.number().to_le_bytes());
    out[40..48].copy_from_slice(&lsn.0.to_le_bytes());
    out[48..56].copy_from_slice(&sequence.to_le_bytes());
    let len = out.len() as u32;
    out[56..60].copy_from_slice(&len.to_le_bytes());
    out[META_HEADER_BYTES..].copy_from_slice(body);
    let checksum = checksum(out);
    out[CHECKSUM_AT..META_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&bytes[META_HEADER_BYTES..]).value()
}

/// The sequence of one slot; `None` if it is not this page of this database, intact, in a version
/// that lies in this slot.
pub(super) fn sequence_of(database: DatabaseId, id: MetaId, slot: Slot, bytes: &[u8]) -> Option<u64> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let sequence = u64_at(bytes, 48);
    let believed = bytes[0..8] == MAGIC
        && bytes[8..24] == database.0
        && bytes[24..32] == [id.kind(), 0, 0, 0, 0, 0, 0, 0]
        && u64_at(bytes, 32) == id.number()
        && (1..=SEQUENCE_MAX).contains(&sequence)
        && slot == Slot::of_sequence(sequence)
        && u32_at(56) as usize == bytes.len()
        && u32_at(CHECKSUM_AT) == checksum(bytes);
    believed.then_some(sequence)
}

/// Decodes one slot, as [`sequence_of`] judges it.
fn decode(database: DatabaseId, id: MetaId, slot: Slot, bytes: &[u8]) -> Option<MetaImage> {
    let sequence = sequence_of(database, id, slot, bytes)?;
    let body = bytes[META_HEADER_BYTES..].into();
    Some(MetaImage { lsn: Lsn(u64_at(bytes, 40)), sequence, slot, body })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Chooses the newest version of the page's two slots.
pub(crate) fn choose(
    database: DatabaseId,
    id: MetaId,
    slot_a: &[u8],
    slot_b: &[u8],
) -> Result<MetaImage, TierError> {
    let a = decode(database, id, Slot::A, slot_a);
    let b = decode(database, id, Slot::B, slot_b);
    match (a, b) {
        (Some(a), Some(b)) => Ok(if a.sequence > b.sequence { a } else { b }),
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (None, None) => Err(TierError::new(
            TierErrorKind::Damaged,
            format!("{id:?} is damaged in both of its slots: restore the database from a backup"),
        )),
    }
}

/// Whether the slot that was not chosen holds what it should: the version before, or nothing if
/// there is none. If not, a crash tore the write of a newer version, or the slot was damaged, be it
/// the newer or the older one; see [`super::suspects`].
pub(crate) fn other_is_sound(
    database: DatabaseId,
    id: MetaId,
    chosen: &MetaImage,
    slot_a: &[u8],
    slot_b: &[u8],
) -> bool {
    let other = match chosen.slot {
        Slot::A => slot_b,
        Slot::B => slot_a,
    };
    let blank = chosen.sequence == 1 && other.iter().all(|&byte| byte == 0);
    blank || decode(database, id, chosen.slot.other(), other).is_some()
}

/// A new page: an empty body in slot A and nothing in slot B. `out` holds both slots.
pub(crate) fn encode_fresh(database: DatabaseId, id: MetaId, lsn: Lsn, body: &[u8], out: &mut [u8]) {
    let (a, b) = out.split_at_mut(META_HEADER_BYTES + body.len());
    encode(database, id, lsn, 1, body, a);
    b.fill(0);
}

/// Metadata pages of `group` in the order in which their slots follow each other.
pub(crate) fn pages_of_group(geometry: &Geometry, group: u64) -> impl Iterator<Item = MetaId> + use<> {
    let maps = group * geometry.maps_per_group..(group + 1) * geometry.maps_per_group;
    std::iter::once(MetaId::Bitmap(group)).chain(maps.map(MetaId::Map))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: DatabaseId = DatabaseId([7; 16]);

    fn slot(sequence: u64, fill: u8) -> Vec<u8> {
        let mut out = vec![0; 512];
        encode(DATABASE, MetaId::Map(3), Lsn(99), sequence, &[fill; 448], &mut out);
        out
    }

    #[test]
    fn a_metadata_page_has_golden_bytes() {
        let out = slot(2, 1);
        assert_eq!(&out[..8], b"FIRNMETA");
        assert_eq!(out[8..24], [7; 16]);
        assert_eq!(out[24..32], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[32..40], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[40..48], [99, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[48..56], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[56..60], [0, 2, 0, 0]);
        assert_eq!(out[60..64], 0x0309_322Bu32.to_le_bytes());
        assert_eq!(out[64..], [1; 448]);
    }

    /// Cause: a read of both slots of a new page came from a slot's length before them, so its
    /// first version was taken for that of slot B. Effect: the second one was written over it, and
    /// the page was reported as damaged ever after, since nothing lay beside it.
    #[test]
    fn a_slot_that_was_read_from_the_place_of_the_other_is_not_valid() {
        let mut fresh = vec![0; 3 * 512];
        encode_fresh(DATABASE, MetaId::Map(3), Lsn(99), &[0; 448], &mut fresh[512..]);
        let read_at = |at: usize| {
            let (a, b) = (&fresh[at..at + 512], &fresh[at + 512..at + 1024]);
            choose(DATABASE, MetaId::Map(3), a, b).map(|image| (image.slot, image.sequence))
        };
        assert_eq!(read_at(512).unwrap(), (Slot::A, 1));
        assert_eq!(read_at(0).unwrap_err().kind, TierErrorKind::Damaged);
    }

    #[test]
    fn the_newer_valid_slot_wins_and_a_torn_one_is_ignored() {
        let (old, new) = (slot(5, 1), slot(6, 2));
        assert_eq!(choose(DATABASE, MetaId::Map(3), &old, &new).unwrap().body[0], 2);
        assert_eq!(choose(DATABASE, MetaId::Map(3), &slot(7, 3), &new).unwrap().body[0], 3);
        for byte in 0..512 {
            let mut torn = new.clone();
            torn[byte] ^= 0x10;
            assert_eq!(choose(DATABASE, MetaId::Map(3), &old, &torn).unwrap().body[0], 1, "byte {byte}");
            assert!(choose(DATABASE, MetaId::Map(3), &torn, &[0; 512]).is_err());
        }
        assert!(choose(DATABASE, MetaId::Map(4), &old, &new).is_err(), "another page");
        // A sequence that the next write cannot pass.
        let last = slot(u64::MAX - 1, 3);
        assert_eq!(choose(DATABASE, MetaId::Map(3), &old, &last).unwrap().body[0], 1);
        assert_eq!(choose(DATABASE, MetaId::Map(3), &old, &slot(SEQUENCE_MAX, 3)).unwrap().body[0], 3);
        assert!(choose(DATABASE, MetaId::Bitmap(3), &old, &new).is_err(), "another kind");
        assert!(choose(DatabaseId([8; 16]), MetaId::Map(3), &old, &new).is_err(), "another database");
    }
}
