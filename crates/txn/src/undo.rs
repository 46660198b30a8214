//! Undo entries: how to get from a version of a row to the one before.
//!
//! The same bytes stand in the log record (so analysis alone can rebuild them), in memory while the
//! transaction or a snapshot needs them, and in the undo tree when they are spilled.
//!
//! ```text
//! kind u8 (low nibble: 1 absent, 2 full, 3 patch, 4 tree created; bit 4: the version before is a ghost;
//!         bit 5: it is flagged; bit 6: the change made a ghost; bit 7: the changed row names a
//!         page, taken into use with it, which is freed when it is undone)
//! tree varint
//! kind 4:      root page varint (zero in the log record: there it is the record's own page)
//! otherwise:   key blob
//! kinds 2, 3:  writer varint, undo index varint of the version before
//! kind 2:      payload, all that is left
//! kind 3:      (gap varint, old bytes blob) until the end; gap = distance from the end of the last range
//! ```

use crate::header::RowHeader;
use firndb_base::codec::{Malformed, Reader, Writer};
use firndb_base::{PageId, TreeId, TxnId};

/// Bytes that an undo entry adds to key and payload, at most, its key in the undo tree included.
pub(crate) const MAX_OVERHEAD: usize = 12 + 1 + 5 + 3 + 10 + 5 + 32;

const ABSENT: u8 = 1;
const FULL: u8 = 2;
const PATCH: u8 = 3;
const TREE_CREATED: u8 = 4;
const GHOST: u8 = 0x10;
const FLAG: u8 = 0x20;
const DELETES: u8 = 0x40;
const NAMES_PAGE: u8 = 0x80;

/// The row that a change is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub tree: TreeId,
    pub key: &'a [u8],
    /// The change deletes the row: it leaves a ghost.
    pub deletes: bool,
    /// The row names a page that was taken into use with it.
    pub names_page: bool,
}

/// How to undo one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo<'a> {
    /// A row was written, or deleted.
    Row { tree: TreeId, key: &'a [u8], deletes: bool, names_page: bool, before: Before<'a> },
    /// A tree was created.
    TreeCreated { tree: TreeId, root: PageId },
}

/// The version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before<'a> {
    /// There was none.
    Absent,
    /// Its header and its whole payload.
    Full(RowHeader, &'a [u8]),
    /// Its header and the bytes in which its payload, of equal length, differed.
    Patch(RowHeader, Patches<'a>),
}

impl Before<'_> {
    /// Whether it is a deleted row.
    pub fn is_ghost(&self) -> bool {
        matches!(self, Before::Full(header, _) | Before::Patch(header, _) if header.ghost)
    }
}

/// Ranges of a payload with the bytes they had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patches<'a>(&'a [u8]);

impl<'a> Patches<'a> {
    /// Puts the old bytes back.
    pub fn apply(self, payload: &mut [u8]) -> Result<(), Malformed> {
        self.ranges(payload.len())?
            .into_iter()
            .for_each(|(at, old)| payload[at..at + old.len()].copy_from_slice(old));
        Ok(())
    }

    /// Offsets and old bytes, checked against the payload's length.
    pub fn ranges(self, payload_len: usize) -> Result<Vec<(usize, &'a [u8])>, Malformed> {
        let mut reader = Reader::new(self.0);
        let mut ranges = Vec::new();
        let mut at = 0usize;
        while !reader.is_empty() {
            at += reader.varint_max(payload_len)?;
            let old = reader.blob()?;
            if at + old.len() > payload_len {
                return Err(Malformed { what: "an undo patch beyond its row" });
            }
            ranges.push((at, old));
            at += old.len();
        }
        Ok(ranges)
    }
}

impl<'a> Undo<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Undo<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let tree =
            u32::try_from(reader.varint()?).map_err(|_| Malformed { what: "a tree id over 32 bits" })?;
        let tree = TreeId(tree);
        if kind == TREE_CREATED {
            return Ok(Undo::TreeCreated { tree, root: PageId(reader.varint()?) });
        }
        let key = reader.blob()?;
        let mut header = || -> Result<RowHeader, Malformed> {
            let writer = TxnId(reader.varint()?);
            let undo = reader.varint_max((1 << 30) - 1)? as u32;
            let (ghost, flag) = (kind & GHOST != 0, kind & FLAG != 0);
            if ghost && flag {
                return Err(Malformed { what: "an undo entry of a deleted row with a flag" });
            }
            Ok(RowHeader { writer, undo, ghost, flag })
        };
        let before = match kind & 0x0f {
            ABSENT => Before::Absent,
            FULL => {
                let header = header()?;
                Before::Full(header, reader.rest())
            }
            PATCH => {
                let header = header()?;
                Before::Patch(header, Patches(reader.rest()))
            }
            _ => return Err(Malformed { what: "an unknown kind of undo entry" }),
        };
        let (deletes, names_page) = (kind & DELETES != 0, kind & NAMES_PAGE != 0);
        if deletes && names_page {
            return Err(Malformed { what: "an undo entry of a deleted row that names a page" });
        }
        Ok(Undo::Row { tree, key, deletes, names_page, before })
    }
}

