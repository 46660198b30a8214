//! The header of a row: who wrote this version, and where its before-image is.

use firn_base::TxnId;
use firn_base::codec::Malformed;

/// First bytes of every row's value.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | writer, a transaction id |
/// | 8 | 4 | index of the before-image among the writer's undo entries; top bit: ghost (a deleted row) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHeader {
    /// The transaction that wrote this version.
    pub writer: TxnId,
    /// Which of its undo entries holds the version before.
    pub undo: u32,
    /// The row is deleted; it stays until no snapshot needs what was there.
    pub ghost: bool,
}

const GHOST: u32 = 1 << 31;

impl RowHeader {
    /// Bytes.
    pub const LEN: usize = 12;

    /// As it stands in the page.
    #[must_use]
    pub fn encode(self) -> [u8; RowHeader::LEN] {
        assert!(self.undo < GHOST, "a transaction has fewer than 2^31 undo entries");
        let mut bytes = [0; RowHeader::LEN];
        bytes[..8].copy_from_slice(&self.writer.0.to_le_bytes());
        bytes[8..].copy_from_slice(&(self.undo | if self.ghost { GHOST } else { 0 }).to_le_bytes());
        bytes
    }

    /// Splits a row's value into header and payload.
    pub fn split(value: &[u8]) -> Result<(RowHeader, &[u8]), Malformed> {
        let Some((head, payload)) = value.split_at_checked(RowHeader::LEN) else {
            return Err(Malformed { what: "a row shorter than its header" });
        };
        let writer = TxnId(u64::from_le_bytes(head[..8].try_into().expect("eight bytes")));
        let word = u32::from_le_bytes(head[8..].try_into().expect("four bytes"));
        Ok((RowHeader { writer, undo: word & !GHOST, ghost: word & GHOST != 0 }, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_round_trip() {
        let header = RowHeader { writer: TxnId(0x0102_0304), undo: 5, ghost: true };
        let mut bytes = header.encode().to_vec();
        assert_eq!(bytes, [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 0, 0x80]);
        bytes.extend_from_slice(b"payload");
        assert_eq!(RowHeader::split(&bytes), Ok((header, &b"payload"[..])));
        assert!(RowHeader::split(&bytes[..11]).is_err());
    }
}
