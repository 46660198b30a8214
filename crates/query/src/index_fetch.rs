//! Rows found through an index, in the order of their places in the table.
//!
//! Entries are collected as memory allows and sorted by primary key, so that each leaf of the table
//! is read once for all of them, and leaves are read together: a bitmap heap scan, for clustered
//! tables.
//!
//! A fetch may turn out to be a scan of the table. Before it reads any row it counts the entries,
//! up to those from which on a scan is cheaper. Keys for which there is no memory are counted and
//! forgotten, and read again later: entries cost little beside rows, and rows that were fetched
//! would be read once more by the scan.

use crate::batch::Batch;
use crate::context::Context;
use crate::error::QueryError;
use crate::fetch::Fetch;
use crate::operator::Operator;
use crate::plan::OrScan;
use crate::range_scan::RangeScan;
use crate::source::{Source, SourceReader};
use firndb_btree::Direction;
use firndb_spill::Reservation;
use firndb_spill::{Arena, Place};
use firndb_table::{Index, IndexCursor, KeyRange};
use firndb_txn::Transaction;
use std::ops::Bound;

pub(crate) struct IndexFetch {
    cursor: IndexCursor,
    keys: KeyList,
    fetch: Fetch,
    /// Keys of the present read: from this number on, as many.
    from: usize,
    count: usize,
    /// Of those, how many were returned.
    returned: usize,
    /// Until it is known which of both it is.
    or_scan: Option<Box<MayScan>>,
    scan: Option<RangeScan>,
}

/// What a fetch that may be a scan needs for that.
struct MayScan {
    or_scan: OrScan,
    source: Source,
    index: Index,
    range: KeyRange,
}

/// The part of a share that each of its two lists has, if it has no share of its own.
const OF_SHARE: usize = 16;

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
        let has_share = or_scan.as_ref().is_none_or(|or_scan| or_scan.has_share);
        let most = context.share / if has_share { 2 } else { OF_SHARE };
        IndexFetch {
            or_scan: or_scan.map(may_scan),
            cursor: index.scan(range, Direction::Forward),
            keys: KeyList::new(most, context),
            fetch: Fetch::new(SourceReader::new(source), most, context),
            from: 0,
            count: 0,
            returned: 0,
            scan: None,
        }
    }

    /// Reads the rows of the next keys, and if need be the next entries.
    fn read_on(&mut self, txn: &mut Transaction, context: &Context) -> Result<More, QueryError> {
        (self.from, self.returned) = (self.from + self.count, 0);
        self.count = 0;
        if self.from == self.keys.len() {
            self.from = 0;
            self.keys.clear();
            let most = self.or_scan.as_ref().map_or(u64::MAX, |may_scan| may_scan.or_scan.entries);
            while self.keys.len() as u64 <= most
                && self.keys.has_space()
                && let Some((_, primary_key)) = self.cursor.next_entry(txn)?
            {
                self.keys.push(primary_key)?;
                if self.keys.len().is_multiple_of(1024) {
                    context.check(txn)?;
                }
            }
            let keys = self.keys.len();
            context.work.add(|counts| counts.entries += keys as u64);
            if let Some(may_scan) = self.or_scan.take()
                && self.has_more_than(may_scan.or_scan.entries, &may_scan, txn, context)?
            {
                self.keys.clear();
                let MayScan { or_scan, source, index, range } = *may_scan;
                self.scan = Some(RangeScan::new(source, (index, range), or_scan.range, context));
                return Ok(More::Scan);
            }
            self.keys.sort();
            context.work.add_sorted(keys);
        }
        let count = self.fetch.keys_max().min(self.keys.len() - self.from);
        if count == 0 {
            return Ok(More::End);
        }
        let keys: Vec<&[u8]> = (self.from..self.from + count).map(|number| self.keys.get(number)).collect();
        self.count = self.fetch.read(txn, context, &keys)?;
        Ok(More::Rows)
    }

    /// Whether there are more entries than these. The cursor stays behind the list of keys.
    fn has_more_than(
        &mut self,
        most: u64,
        may_scan: &MayScan,
        txn: &mut Transaction,
        context: &Context,
    ) -> Result<bool, QueryError> {
        let listed = self.keys.len() as u64;
        if listed > most || self.keys.has_space() {
            return Ok(listed > most);
        }
        let Some((next, _)) = self.cursor.next_entry(txn)? else { return Ok(false) };
        let next = next.to_vec();
        let mut met = listed + 1;
        while met <= most && self.cursor.next_entry(txn)?.is_some() {
            met += 1;
            if met.is_multiple_of(1024) {
                context.check(txn)?;
            }
        }
        context.work.add(|counts| counts.entries += met - listed);
        let MayScan { index, range, .. } = may_scan;
        let high = range.high().map_or(Bound::Unbounded, Bound::Excluded);
        self.cursor = index.scan(KeyRange::new(Bound::Included(&next), high), Direction::Forward);
        #[cfg(feature = "testing")]
        if crate::broken::is(crate::broken::Break::ListReadAgain) {
            self.cursor = index.scan(range.clone(), Direction::Forward);
        }
        Ok(met > most)
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
            if let Some(scan) = &mut self.scan {
                scan.fill(txn, context, out)?;
                break;
            }
            if self.returned == self.count {
                match self.read_on(txn, context)? {
                    More::Rows => {}
                    More::End => break,
                    More::Scan => continue,
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

/// Keys in memory: as many as these bytes hold, and one at least.
struct KeyList {
    most: usize,
    arena: Arena,
    places: Vec<Place>,
    reserved: Reservation,
}

impl KeyList {
    fn new(most: usize, context: &Context) -> KeyList {
        KeyList {
            most,
            arena: Arena::new(&context.memory, most),
            places: Vec::new(),
            reserved: Reservation::none(&context.memory),
        }
    }
    fn len(&self) -> usize {
        self.places.len()
    }
    fn get(&self, number: usize) -> &[u8] {
        self.arena.get(self.places[number])
    }
    fn has_space(&self) -> bool {
        // The list of places may double, by copying.
        self.places.is_empty() || self.arena.bytes() + 3 * self.places.len() * size_of::<Place>() < self.most
    }
    fn push(&mut self, key: &[u8]) -> Result<(), QueryError> {
        self.reserved.grow(&mut self.places, 1)?;
        self.places.push(self.arena.push(&[key])?);
        Ok(())
    }
    fn sort(&mut self) {
        let arena = &self.arena;
        self.places.sort_unstable_by(|a, b| arena.get(*a).cmp(arena.get(*b)));
    }
    fn clear(&mut self) {
        self.arena.clear();
        self.places.clear();
    }
}
