//! Rows found through an index, in the order of their places in the table.
//!
//! Entries are collected as memory allows and sorted by primary key, so that each leaf of the table
//! is read once for all of them, and leaves are read together: a bitmap heap scan, for clustered
//! tables.
//!
//! A fetch may go over to a scan of the table. It counts the entries that it meets; once there are
//! more than those up to which fetching their rows is cheaper than a scan, it fetches none of the
//! rows that are left, and a scan finds them. Most often that is before any row was read: a list of
//! keys takes as many as memory allows.

use crate::arena::{Arena, Place};
use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::fetch::Fetch;
use crate::memory::Reservation;
use crate::operator::Operator;
use crate::plan::OrScan;
use crate::rest_scan::RestScan;
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
    /// Entries met.
    met: u64,
    /// The key of the last entry of the present list, and of the last one of all lists before it.
    last: Vec<u8>,
    passed: Option<Vec<u8>>,
    or_scan: Option<Box<MayScan>>,
    rest: Option<RestScan>,
}

/// What a fetch that may go over to a scan needs for that.
struct MayScan {
    or_scan: OrScan,
    source: Source,
    index: Index,
    range: KeyRange,
}

/// What came of a look for more rows.
enum More {
    Rows,
    End,
    /// There are too many entries.
    Scan,
}

impl IndexFetch {
    pub(crate) fn new(
        source: Source,
        index: &Index,
        range: KeyRange,
        or_scan: Option<OrScan>,
        context: &Context,
    ) -> IndexFetch {
        let may_scan = |or_scan| {
            let (source, index, range) = (source.clone(), index.clone(), range.clone());
            Box::new(MayScan { or_scan, source, index, range })
        };
        IndexFetch {
            or_scan: or_scan.map(may_scan),
            cursor: index.scan(range, Direction::Forward),
            keys: KeyList::new(context),
            fetch: Fetch::new(SourceReader::new(source), context),
            from: 0,
            count: 0,
            returned: 0,
            met: 0,
            last: Vec::new(),
            passed: None,
            rest: None,
        }
    }

    /// Reads the rows of the next keys, and if need be the next entries.
    fn read_on(&mut self, txn: &mut Transaction, context: &Context) -> Result<More, QueryError> {
        (self.from, self.returned) = (self.from + self.count, 0);
        self.count = 0;
        if self.from == self.keys.len() {
            self.from = 0;
            self.keys.clear();
            let most = self.or_scan.as_ref().map_or(u64::MAX, |may| may.or_scan.entries);
            if self.met > 0 {
                // The rows of the list before were all returned.
                self.passed = Some(self.last.clone());
            }
            while self.keys.has_space(context)
                && let Some((key, primary_key)) = self.cursor.next_entry(txn)?
            {
                self.met += 1;
                if self.met > most {
                    return Ok(More::Scan);
                }
                key.clone_into(&mut self.last);
                self.keys.push(primary_key)?;
                if self.keys.len().is_multiple_of(1024) {
                    context.check(txn)?;
                }
            }
            self.keys.sort();
            let keys = self.keys.len();
            context.work.add(|counts| counts.entries += keys as u64);
            context.work.add_sorted(keys);
        }
        let count = self.fetch.keys_max(context).min(self.keys.len() - self.from);
        if count == 0 {
            return Ok(More::End);
        }
        let keys: Vec<&[u8]> = (self.from..self.from + count).map(|number| self.keys.get(number)).collect();
        self.count = self.fetch.read(txn, context, &keys)?;
        Ok(More::Rows)
    }

    /// Goes over to a scan of what is left.
    fn go_over(&mut self, context: &Context) {
        self.keys.clear();
        let MayScan { or_scan, source, index, range } = *self.or_scan.take().expect("it may");
        let passed = self.passed.take();
        self.rest = Some(RestScan::new(source, (index, range), or_scan.range, passed, context));
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
            if let Some(rest) = &mut self.rest {
                rest.fill(txn, context, out)?;
                break;
            }
            if self.returned == self.count {
                match self.read_on(txn, context)? {
                    More::Rows => {}
                    More::End => break,
                    More::Scan => {
                        self.go_over(context);
                        continue;
                    }
                }
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
