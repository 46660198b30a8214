//! A block of the map log on the device: a header of 104 bytes and part of a stream of frames.
//!
//! ```text
//! at  bytes
//! 0   8   FIRNMAPL
//! 8   16  database id
//! 24  8   block number
//! 32  8   sequence: one more than the block before
//! 40  8   number of the block after this one
//! 48  4   CRC of the block before; 0 if there was none
//! 52  4   bytes of the stream in this block
//! 56  4   where the first frame begins that begins here; the number above if none does
//! 60  36  anchor when the block was written: block, sequence, covered (u64 each), CRC before (u32)
//!         and 8 zeros
//! 96  4   zeros
//! 100 4   CRC of all other bytes
//! ```
//!
//! Invariants:
//! * a block counts only if its number, its sequence and the CRC of the block before are those that
//!   the block before leads to: what an earlier run left behind the end is never taken for a part;
//! * lengths are checked against the block's before they are used.

use firndb_base::codec::Reader;
use firndb_base::{Crc32c, DatabaseId, Lsn};

/// Bytes of a block's header.
pub(crate) const BLOCK_HEADER_BYTES: usize = 104;
const MAGIC: [u8; 8] = *b"FIRNMAPL";
const CHECKSUM_AT: usize = 100;
/// Bytes of an encoded anchor.
pub(crate) const ANCHOR_BYTES: usize = 36;

/// Where a block lies, and what it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub block: u64,
    pub sequence: u64,
    /// CRC of the block before.
    pub before: u32,
}

/// Where the map log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Of the first block, which may not have been written yet.
    pub first: Spot,
    /// Records up to here are contained in metadata pages, or stand in the log from `first` on.
    pub covered: Lsn,
}

impl Anchor {
    /// Of a new store.
    pub(crate) const NEW: Anchor =
        Anchor { first: Spot { block: 0, sequence: 1, before: 0 }, covered: Lsn::ZERO };

    pub(crate) fn write(&self, out: &mut [u8]) {
        out[0..8].copy_from_slice(&self.first.block.to_le_bytes());
        out[8..16].copy_from_slice(&self.first.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.covered.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.first.before.to_le_bytes());
        out[28..ANCHOR_BYTES].fill(0);
    }
    pub(crate) fn read(bytes: &[u8]) -> Anchor {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let before = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
        let first = Spot { block: u64_at(0), sequence: u64_at(8), before };
        Anchor { first, covered: Lsn(u64_at(16)) }
    }
}

/// What a block's header says, and its part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub spot: Spot,
    pub next: u64,
    pub anchor: Anchor,
    pub checksum: u32,
    pub bytes: &'a [u8],
    /// Where the first frame begins in `bytes`.
    pub first_frame: usize,
}

impl Block<'_> {
    /// The spot after this block.
    pub(crate) fn next_spot(&self) -> Spot {
        Spot { block: self.next, sequence: self.spot.sequence + 1, before: self.checksum }
    }
}

/// Writes a block to `out`, which is one block long; returns its CRC. `block.checksum` is not used.
pub(crate) fn encode(database: DatabaseId, block: &Block<'_>, out: &mut [u8]) -> u32 {
    assert!(block.bytes.len() <= out.len() - BLOCK_HEADER_BYTES && block.first_frame <= block.bytes.len());
    out.fill(0);
    out[0..8].copy_from_slice(&MAGIC);
    out[8..24].copy_from_slice(&database.0);
    out[24..32].copy_from_slice(&block.spot.block.to_le_bytes());
    out[32..40].copy_from_slice(&block.spot.sequence.to_le_bytes());
    out[40..48].copy_from_slice(&block.next.to_le_bytes());
    out[48..52].copy_from_slice(&block.spot.before.to_le_bytes());
    out[52..56].copy_from_slice(&(block.bytes.len() as u32).to_le_bytes());
    out[56..60].copy_from_slice(&(block.first_frame as u32).to_le_bytes());
    block.anchor.write(&mut out[60..60 + ANCHOR_BYTES]);
    out[BLOCK_HEADER_BYTES..][..block.bytes.len()].copy_from_slice(block.bytes);
    let checksum = checksum(out);
    out[CHECKSUM_AT..BLOCK_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::new().with(&bytes[..CHECKSUM_AT]).with(&bytes[BLOCK_HEADER_BYTES..]).value()
}

/// Decodes a block wherever it stands in the log; `None` if it is not a whole one of `database`.
pub(crate) fn decode(database: DatabaseId, bytes: &[u8]) -> Option<Block<'_>> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (used, first_frame) = (u32_at(52) as usize, u32_at(56) as usize);
    let believed = bytes[0..8] == MAGIC
        && bytes[8..24] == database.0
        && u32_at(CHECKSUM_AT) == checksum(bytes)
        && used <= bytes.len() - BLOCK_HEADER_BYTES
        && first_frame <= used;
    believed.then(|| Block {
        spot: Spot { block: u64_at(24), sequence: u64_at(32), before: u32_at(48) },
        next: u64_at(40),
        anchor: Anchor::read(&bytes[60..60 + ANCHOR_BYTES]),
        checksum: u32_at(CHECKSUM_AT),
        bytes: &bytes[BLOCK_HEADER_BYTES..][..used],
        first_frame,
    })
}

