//! What a write of a row changes in its page, and the undo entry for it.

use crate::header::RowHeader;
use crate::undo;
use firndb_base::{TreeId, TxnId};
use firndb_btree::{Change, Patches};
use std::ops::Range;

/// What a row is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowValue<'a> {
    pub payload: &'a [u8],
    /// A bit beside them, whose meaning is the caller's. It is kept with each version of the row.
    pub flag: bool,
}

impl<'a> From<&'a [u8]> for RowValue<'a> {
    fn from(payload: &'a [u8]) -> RowValue<'a> {
        RowValue { payload, flag: false }
    }
}

/// Bytes of a row that names a page: the page's number, little-endian.
pub(crate) const PAGE_NAME_LEN: usize = 8;

/// A change of one row, decided.
pub(crate) struct RowChange<'a> {
    pub tree: TreeId,
    pub key: &'a [u8],
    /// The version there is.
    pub row: Option<(RowHeader, &'a [u8])>,
    /// The new payload and flag; `None` makes a ghost.
    pub value: Option<RowValue<'a>>,
    pub writer: TxnId,
    pub index: u32,
    /// The payload names a page that is taken into use with this change.
    pub names_page: bool,
}

/// Writes the page change and appends the undo entry to `attachment`.
#[inline]
pub(crate) fn describe(row: RowChange<'_>, change: &mut Change, attachment: &mut Vec<u8>) {
    let flag = row.value.is_some_and(|value| value.flag);
    let header = RowHeader { writer: row.writer, undo: row.index, ghost: row.value.is_none(), flag };
    let payload = row.value.map_or(&[][..], |value| value.payload);
    let (deletes, names_page) = (row.value.is_none(), row.names_page);
    let target = undo::Target { tree: row.tree, key: row.key, deletes, names_page };
    match row.row {
        None => undo::encode_absent(attachment, target),
        Some((before, old)) if old.len() == payload.len() => {
            let mut undo = undo::PatchWriter::begin(attachment, target, before);
            let mut patches = Patches::new();
            patches.push(0, &header.encode());
            differences(old, payload, |range| {
                undo.push(range.start, &old[range.clone()]);
                patches.push(RowHeader::LEN + range.start, &payload[range]);
            });
            *change = Change::Patch(patches);
            return;
        }
        Some((before, old)) => undo::encode_full(attachment, target, before, old),
    }
    *change = Change::put_parts(&[&header.encode(), payload]);
}

/// Bytes of equality that are cheaper to repeat than to leave out.
const GAP: usize = 6;

/// Bytes compared at a time.
const WORD: usize = 8;

/// Bytes that are compared together first.
const RUN: usize = 4 * WORD;

const _: () = assert!(GAP >= WORD - 2, "what differs in a word is one range");

/// Reports the ranges in which two payloads of one length differ; ascending, disjoint.
#[inline]
fn differences(old: &[u8], new: &[u8], mut report: impl FnMut(Range<usize>)) {
    let mut pending: Option<Range<usize>> = None;
    let mut differs = |range: Range<usize>| match &mut pending {
        Some(last) if range.start - last.end <= GAP => last.end = range.end,
        _ => {
            if let Some(done) = pending.replace(range) {
                report(done);
            }
        }
    };
    // The lowest byte of a word comes first.
    let mut in_word = |at: usize, difference: u64| {
        if difference != 0 {
            let first = difference.trailing_zeros() as usize / 8;
            let end = WORD - difference.leading_zeros() as usize / 8;
            differs(at + first..at + end);
        }
    };
    let between = |old: &[u8; WORD], new: &[u8; WORD]| u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
    let mut in_words = |at: usize, old: &[[u8; WORD]], new: &[[u8; WORD]]| {
        for (i, (old, new)) in old.iter().zip(new).enumerate() {
            in_word(at + i * WORD, between(old, new));
        }
    };
    let ((old_runs, old_rest), (new_runs, new_rest)) = (old.as_chunks::<RUN>(), new.as_chunks::<RUN>());
    for (i, (old, new)) in old_runs.iter().zip(new_runs).enumerate() {
        // Most of a row stays as it is.
        if old != new {
            in_words(i * RUN, old.as_chunks().0, new.as_chunks().0);
        }
    }
    let (old_words, old_tail) = old_rest.as_chunks::<WORD>();
    let rest = old.len() - old_rest.len();
    in_words(rest, old_words, new_rest.as_chunks().0);
    if let (Some(old_last), Some(new_last)) = (old.last_chunk(), new.last_chunk()) {
        // Without the bytes that were in the words.
        let seen = 8 * (WORD - old_tail.len()) as u32;
        let difference = between(old_last, new_last).checked_shr(seen).unwrap_or(0);
        in_word(old.len() - old_tail.len(), difference);
    } else {
        for (at, (old, new)) in old.iter().zip(new).enumerate() {
            if old != new {
                differs(at..at + 1);
            }
        }
    }
    if let Some(last) = pending {
        report(last);
    }
}

#[cfg(test)]
mod tests;
