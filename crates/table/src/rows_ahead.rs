//! The rows that a cursor over an index will ask for next.
//!
//! While the rows of one batch of entries are read, the readers bring in the leaves of the table
//! that hold those of the next batch, and the nodes above the leaves of the one behind it, so that
//! the device does not wait for the walk. The entries are looked at where they lie, if their leaves
//! are in memory: visible or not, they are a hint. At most as many rows are asked for as the cursor
//! has come past, and none as long as all are in memory.

use crate::walk::{NextBatch, Walk};
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_btree::Tree;
use firndb_buffer::PageUse;

/// Keys, one behind the other.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }
    fn sorted(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let mut keys: Vec<&[u8]> =
            starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start..*end]).collect();
        keys.sort_unstable();
        keys
    }
}

/// What is asked for ahead of a cursor.
#[derive(Default)]
pub(crate) struct RowsAhead {
    /// Primary keys of the next batch, and of the one behind it.
    first: Keys,
    second: Keys,
    pages: Vec<PageId>,
    /// The pool's misses when the rows before were about to be read; `None`: these are the first.
    misses: Option<u64>,
    /// Some of those rows had to be read, or were asked for ahead.
    is_missing: bool,
    /// Pages were asked for.
    asked: bool,
}

impl RowsAhead {
    /// Before the rows of a batch are read: asks for those of the next one. `primary_key` finds it
    /// in an entry.
    pub(crate) fn ask(
        &mut self,
        walk: &Walk,
        index: &Tree,
        table: &Tree,
        primary_key: impl for<'a> Fn(&'a [u8], &'a [u8]) -> Result<&'a [u8], Malformed>,
    ) {
        let misses = table.pool().misses();
        let before = self.misses.replace(misses).unwrap_or(misses);
        self.is_missing = before != misses || std::mem::take(&mut self.asked);
        if !self.is_missing {
            return;
        }
        let RowsAhead { first, second, pages, .. } = self;
        first.clear();
        second.clear();
        walk.peek(index, |batch, key, value| {
            if let Ok(primary_key) = primary_key(key, value) {
                match batch {
                    NextBatch::First => first.push(primary_key),
                    NextBatch::Second => second.push(primary_key),
                }
            }
        });
        // Errors are met where the rows are read.
        pages.clear();
        if table.leaves(&first.sorted(), pages).is_ok() {
            self.asked = table.pool().read_ahead(pages, PageUse::Working) > 0;
        }
        pages.clear();
        if table.parents(&second.sorted(), pages).is_ok() {
            table.pool().read_ahead_first(pages);
        }
    }

    /// Then, if its rows are to be read one by one: brings their leaves in together, if the rows
    /// before were not all in memory.
    pub(crate) fn bring_in(&mut self, table: &Tree, keys: &[&[u8]]) {
        if !self.is_missing {
            return;
        }
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        self.pages.clear();
        if table.leaves(&keys, &mut self.pages).is_ok() {
            table.pool().bring_in(&self.pages, PageUse::Working);
        }
    }
}
