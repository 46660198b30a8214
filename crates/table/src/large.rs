//! Large values: rows too long to stand beside their keys in a leaf.
//!
//! The row keeps a *reference* (and the flag of its header set); the bytes are cut into *parts*,
//! rows of the table's own tree of large values. Whole pages come first, as pages that their rows
//! name (`Transaction::put_page`); what is left over stands in *chunks*:
//!
//! ```text
//! 2  txn: u64 BE  sequence: u32 BE  number: u32 BE          →  page: u64, or nothing: zeros
//! 2  txn: u64 BE  sequence: u32 BE  2^31 + number: u32 BE   →  bytes
//! 1  txn: u64 BE  sequence: u32 BE                          →  nothing: the value is to be freed
//! ```
//!
//! Invariants:
//! * a value's name, (transaction, undo index of the write of its row), is never given out twice;
//!   so parts never change: they are inserted by the transaction that writes the row, and undone
//!   with it;
//! * a version of a row that some transaction can see has all of its parts. A transaction that
//!   replaces or deletes it only writes the mark *to be freed*, whatever the value's length; the
//!   parts are freed when the mark is committed and every transaction and snapshot that may see a
//!   version from before it has ended (see [`crate::reap`]);
//! * so parts are read without a visibility check: a visible reference is enough.
//!
//! Crash: until the commit record is durable, recovery undoes reference, parts and mark together.
//! Parts are freed before their mark, so an interrupted freeing is repeated.

use crate::error::TableError;
use crate::naming::Naming;
use crate::row::MAX_VALUE_LEN;
use crate::show;
use firndb_base::TxnId;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_btree::{Change, Direction, Judgement, Position, Tree, Visit};
use firndb_log::LogClass;
use firndb_txn::{Course, Transaction};

/// Groups of parts removed by one background step.
const GROUPS_FREED_MAX: usize = 8;

const FREED: u8 = 1;
const PART: u8 = 2;
/// Numbers of chunks begin here, those of pages at 0.
const CHUNKS: u32 = 1 << 31;

/// Identifies a large value for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ValueId {
    pub(crate) txn: TxnId,
    pub(crate) sequence: u32,
}

impl ValueId {
    fn key(self, kind: u8) -> [u8; 13] {
        let mut key = [kind; 13];
        key[1..9].copy_from_slice(&self.txn.0.to_be_bytes());
        key[9..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// The key of its mark, if it is to be freed.
    pub(crate) fn mark_key(self) -> [u8; 13] {
        self.key(FREED)
    }

    /// The key of the part that names one of its pages.
    pub(crate) fn page_key(self, number: u32) -> [u8; 17] {
        let mut key = [0; 17];
        key[..13].copy_from_slice(&self.key(PART));
        key[13..].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// The key of one of its chunks.
    pub(crate) fn chunk_key(self, number: u32) -> [u8; 17] {
        self.page_key(CHUNKS | number)
    }
}

impl std::fmt::Display for ValueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.txn.0, self.sequence)
    }
}

/// A key of the tree of large values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Freed(ValueId),
    Page(ValueId, u32),
    Chunk(ValueId, u32),
}

impl Part {
    pub(crate) fn decode(key: &[u8]) -> Result<Part, Malformed> {
        let unknown = Malformed { what: "an unknown key among large values" };
        let id = |bytes: &[u8; 12]| ValueId {
            txn: TxnId(u64::from_be_bytes(*bytes.first_chunk().expect("eight of twelve"))),
            sequence: u32::from_be_bytes(*bytes.last_chunk().expect("four of twelve")),
        };
        match key.split_first() {
            Some((&FREED, rest)) => Ok(Part::Freed(id(rest.try_into().map_err(|_| unknown)?))),
            Some((&PART, rest)) => {
                let rest: &[u8; 16] = rest.try_into().map_err(|_| unknown)?;
                let id = id(rest.first_chunk().expect("twelve of sixteen"));
                let number = u32::from_be_bytes(*rest.last_chunk().expect("four of sixteen"));
                Ok(if number < CHUNKS { Part::Page(id, number) } else { Part::Chunk(id, number - CHUNKS) })
            }
            _ => Err(unknown),
        }
    }
}

/// What a row holds in place of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) id: ValueId,
    pub(crate) len: u32,
    /// CRC32C of the value.
    pub(crate) checksum: u32,
}

impl Reference {
    pub(crate) const LEN: usize = 20;

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Reference::LEN);
        out.put_u64(self.id.txn.0);
        out.put_u32(self.id.sequence);
        out.put_u32(self.len);
        out.put_u32(self.checksum);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Reference, Malformed> {
        let mut reader = Reader::new(bytes);
        let id = ValueId { txn: TxnId(reader.u64()?), sequence: reader.u32()? };
        let (len, checksum) = (reader.u32()?, reader.u32()?);
        if !reader.is_empty() || len as usize > MAX_VALUE_LEN {
            return Err(Malformed { what: "a reference to a large value" });
        }
        Ok(Reference { id, len, checksum })
    }
}

/// Whether a value of this length stands beside its key, in pages of this size.
pub(crate) fn fits_row(page_size: usize, key_len: usize, value_len: usize) -> bool {
    key_len + value_len <= firndb_txn::max_row_len(page_size)
}

