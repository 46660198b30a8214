//! What a row change's log record carries for undo, and this layer's own records.
//!
//! | record kind | meaning | body |
//! |---|---|---|
//! | `COMMIT` | commit | transaction varint, microseconds since 1970 varint |
//! | `ABORT` | abort: all undone | transaction varint |
//! | `PREPARE` | prepared | transaction varint, global id blob, then keys locked for update and not written until the end: tree varint, key blob each |
//! | `ROLLBACK` | a prepared transaction is to be rolled back | transaction varint |

use firndb_base::TxnId;
use firndb_base::codec::{Malformed, Reader, Writer};

const CHANGE: u8 = 1;
const COMPENSATION: u8 = 2;
const SPILLED: u8 = 3;

/// The attachment of a page change's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment<'a> {
    /// None: a change of structure, a sweep, or the end of an entry of the undo tree.
    None,
    /// A change by a transaction.
    Change {
        /// Whose change.
        txn: TxnId,
        /// Which of its undo entries undoes it.
        index: u32,
        /// That entry's bytes.
        undo: &'a [u8],
    },
    /// The undoing of such a change.
    Compensation {
        /// Whose change.
        txn: TxnId,
        /// Which of its undo entries has been used.
        index: u32,
    },
    /// An undo entry put into the undo tree, which has it from this record on.
    Spilled {
        /// Of which transaction.
        txn: TxnId,
        /// Which of its undo entries.
        index: u32,
    },
}

impl<'a> Attachment<'a> {
    /// Decodes a page change's attachment.
    pub fn decode(bytes: &'a [u8]) -> Result<Attachment<'a>, Malformed> {
        if bytes.is_empty() {
            return Ok(Attachment::None);
        }
        let mut reader = Reader::new(bytes);
        let tag = reader.u8()?;
        let txn = TxnId(reader.varint()?);
        let index = reader.varint_max((1 << 31) - 1)? as u32;
        match tag {
            CHANGE => Ok(Attachment::Change { txn, index, undo: reader.rest() }),
            COMPENSATION => Ok(Attachment::Compensation { txn, index }),
            SPILLED => Ok(Attachment::Spilled { txn, index }),
            _ => Err(Malformed { what: "an unknown kind of attachment" }),
        }
    }
}

/// Begins a change's attachment in `out`; the undo entry follows. Returns where it starts.
#[inline]
pub(crate) fn begin_change(out: &mut Vec<u8>, txn: TxnId, index: u32) -> usize {
    out.clear();
    out.put_u8(CHANGE);
    out.put_varint(txn.0);
    out.put_varint(u64::from(index));
    out.len()
}

/// Writes a compensation's attachment into `out`.
pub(crate) fn compensation(out: &mut Vec<u8>, txn: TxnId, index: u32) {
    put_tagged(out, COMPENSATION, txn, index);
}

/// Writes the attachment of an undo tree's change that puts an entry in into `out`.
pub(crate) fn spilled(out: &mut Vec<u8>, txn: TxnId, index: u32) {
    put_tagged(out, SPILLED, txn, index);
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, txn: TxnId, index: u32) {
    out.clear();
    out.put_u8(tag);
    out.put_varint(txn.0);
    out.put_varint(u64::from(index));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_round_trip() {
        assert_eq!(Attachment::decode(&[]), Ok(Attachment::None));
        let mut bytes = Vec::new();
        let start = begin_change(&mut bytes, TxnId(500), 3);
        bytes.put(b"undo");
        assert_eq!(&bytes[start..], b"undo");
        assert_eq!(
            Attachment::decode(&bytes),
            Ok(Attachment::Change { txn: TxnId(500), index: 3, undo: b"undo" })
        );
        compensation(&mut bytes, TxnId(1), 0);
        assert_eq!(Attachment::decode(&bytes), Ok(Attachment::Compensation { txn: TxnId(1), index: 0 }));
        spilled(&mut bytes, TxnId(300), 7);
        assert_eq!(bytes, [3, 0xac, 2, 7]);
        assert_eq!(Attachment::decode(&bytes), Ok(Attachment::Spilled { txn: TxnId(300), index: 7 }));
        assert!(Attachment::decode(&[9, 1, 1]).is_err());
    }
}
