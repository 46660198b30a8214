//! The label of a member: which array it belongs to, which member it is, and how the array is cut.
//!
//! Written when a device becomes a member, and never again: two equal copies, so that either is
//! enough. What may be believed of a member's content stands elsewhere, where all members' states
//! are changed in one write ([`crate::Keeper`]): a member that has missed writes still has its
//! label.

use crate::code::{Code, MEMBERS_MAX};
use crate::map::{LABEL_STRIDE, row_bytes};
use crate::shape::Shape;
use firndb_base::{Crc32c, DatabaseId};
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability, Fill};

const MAGIC: [u8; 8] = *b"FIRNARRY";
const FORMAT_VERSION: u32 = 2;
/// Bytes of a label; written as one whole block if that is larger.
const LABEL_BYTES: usize = 512;
const CHECKSUM_AT: usize = 12;

/// What a label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The database that the array belongs to.
    pub database: DatabaseId,
    /// The place of the member in the array, from 0.
    pub member: usize,
    /// Which device this is, of all that ever had that place.
    pub incarnation: u64,
    /// Members of the array.
    pub members: usize,
    /// How pages are fragmented.
    pub code: Code,
    /// Fragments are whole blocks of this many bytes.
    pub block: u64,
    /// How the file above is cut.
    pub shape: Shape,
    /// Bytes on each member that are reserved for the rows of a group.
    pub row_bytes: u64,
}

impl Label {
    fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut out = [0; LABEL_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.database.0);
        out[32] = self.member as u8;
        out[33] = self.members as u8;
        out[34] = self.code.needed() as u8;
        out[35] = self.code.written() as u8;
        let shape = &self.shape;
        let numbers = [
            self.incarnation,
            self.block,
            shape.page_bytes,
            shape.meta_bytes,
            shape.slot_bytes,
            shape.slots_end,
            shape.groups_start,
            shape.group_bytes,
            shape.places_start,
            shape.places,
            self.row_bytes,
        ];
        for (bytes, number) in out[40..].chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = checksum(&out);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None` if it is torn or none; what it says is sound.
    fn decode(name: &str, bytes: &[u8; LABEL_BYTES]) -> Option<Result<Label, DeviceError>> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let number = |index: usize| {
            let at = 40 + 8 * index;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        if bytes[..8] != MAGIC || u32_at(CHECKSUM_AT) != checksum(bytes) {
            return None;
        }
        let version = u32_at(8);
        if version != FORMAT_VERSION {
            let message = format!(
                "{name} is a member of an array of format version {version}, this program knows version {FORMAT_VERSION}: use {}",
                if version > FORMAT_VERSION { "a newer program" } else { "the program that made it" }
            );
            return Some(Err(DeviceError::new(DeviceErrorKind::Unusable, message)));
        }
        let code = Code::new(usize::from(bytes[34]), usize::from(bytes[35]))?;
        let label = Label {
            database: DatabaseId(bytes[16..32].try_into().expect("sixteen bytes")),
            member: usize::from(bytes[32]),
            members: usize::from(bytes[33]),
            code,
            incarnation: number(0),
            block: number(1),
            shape: Shape {
                page_bytes: number(2),
                meta_bytes: number(3),
                slot_bytes: number(4),
                slots_end: number(5),
                groups_start: number(6),
                group_bytes: number(7),
                places_start: number(8),
                places: number(9),
            },
            row_bytes: number(10),
        };
        let sound = label.members <= MEMBERS_MAX
            && label.member < label.members
            && code.written() <= label.members
            && label.block.is_power_of_two()
            && (512..=65536).contains(&label.block)
            && label.shape.is_sound()
            && label.row_bytes <= 1 << 50
            && label.row_bytes >= row_bytes(code, &label.shape, label.members, label.block);
        sound.then_some(Ok(label))
    }

    /// Reads the label of a device: `None` if it has none.
    ///
    /// Errors: neither copy can be read; a newer format.
    pub fn read(device: &dyn Device) -> Result<Option<Label>, DeviceError> {
        let len = device.info().logical_block.max(LABEL_BYTES);
        let mut failed = None;
        for copy in 0..2 {
            let offset = copy * LABEL_STRIDE;
            let mut buf = AlignedBuf::zeroed(len);
            match device.read(offset, &mut buf) {
                Ok(()) => {}
                // It has no label. What stands for a device that is not there has no bytes, either,
                // but says why.
                Err(error) if error.kind == DeviceErrorKind::OutOfRange => continue,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            }
            let bytes = buf[..LABEL_BYTES].try_into().expect("as long as a label");
            if let Some(found) = Label::decode(&device.info().name, bytes) {
                return found.map(Some);
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Writes both copies; durable when this returns.
    pub(crate) fn write(&self, device: &dyn Device) -> Result<(), DeviceError> {
        device.grow(2 * LABEL_STRIDE, Fill::Reserved)?;
        let mut buf = AlignedBuf::zeroed(device.info().logical_block.max(LABEL_BYTES));
        buf[..LABEL_BYTES].copy_from_slice(&self.encode());
        for copy in 0..2 {
            device.write(copy * LABEL_STRIDE, &buf, Durability::Durable)?;
        }
        Ok(())
    }
}

fn checksum(bytes: &[u8; LABEL_BYTES]) -> u32 {
    Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&bytes[CHECKSUM_AT + 4..]).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::SMALL;
    use firndb_device::MemoryDevice;

    fn label() -> Label {
        Label {
            database: DatabaseId([7; 16]),
            member: 2,
            incarnation: 5,
            members: 4,
            code: Code::new(3, 4).unwrap(),
            block: 512,
            shape: SMALL,
            row_bytes: 20 * 512,
        }
    }

    #[test]
    fn a_label_is_read_from_either_copy_and_from_no_damaged_one() {
        let device = MemoryDevice::new("m");
        assert_eq!(Label::read(&device), Ok(None));
        label().write(&device).unwrap();
        assert_eq!(Label::read(&device), Ok(Some(label())));
        let zeros = AlignedBuf::zeroed(512);
        device.write(0, &zeros, Durability::Durable).unwrap();
        assert_eq!(Label::read(&device), Ok(Some(label())));
        device.write(LABEL_STRIDE, &zeros, Durability::Durable).unwrap();
        assert_eq!(Label::read(&device), Ok(None));
        let bytes = label().encode();
        for bit in 0..8 * LABEL_BYTES {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode("m", &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn a_newer_label_and_one_that_makes_no_sense_are_told_apart() {
        let sealed = |change: &dyn Fn(&mut [u8; LABEL_BYTES])| {
            let mut bytes = label().encode();
            change(&mut bytes);
            let checksum = checksum(&bytes);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
            Label::decode("m", &bytes)
        };
        let other = |version: u8| sealed(&|bytes| bytes[8] = version).unwrap().unwrap_err().message;
        assert!(
            other(3).contains("use a newer program") && other(1).contains("use the program that made it")
        );
        for at in [32, 33, 34, 35, 48, 56, 127] {
            assert_eq!(sealed(&|bytes| bytes[at] = 0xff), None, "byte {at}");
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = label().encode();
        assert_eq!(bytes[..12], *b"FIRNARRY\x02\0\0\0");
        assert_eq!(bytes[12..16], [186, 118, 76, 141]);
        assert_eq!(bytes[16..40], [[7; 16].as_slice(), &[2, 4, 3, 4, 0, 0, 0, 0]].concat());
        assert_eq!(bytes[40..56], [5, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[112..128], [20, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[128..], [0; 384]);
    }
}