/// Bytes of a chunk: eight fill a page. A tree that grows at its end splits off the last entry of a
/// full leaf, so pages of fewer entries would stay emptier; more would mean more log records.
pub(crate) fn chunk_len(page_size: usize) -> usize {
    // Header, prefix and fences of a page; then slot, row header and what is not shared of the key.
    let (of_page, of_entry) = (110, 34);
    let len = (page_size - of_page) / 8 - of_entry;
    assert!(len >= 1 && fits_row(page_size, 17, len));
    len
}

/// Values marked to be freed, in the order of their names from `after` on, at most `limit`; as
/// `txn` sees them.
pub(crate) fn freed(
    txn: &mut Transaction,
    tree: &Tree,
    after: Option<ValueId>,
    limit: usize,
) -> Result<Vec<ValueId>, TableError> {
    let mut found = Vec::new();
    let mut batch = firndb_txn::RowBatch::new();
    let mut position = Some(match after {
        Some(id) => Position::Past(id.key(FREED).to_vec()),
        None => Position::Start,
    });
    while let Some(from) = position {
        position = txn.scan(tree, &from, Course::forward(Some(&[PART])), &mut batch)?;
        for (key, _) in batch.iter() {
            match Part::decode(key)? {
                Part::Freed(id) if found.len() < limit => found.push(id),
                _ => return Ok(found),
            }
        }
    }
    Ok(found)
}

/// Whether any value is marked to be freed, by a transaction that may not have ended.
pub(crate) fn any_marked(tree: &Tree) -> Result<bool, TableError> {
    let mut any = false;
    let mut position = Some(Position::Start);
    while let Some(from) = position {
        let mut past = false;
        position = tree.visit_leaf(&from, Direction::Forward, |key, _| {
            past = true;
            any = key.first() == Some(&FREED);
            Visit::Stop
        })?;
        if past {
            break;
        }
    }
    Ok(any)
}

/// Removes a bounded number of a value's parts, frees the pages that they name, and removes the
/// value's mark when there are none left. Returns whether all of it is gone. No reader may need the
/// value any more: nothing here is undone.
pub(crate) fn free_some(tree: &Tree, id: ValueId) -> Result<bool, TableError> {
    let (mut from, last) = (id.page_key(0).to_vec(), id.page_key(u32::MAX));
    for _ in 0..GROUPS_FREED_MAX {
        let mut unnamed = None;
        let swept = tree.sweep_naming(&from, LogClass::Normal, |key, value| match Part::decode(key) {
            Ok(Part::Page(found, _) | Part::Chunk(found, _)) if found == id => {
                match Naming::LargeParts.page(key, value) {
                    Ok(page) => Judgement::Remove(page),
                    Err(error) => {
                        unnamed = Some(error);
                        Judgement::Keep
                    }
                }
            }
            _ => Judgement::Keep,
        })?;
        if let Some(error) = unnamed {
            return Err(error);
        }
        if swept.more {
            continue;
        }
        tree.merge_opportunely(&from, LogClass::Normal);
        match swept.high {
            Some(high) if high[..] <= last[..] => from = high,
            _ => {
                take_out(tree, &id.key(FREED))?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn take_out(tree: &Tree, key: &[u8]) -> Result<(), TableError> {
    let decide = |current: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| -> Result<(), TableError> {
        if current.is_some() {
            *change = Change::Remove;
        }
        Ok(())
    };
    tree.modify(key, LogClass::Normal, decide).map(|_| ())
}

/// What a row with a broken reference is called in a message.
pub(crate) fn not_whole(table: &str, key: &[u8]) -> TableError {
    TableError::damaged(format!(
        "the large value of row {} of table {table:?} is not whole",
        show::Bytes(key)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::MAX_VALUE_LEN;

    const ID: ValueId = ValueId { txn: TxnId(0x0102), sequence: 3 };

    #[test]
    fn keys_and_references_are_pinned() {
        assert_eq!(ID.key(FREED), [1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        assert_eq!(ID.page_key(258), [2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 1, 2]);
        assert_eq!(ID.chunk_key(258), [2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0x80, 0, 1, 2]);
        let reference = Reference { id: ID, len: 1000, checksum: 0x0a0b_0c0d };
        let bytes = reference.encode();
        assert_eq!(bytes, [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0xe8, 3, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a]);
        assert_eq!(bytes.len(), Reference::LEN);
        assert_eq!(Reference::decode(&bytes), Ok(reference));
    }

    #[test]
    fn broken_keys_and_references_are_refused() {
        assert_eq!(Part::decode(&ID.key(FREED)), Ok(Part::Freed(ID)));
        assert_eq!(Part::decode(&ID.page_key(9)), Ok(Part::Page(ID, 9)));
        assert_eq!(Part::decode(&ID.chunk_key(9)), Ok(Part::Chunk(ID, 9)));
        for bad in [&b""[..], b"\x01", b"\x03aaaabbbbcccc", &ID.chunk_key(0)[..16]] {
            assert!(Part::decode(bad).is_err());
        }
        let long = Reference { id: ID, len: MAX_VALUE_LEN as u32 + 1, checksum: 0 };
        assert!(Reference::decode(&long.encode()).is_err(), "an impossible length is not allocated");
        assert!(Reference::decode(&long.encode()[..19]).is_err());
    }

    #[test]
    fn chunks_fit_their_rows_in_every_page_size() {
        for page_size in [1024, 4096, 65536] {
            assert!(chunk_len(page_size) > 0);
        }
    }
}