fn put_row(out: &mut Vec<u8>, kind: u8, row: Target<'_>, before: Option<RowHeader>) {
    let ghost = if before.is_some_and(|header| header.ghost) { GHOST } else { 0 };
    let flag = if before.is_some_and(|header| header.flag) { FLAG } else { 0 };
    let deletes = if row.deletes { DELETES } else { 0 };
    let names_page = if row.names_page { NAMES_PAGE } else { 0 };
    out.put_u8(kind | ghost | flag | deletes | names_page);
    out.put_varint(u64::from(row.tree.0));
    out.put_blob(row.key);
    if let Some(header) = before {
        out.put_varint(header.writer.0);
        out.put_varint(u64::from(header.undo));
    }
}

/// Appends the undo entry of an insert where there was no row.
pub(crate) fn encode_absent(out: &mut Vec<u8>, row: Target<'_>) {
    put_row(out, ABSENT, row, None);
}

/// Appends an undo entry with the whole payload before.
pub(crate) fn encode_full(out: &mut Vec<u8>, row: Target<'_>, header: RowHeader, payload: &[u8]) {
    put_row(out, FULL, row, Some(header));
    out.put(payload);
}

/// Appends an undo entry with the bytes in which two versions of one length differ.
pub(crate) struct PatchWriter<'o> {
    out: &'o mut Vec<u8>,
    at: usize,
}

impl<'o> PatchWriter<'o> {
    /// Begins the entry; [`PatchWriter::push`] adds the ranges.
    pub fn begin(out: &'o mut Vec<u8>, row: Target<'_>, header: RowHeader) -> PatchWriter<'o> {
        put_row(out, PATCH, row, Some(header));
        PatchWriter { out, at: 0 }
    }
    /// Adds the old bytes at `start`, which must not lie before the end of those added last.
    pub fn push(&mut self, start: usize, old: &[u8]) {
        self.out.put_varint((start - self.at) as u64);
        self.out.put_blob(old);
        self.at = start + old.len();
    }
}

/// Appends the undo entry of a tree's creation.
pub(crate) fn encode_tree_created(out: &mut Vec<u8>, tree: TreeId, root: Option<PageId>) {
    out.put_u8(TREE_CREATED);
    out.put_varint(u64::from(tree.0));
    out.put_varint(root.map_or(0, |page| page.0));
}

/// Key of a spilled entry: ordered by transaction, then index.
pub(crate) fn undo_key(id: TxnId, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RowHeader = RowHeader { writer: TxnId(300), undo: 2, ghost: true, flag: false };

    fn row(tree: u32, key: &[u8]) -> Target<'_> {
        Target { tree: TreeId(tree), key, deletes: false, names_page: false }
    }

    fn encode_patch(out: &mut Vec<u8>, key: &[u8], payload: &[u8], ranges: &[std::ops::Range<usize>]) {
        let mut writer = PatchWriter::begin(out, row(1, key), HEADER);
        ranges.iter().for_each(|range| writer.push(range.start, &payload[range.clone()]));
    }

    #[test]
    fn entries_round_trip() {
        let decoded =
            |key, deletes, before| Ok(Undo::Row { tree: TreeId(7), key, deletes, names_page: false, before });
        let mut bytes = Vec::new();
        encode_absent(&mut bytes, row(7, b"key"));
        assert_eq!(Undo::decode(&bytes), decoded(b"key", false, Before::Absent));
        bytes.clear();
        encode_full(&mut bytes, row(7, b"k"), HEADER, b"old");
        assert_eq!(Undo::decode(&bytes), decoded(b"k", false, Before::Full(HEADER, b"old")));
        bytes.clear();
        let flagged = RowHeader { ghost: false, flag: true, ..HEADER };
        let deleted = Target { deletes: true, ..row(7, b"k") };
        encode_full(&mut bytes, deleted, flagged, b"old");
        assert_eq!(bytes[0], 0x62);
        assert_eq!(Undo::decode(&bytes), decoded(b"k", true, Before::Full(flagged, b"old")));
        bytes.clear();
        encode_absent(&mut bytes, Target { names_page: true, ..row(7, b"k") });
        assert_eq!(bytes[0], 0x81);
        let (tree, key, before) = (TreeId(7), &b"k"[..], Before::Absent);
        assert_eq!(
            Undo::decode(&bytes),
            Ok(Undo::Row { tree, key, deletes: false, names_page: true, before })
        );
        bytes[0] |= 0x40;
        assert!(Undo::decode(&bytes).is_err(), "a deleted row names no page");
        bytes.clear();
        encode_tree_created(&mut bytes, TreeId(9), Some(PageId(1000)));
        assert_eq!(Undo::decode(&bytes), Ok(Undo::TreeCreated { tree: TreeId(9), root: PageId(1000) }));
    }

    #[test]
    fn patches_put_the_old_bytes_back() {
        let old = *b"abcdefghij";
        let mut new = *b"abXXefghiY";
        let mut bytes = Vec::new();
        encode_patch(&mut bytes, b"k", &old, &[2..4, 9..10]);
        let Ok(Undo::Row { before: Before::Patch(header, patches), .. }) = Undo::decode(&bytes) else {
            panic!("a patch was encoded");
        };
        assert_eq!(header, HEADER);
        patches.apply(&mut new).expect("the patch fits");
        assert_eq!(new, old);
        assert!(patches.apply(&mut [0; 9]).is_err(), "a patch beyond the row is refused");
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        encode_patch(&mut bytes, b"k", b"abcd", std::slice::from_ref(&(1..2)));
        assert_eq!(bytes, [0x13, 1, 1, b'k', 0xac, 2, 2, 1, 1, b'b']);
    }
}
