//! Rows found through an index, in the order of their places in the table.
//!
//! Entries are collected as memory allows and sorted by primary key, so that each leaf of the table
//! is read once for all of them, and leaves are read together: a bitmap heap scan, for clustered
//! tables.

use crate::arena::{Arena, Place};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::fetch::Fetch;
use crate::memory::Reservation;
use crate::operator::Operator;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_table::{Index, IndexCursor, KeyRange};
use firndb_txn::Transaction;

pub(crate) struct IndexFetch {
    cursor: IndexCursor,
    keys: KeyList,
    fetch: Fetch,
    /// Keys of the present read: from this number on, as many.
    from: usize,
    count: usize,
    /// Of those, how many were returned.
    returned: usize,
}

impl IndexFetch {
    pub(crate) fn new(source: Source, index: &Index, range: KeyRange, context: &Context) -> IndexFetch {
        IndexFetch {
            cursor: index.scan(range, Direction::Forward),
            keys: KeyList::new(context),
            fetch: Fetch::new(SourceReader::new(source), context),
            from: 0,
            count: 0,
            returned: 0,
        }
    }

    /// Reads the rows of the next keys, and if need be the next entries; false at the end.
    fn read_on(&mut self, txn: &mut Transaction, context: &Context) -> Result<bool, QueryError> {
        (self.from, self.returned) = (self.from + self.count, 0);
        self.count = 0;
        if self.from == self.keys.len() {
            self.from = 0;
            self.keys.clear();
            while self.keys.has_space(context)
                && let Some((_, primary_key)) = self.cursor.next_entry(txn)?
            {
                self.keys.push(primary_key)?;
                if self.keys.len().is_multiple_of(1024) {
                    context.check(txn)?;
                }
            }
            self.keys.sort();
        }
        let count = self.fetch.keys_max(context).min(self.keys.len() - self.from);
        if count == 0 {
            return Ok(false);
        }
        let keys: Vec<&[u8]> = (self.from..self.from + count).map(|number| self.keys.get(number)).collect();
        self.count = self.fetch.read(txn, context, &keys)?;
        Ok(true)
    }
}

impl Operator for IndexFetch {
    fn next(
        &mut self,
        txn: &mut Transaction,
        context: &Context,
        out: &mut Batch,
    ) -> Result<bool, QueryError> {
        while !out.is_full() {
            if self.returned == self.count && !self.read_on(txn, context)? {
                break;
            }
            let key = self.keys.get(self.from + self.returned);
            if let Some(row) = self.fetch.row(self.returned, key)? {
                out.push_built(row)?;
            }
            self.returned += 1;
        }
        Ok(!out.is_empty())
    }
}

/// Keys in memory: as many as half of an operator's share holds, and one at least.
pub(crate) struct KeyList {
    arena: Arena,
    places: Vec<Place>,
    reserved: Reservation,
}

impl KeyList {
    pub(crate) fn new(context: &Context) -> KeyList {
        KeyList {
            arena: Arena::new(&context.memory, context.share / 2),
            places: Vec::new(),
            reserved: Reservation::none(&context.memory),
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        self.arena.get(self.places[number])
    }
    pub(crate) fn has_space(&self, context: &Context) -> bool {
        // The list of places may double, by copying.
        self.places.is_empty()
            || self.arena.bytes() + 3 * self.places.len() * size_of::<Place>() < context.share / 2
    }
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<(), QueryError> {
        self.reserved.grow(&mut self.places, 1)?;
        self.places.push(self.arena.push(&[key])?);
        Ok(())
    }
    pub(crate) fn sort(&mut self) {
        let arena = &self.arena;
        self.places.sort_unstable_by(|a, b| arena.get(*a).cmp(arena.get(*b)));
    }
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.places.clear();
    }
}