/// Bytes of a frame before its record's body.
pub(crate) const FRAME_HEADER_BYTES: usize = 13;

/// A record in the stream: its LSN (u64), kind (u8), length (u32), body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub lsn: Lsn,
    pub kind: u8,
    pub body: &'a [u8],
}

impl Frame<'_> {
    pub(crate) fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.body.len()
    }
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.push(self.kind);
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        out.extend_from_slice(self.body);
    }
}

/// The frame at the start of `bytes`; `None` if it is not complete.
pub(crate) fn frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut reader = Reader::new(bytes);
    let (lsn, kind, len) = (reader.u64().ok()?, reader.u8().ok()?, reader.u32().ok()?);
    Some(Frame { lsn: Lsn(lsn), kind, body: reader.bytes(len as usize).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: DatabaseId = DatabaseId([7; 16]);

    #[test]
    fn a_block_has_golden_bytes() {
        let mut bytes = Vec::new();
        Frame { lsn: Lsn(0x0102), kind: 0x11, body: &[9, 8, 7] }.write(&mut bytes);
        assert_eq!(bytes, [2, 1, 0, 0, 0, 0, 0, 0, 0x11, 3, 0, 0, 0, 9, 8, 7]);
        let first = Spot { block: 3, sequence: 4, before: 5 };
        let block = Block {
            spot: Spot { block: 20, sequence: 21, before: 22 },
            next: 23,
            anchor: Anchor { first, covered: Lsn(6) },
            checksum: 0,
            bytes: &bytes,
            first_frame: 0,
        };
        let mut out = vec![0xEE; 512];
        let checksum = encode(DATABASE, &block, &mut out);
        assert_eq!(&out[..8], b"FIRNMAPL");
        assert_eq!(out[8..24], [7; 16]);
        assert_eq!(out[24..32], [20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[32..40], [21, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[40..48], [23, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[48..60], [22, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[60..84], [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[84..100], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[104..120], bytes[..]);
        let decoded = decode(DATABASE, &out).unwrap();
        assert_eq!(decoded, Block { checksum, ..block });
        assert_eq!(frame(decoded.bytes).unwrap().body, [9, 8, 7]);
        assert_eq!(decoded.next_spot(), Spot { block: 23, sequence: 22, before: checksum });
    }

    #[test]
    fn nothing_that_was_changed_is_a_block() {
        let block = Block {
            spot: Anchor::NEW.first,
            next: 1,
            anchor: Anchor::NEW,
            checksum: 0,
            bytes: &[1; 300],
            first_frame: 7,
        };
        let mut out = vec![0; 512];
        encode(DATABASE, &block, &mut out);
        for byte in 0..512 {
            let mut spoilt = out.clone();
            spoilt[byte] ^= 0x10;
            assert!(decode(DATABASE, &spoilt).is_none(), "byte {byte}");
        }
        assert!(decode(DatabaseId([8; 16]), &out).is_none());
        assert!(frame(&[1; 12]).is_none() && frame(&[0xFF; 40]).is_none());
    }
}
