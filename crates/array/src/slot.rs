//! The slots of a group: which code it has.
//!
//! Two slots with following sequences lie before the group's metadata, the odd one first, on the
//! members that hold copies of that. A change goes to the first slot of all of them, and then to
//! the second: either is enough, and the newest whole one counts. They are written when the group
//! comes to be, so one that is blank is damaged. Their sequences begin with 1, or follow those of a
//! group that was cut off and is there still.
//!
//! A slot fills a physical sector of its own: a drive that takes smaller blocks reads and writes
//! whole sectors for them, so a torn write may cost all that lies in one.

use crate::code::Code;
use firndb_base::{Crc32c, DatabaseId};
use firndb_device::AlignedBuf;

const MAGIC: [u8; 8] = *b"FIRNCODE";
/// Bytes of a slot that say something; zeros follow.
const SLOT_BYTES: usize = 512;
/// Bytes of the physical sectors of most drives, whatever their logical blocks have.
const SECTOR_BYTES: u64 = 4096;
const CHECKSUM_AT: usize = 12;
/// A higher sequence is damage, so that there is always a next one.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// Bytes that a slot takes on members with blocks of as many bytes.
pub(crate) fn slot_bytes(block: u64) -> u64 {
    block.max(SECTOR_BYTES)
}

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub sequence: u64,
    pub code: Code,
}

impl Slot {
    /// What the slots of a new group say where none was before.
    pub(crate) fn of_new_group(code: Code) -> Slot {
        Slot { sequence: 1, code }
    }

    /// What the first slot says where both say what this one does.
    pub(crate) fn first(self) -> Slot {
        Slot { sequence: self.sequence - 1 + self.sequence % 2, ..self }
    }

    /// What both say where others that say something else are replaced: newer than this one, if any
    /// sequence is.
    pub(crate) fn next(self, code: Code) -> Slot {
        Slot { sequence: (self.first().sequence + 2).min(SEQUENCE_MAX - 1), code }
    }

    /// Both slots, each as long as [`slot_bytes`] says.
    pub(crate) fn both(self, database: DatabaseId, group: u64, slot_bytes: u64) -> AlignedBuf {
        let slot_bytes = slot_bytes as usize;
        let mut bytes = AlignedBuf::zeroed(2 * slot_bytes);
        let first = self.first();
        for (slot, sequence) in bytes.chunks_mut(slot_bytes).zip(first.sequence..) {
            slot[..SLOT_BYTES].copy_from_slice(&Slot { sequence, ..self }.encode(database, group));
        }
        bytes
    }

    fn encode(self, database: DatabaseId, group: u64) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        (out[8], out[9]) = (self.code.needed() as u8, self.code.written() as u8);
        out[16..32].copy_from_slice(&database.0);
        out[32..40].copy_from_slice(&group.to_le_bytes());
        out[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        let checksum = checksum(&out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None` if it is torn, or none of this group; `which` is 0 for the first, 1 for the second.
    pub(crate) fn decode(bytes: &[u8], database: DatabaseId, group: u64, which: u64) -> Option<Slot> {
        let bytes: &[u8; SLOT_BYTES] = bytes.get(..SLOT_BYTES)?.try_into().expect("as long as a slot");
        let code = Code::new(usize::from(bytes[8]), usize::from(bytes[9]))?;
        let sequence = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes"));
        let slot = Slot { sequence, code };
        let sound = (1..=SEQUENCE_MAX).contains(&sequence) && sequence % 2 != which;
        (sound && *bytes == slot.encode(database, group)).then_some(slot)
    }
}

fn checksum(bytes: &[u8; SLOT_BYTES]) -> u32 {
    Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&bytes[CHECKSUM_AT + 4..]).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DatabaseId = DatabaseId([7; 16]);

    fn slot(sequence: u64) -> Slot {
        Slot { sequence, code: Code::new(3, 4).unwrap() }
    }

    #[test]
    fn a_slot_is_read_back_and_no_other_is_taken_for_it() {
        let bytes = slot(6).encode(ID, 9);
        assert_eq!(Slot::decode(&bytes, ID, 9, 1), Some(slot(6)));
        for (id, group, which) in [(ID, 9, 0), (ID, 8, 1), (DatabaseId([8; 16]), 9, 1)] {
            assert_eq!(Slot::decode(&bytes, id, group, which), None);
        }
        for bit in 0..8 * SLOT_BYTES {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Slot::decode(&changed, ID, 9, 1), None, "bit {bit}");
        }
        for sequence in [0, SEQUENCE_MAX + 2, u64::MAX - 1] {
            assert_eq!(Slot::decode(&slot(sequence).encode(ID, 9), ID, 9, 1), None, "{sequence}");
        }
        assert_eq!(Slot::decode(&[0; SLOT_BYTES], ID, 0, 0), None);
        assert_eq!(Slot::decode(&bytes[..511], ID, 9, 1), None);
    }

    #[test]
    fn both_slots_say_the_same() {
        for sequence in [1, 2, 5, 6, SEQUENCE_MAX - 1, SEQUENCE_MAX] {
            let bytes = slot(sequence).both(ID, 4, 4096);
            let first = slot(sequence).first().sequence;
            assert!(first % 2 == 1 && (first..first + 2).contains(&sequence));
            assert_eq!(Slot::decode(&bytes[..4096], ID, 4, 0), Some(slot(first)));
            assert_eq!(Slot::decode(&bytes[4096..], ID, 4, 1), Some(slot(first + 1)));
        }
    }

    #[test]
    fn both_slots_golden_bytes() {
        for (block, second) in [(512, 4096), (4096, 4096), (16384, 16384)] {
            let bytes = slot(5).both(ID, 1, slot_bytes(block));
            assert_eq!(bytes.len(), 2 * second);
            for (at, sequence) in [(0, 5), (second, 6)] {
                assert_eq!(bytes[at..at + 8], *b"FIRNCODE", "blocks of {block}");
                assert_eq!(bytes[at + 32..at + 48], [1, 0, 0, 0, 0, 0, 0, 0, sequence, 0, 0, 0, 0, 0, 0, 0]);
                assert!(bytes[at + 48..at + second].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn the_next_slot_is_newer_as_long_as_there_are_sequences() {
        let code = Code::new(1, 2).unwrap();
        for (sequence, next) in [(1, 3), (2, 3), (5, 7), (6, 7)] {
            assert_eq!(slot(sequence).next(code), Slot { sequence: next, code });
        }
        let last = slot(SEQUENCE_MAX).next(code);
        assert_eq!(Slot::decode(&last.encode(ID, 1), ID, 1, 0), Some(last));
    }

    #[test]
    fn golden_bytes() {
        let bytes = slot(0x0102).encode(ID, 0x0304);
        assert_eq!(bytes[..12], *b"FIRNCODE\x03\x04\0\0");
        assert_eq!(bytes[12..16], [97, 240, 4, 30]);
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..48], [4, 3, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..], [0; 464]);
    }
}
