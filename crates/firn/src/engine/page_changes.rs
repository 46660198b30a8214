//! The pending changes of one page, encoded as recovery collects them and redo applies them.

use firndb_base::Lsn;
use firndb_base::codec::{Reader, Writer};
use firndb_btree::PageChange;
use firndb_log::{Kind, Record};

/// Approximate memory of a page's entry beside its bytes.
pub(crate) const PAGE_OVERHEAD: usize = 128;

/// The changes of one page, as bytes: LSN u64, kind u8, length varint and body of each.
#[derive(Debug)]
pub(crate) struct PageChanges {
    pub first: Lsn,
    pub last: Lsn,
    pub bytes: Vec<u8>,
    /// Whether the changes are in the log only, and no bytes here.
    pub in_log: bool,
    /// Whether they were read from the log while transactions ran.
    pub fetched: bool,
}

impl PageChanges {
    pub fn new(first: Lsn) -> PageChanges {
        PageChanges { first, last: first, bytes: Vec::new(), in_log: false, fetched: false }
    }

    /// For a page whose redo before the opening's end failed.
    pub fn in_log(first: Lsn, last: Lsn) -> PageChanges {
        PageChanges { in_log: true, last, ..PageChanges::new(first) }
    }

    pub fn push(&mut self, lsn: Lsn, kind: Kind, change: &PageChange<'_>) {
        debug_assert!(self.last <= lsn, "changes are in the order of their LSNs");
        self.last = lsn;
        let mut body = Vec::new();
        change.encode_for_redo(&mut body);
        self.bytes.put_u64(lsn.0);
        self.bytes.put_u8(kind.0);
        self.bytes.put_blob(&body);
    }

    pub fn size(&self) -> usize {
        PAGE_OVERHEAD + self.bytes.len()
    }

    /// Takes the first change from `reader`.
    pub fn next<'a>(reader: &mut Reader<'a>) -> Option<(Lsn, Record<'a>)> {
        if reader.is_empty() {
            return None;
        }
        let mut read =
            || Ok::<_, firndb_base::codec::Malformed>((reader.u64()?, reader.u8()?, reader.blob()?));
        let (lsn, kind, body) = read().expect("written by `push`");
        Some((Lsn(lsn), Record { kind: Kind(kind), body }))
    }

    /// Drops the changes up to and including `lsn`; returns whether any are left.
    pub fn forget_to(&mut self, lsn: Lsn) -> bool {
        if self.last <= lsn {
            return false;
        }
        let mut reader = Reader::new(&self.bytes);
        let mut kept = reader;
        while let Some((first, _)) = PageChanges::next(&mut reader) {
            if first > lsn {
                self.first = first;
                break;
            }
            kept = reader;
        }
        self.bytes.drain(..self.bytes.len() - kept.rest().len());
        true
    }
}
