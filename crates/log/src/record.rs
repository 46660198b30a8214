//! Records: the unit of append and of redo, and their framing in the stream.
//!
//! ```text
//!  0  u32  body length; bit 31: more records of this group follow
//!  4  u8   kind
//!  5  u8   check: a hash of the record's LSN and the five bytes before
//!  6       body
//! ```
//!
//! The blocks' checksums protect the bytes; the check byte detects a reader that is out of step.

use firndb_base::Lsn;
pub use firndb_base::record_kind::Kind;

/// A record as it is appended and as recovery delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The record's type.
    pub kind: Kind,
    /// The body, in its owner's format.
    pub body: &'a [u8],
}

/// Bytes of framing before each body.
pub(crate) const FRAME: usize = 6;
/// Longest body that the format can express. Options usually set a lower limit.
pub(crate) const BODY_MAX: usize = (1 << 30) - 1;
const MORE: u32 = 1 << 31;

/// A record's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub body_len: usize,
    /// Whether further records of the group follow.
    pub more: bool,
    pub kind: Kind,
}

impl Frame {
    pub fn encode(self, lsn: Lsn) -> [u8; FRAME] {
        assert!(self.body_len <= BODY_MAX, "append() checks lengths");
        let word = self.body_len as u32 | if self.more { MORE } else { 0 };
        let [a, b, c, d] = word.to_le_bytes();
        [a, b, c, d, self.kind.0, check(lsn, word, self.kind)]
    }

    /// Returns `None` if the bytes are no framing of a record at `lsn`.
    pub fn decode(lsn: Lsn, bytes: [u8; FRAME]) -> Option<Frame> {
        let [a, b, c, d, kind, found] = bytes;
        let word = u32::from_le_bytes([a, b, c, d]);
        let frame = Frame { body_len: (word & !MORE) as usize, more: word & MORE != 0, kind: Kind(kind) };
        (found == check(lsn, word, frame.kind) && frame.body_len <= BODY_MAX).then_some(frame)
    }

    /// First LSN after the record.
    pub fn end(self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 + (FRAME + self.body_len) as u64)
    }
}

fn check(lsn: Lsn, word: u32, kind: Kind) -> u8 {
    let folded = lsn.0 ^ (u64::from(word) << 8) ^ u64::from(kind.0);
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}
