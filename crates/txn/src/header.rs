//! The header of a row: which transaction wrote this version, and where its before-image is.

use firndb_base::TxnId;
use firndb_base::codec::Malformed;

/// First bytes of every row's value.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | writer, a transaction id |
/// | 8 | 4 | index of the before-image among the writer's undo entries; bit 31: ghost (a deleted row); bit 30: flag |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHeader {
    /// The transaction that wrote this version.
    pub writer: TxnId,
    /// Which of its undo entries holds the version before.
    pub undo: u32,
    /// The row is deleted; it stays until no snapshot needs what was there.
    pub ghost: bool,
    /// A bit that belongs to the layer above. Never set in a ghost.
    pub flag: bool,
}

const GHOST: u32 = 1 << 31;
const FLAG: u32 = 1 << 30;

impl RowHeader {
    /// In bytes.
    pub const LEN: usize = 12;
    /// How many undo entries a transaction may make: a greater index has no place in a header.
    pub const UNDO_MAX: u32 = FLAG;

    /// As it stands in the page.
    #[must_use]
    pub fn encode(self) -> [u8; RowHeader::LEN] {
        assert!(self.undo < RowHeader::UNDO_MAX, "a change that would get a greater index is refused");
        assert!(!(self.ghost && self.flag), "a deleted row has no payload that a flag could speak of");
        let mut bytes = [0; RowHeader::LEN];
        bytes[..8].copy_from_slice(&self.writer.0.to_le_bytes());
        let bits = if self.ghost { GHOST } else { 0 } | if self.flag { FLAG } else { 0 };
        bytes[8..].copy_from_slice(&(self.undo | bits).to_le_bytes());
        bytes
    }

    /// Splits a row's value into header and payload.
    #[inline]
    pub fn split(value: &[u8]) -> Result<(RowHeader, &[u8]), Malformed> {
        let Some((head, payload)) = value.split_at_checked(RowHeader::LEN) else {
            return Err(Malformed { what: "a row shorter than its header" });
        };
        let writer = TxnId(u64::from_le_bytes(head[..8].try_into().expect("eight bytes")));
        let word = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
        let (ghost, flag) = (word & GHOST != 0, word & FLAG != 0);
        if ghost && flag {
            return Err(Malformed { what: "a deleted row with a flag" });
        }
        Ok((RowHeader { writer, undo: word & !(GHOST | FLAG), ghost, flag }, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_round_trip() {
        let header = RowHeader { writer: TxnId(0x0102_0304), undo: 5, ghost: true, flag: false };
        let mut bytes = header.encode().to_vec();
        assert_eq!(bytes, [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 0, 0x80]);
        bytes.extend_from_slice(b"payload");
        assert_eq!(RowHeader::split(&bytes), Ok((header, &b"payload"[..])));
        assert!(RowHeader::split(&bytes[..11]).is_err());
        let flagged = RowHeader { ghost: false, flag: true, ..header };
        assert_eq!(flagged.encode(), [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 0, 0x40]);
        assert_eq!(RowHeader::split(&flagged.encode()), Ok((flagged, &b""[..])));
        assert!(RowHeader::split(&[0xff; 12]).is_err(), "a flagged ghost");
    }
}
