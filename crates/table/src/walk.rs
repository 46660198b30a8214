//! Walking through a range of a tree, a batch of rows at a time.

use crate::error::TableError;
use crate::range::KeyRange;
use crate::read_ahead::ReadAhead;
use firndb_btree::{Direction, Position, Tree, Visit};
use firndb_txn::{Course, Keep, RowBatch, RowHeader, Transaction};
use std::cell::Cell;
use std::cmp::Ordering;

/// Rows of the second batch. The first has one row, so that the first row of a range costs the copy
/// of one row; the third and later ones have what their leaf has, so that a long scan costs one
/// visit a leaf. A batch of 4 rows in between costs ten rows more than it saves five.
const SECOND: usize = 16;
/// How much larger each later batch of an index's entries is than the one before.
const ENTRIES_GROWTH: usize = 4;
/// Entries of a batch at most.
const ENTRIES_MAX: usize = 256;

/// In place of the number of rows returned, of a batch that is being read, or whose read has
/// failed: none of its rows counts, since it is read again.
const UNREAD: usize = usize::MAX;

thread_local! {
    /// The memory of the keys of the walk that this thread dropped last: short ranges are frequent.
    static SPARE: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}
/// Longer keys are not kept for the next walk.
const SPARE_BYTES_MAX: usize = 1 << 10;

/// A batch behind the one that a walk has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextBatch {
    First,
    Second,
}

/// Walks a range of one tree.
pub(crate) struct Walk {
    range: KeyRange,
    direction: Direction,
    /// Where the next batch is read from, if there is more.
    at: Position,
    more: bool,
    batch: RowBatch,
    /// Rows of the batch already returned; or [`UNREAD`].
    returned: usize,
    /// Most rows of the next batch.
    most: usize,
    /// They are entries of an index.
    is_index: bool,
    ahead: ReadAhead,
    /// Rows of the batches before this one.
    passed: usize,
    /// Key of the last row returned before this batch; meaningless if there was none.
    last: Vec<u8>,
    has_last: bool,
}

impl Walk {
    pub(crate) fn new(range: KeyRange, direction: Direction) -> Walk {
        let ahead = ReadAhead::of(&range, false);
        let (key, last) = SPARE.take();
        let (at, more) = (start(&range, direction, key), !range.is_empty());
        Walk {
            range,
            direction,
            at,
            more,
            batch: RowBatch::new(),
            returned: 0,
            most: 1,
            is_index: false,
            ahead,
            passed: 0,
            last,
            has_last: false,
        }
    }

    /// Of an index. The rows of a batch's entries are read together: as many as a leaf has would be
    /// hundreds of reads for a query that stops soon, so batches go on growing step by step.
    pub(crate) fn of_index(range: KeyRange, direction: Direction) -> Walk {
        let mut walk = Walk::new(range, direction);
        walk.is_index = true;
        walk
    }

    /// Whether the rows of an index's entries are read as well.
    pub(crate) fn is_for_rows(&mut self, is_for_rows: bool) {
        self.ahead.is_beside_rows = is_for_rows;
    }

    /// Whether it is background work.
    pub(crate) fn is_in_background(&mut self, is_in_background: bool) {
        self.ahead.is_in_background = is_in_background;
    }

    /// Whether [`Walk::advance`] has a row without reading.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        self.returned < self.batch.len()
    }

    /// Whether a key lies in the range walked through.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.range.place(key) == Ordering::Equal
    }

    /// Steps to the next row; false at the end. [`Walk::current`] shows it.
    pub(crate) fn advance(&mut self, txn: &mut Transaction, tree: &Tree) -> Result<bool, TableError> {
        self.advance_where(txn, tree, None)
    }

    /// As [`Walk::advance`], to the next row that `keep` accepts, which runs under a latch: see
    /// [`Transaction::scan_on`].
    pub(crate) fn advance_where(
        &mut self,
        txn: &mut Transaction,
        tree: &Tree,
        keep: Option<Keep<'_>>,
    ) -> Result<bool, TableError> {
        while !self.has_next() {
            self.remember();
            if !self.more {
                return Ok(false);
            }
            let to = match self.direction {
                Direction::Forward => self.range.high(),
                Direction::Backward => self.range.low(),
            };
            if self.ahead.visited > 0 {
                txn.check_cancelled()?;
            }
            let page_use = self.ahead.page_use(tree);
            let course = Course { direction: self.direction, to, most: self.most, page_use };
            self.passed += self.batch.len();
            // A failed read leaves the position as it was, so that the call can be made again.
            self.returned = UNREAD;
            self.more = txn.scan_on(tree, &mut self.at, course, keep, &mut self.batch)?;
            self.returned = 0;
            if self.batch.len() < self.most && self.more {
                self.ahead.step(tree, &self.at, to, self.direction);
            }
            self.most = self.after_batch();
        }
        self.step();
        Ok(true)
    }

    /// Most rows of the batch behind the one just read.
    fn after_batch(&self) -> usize {
        let unread = self.most - self.batch.len().min(self.most);
        match self.most {
            most if self.is_index && most > 1 => (ENTRIES_GROWTH * most).min(ENTRIES_MAX),
            // It ended with its leaf: a query that needs the rest needs no leaf more.
            2..=SECOND if unread > 0 => unread,
            1 => SECOND,
            _ => usize::MAX,
        }
    }

    /// Steps to the next row, which [`Walk::has_next`] has said to be there.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.returned += 1;
        debug_assert!(self.covers(self.current().0));
    }

    /// The row that the last [`Walk::advance`] stepped to.
    #[inline]
    pub(crate) fn current(&self) -> (&[u8], &[u8]) {
        self.batch.get(self.returned - 1).expect("advance() returned that there is a row")
    }

    /// The flag of that row.
    pub(crate) fn flag(&self) -> bool {
        self.batch.flag(self.returned - 1)
    }

    /// Whether [`Walk::advance`] has a row without reading, and without a flag.
    #[inline]
    pub(crate) fn has_plain_next(&self) -> bool {
        self.has_next() && !self.batch.flag(self.returned)
    }

    /// The rows of the present batch, and the number of the current one among them.
    pub(crate) fn batch(&self) -> (&RowBatch, usize) {
        (&self.batch, self.returned - 1)
    }

    /// Reverts the last [`Walk::advance`], for a row that could not be returned.
    pub(crate) fn step_back(&mut self) {
        assert!(self.returned > 0, "only a step that was made is taken back");
        self.returned -= 1;
    }

    /// Shows the entries of the next batch, and then those of the batch behind it, as they lie in
    /// their leaves, if these are in memory: of each at most as many as the walk has read. Hints:
    /// their rows need not be visible.
    pub(crate) fn peek(&self, tree: &Tree, mut show: impl FnMut(NextBatch, &[u8], &[u8])) {
        let mut from = self.more.then(|| self.at.clone());
        let most = self.most.min(self.passed + self.batch.len());
        for batch in [NextBatch::First, NextBatch::Second] {
            let Some(begin) = from else { return };
            let mut shown = 0;
            let next = tree.peek_leaf(&begin, self.direction, |key, value| {
                if shown == most || !self.covers(key) {
                    return Visit::Stop;
                }
                if let Ok((header, payload)) = RowHeader::split(value)
                    && !header.ghost
                {
                    show(batch, key, payload);
                    shown += 1;
                }
                Visit::Continue
            });
            // An error is met when the walk comes there.
            from = next.ok().flatten();
        }
    }

    /// Forgets the rows read ahead: continues right behind the last row that was returned.
    pub(crate) fn refresh(&mut self) {
        self.remember();
        self.at = match self.has_last {
            true => Position::Past(self.last.clone()),
            false => start(&self.range, self.direction, Vec::new()),
        };
        self.more = !self.range.is_empty();
        self.batch.clear();
        self.returned = 0;
        // A scan that is refreshed after each row would read each of them a leaf's rows at a time,
        // and its leaf as often as it comes past one.
        self.most = 1;
        self.ahead = ReadAhead::of(&self.range, self.ahead.is_beside_rows);
    }

    /// Copies the key of the last row returned, before its batch is replaced.
    fn remember(&mut self) {
        if (1..UNREAD).contains(&self.returned) {
            self.last.clear();
            self.last.extend_from_slice(self.batch.get(self.returned - 1).expect("it was returned").0);
            self.has_last = true;
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        let key = match std::mem::replace(&mut self.at, Position::Start) {
            Position::Start => Vec::new(),
            Position::At(key) | Position::Past(key) => key,
        };
        if key.capacity().max(self.last.capacity()) <= SPARE_BYTES_MAX {
            // A thread that is ending keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set((key, std::mem::take(&mut self.last))));
        }
    }
}

/// Where a walk through a range begins, in the memory of `key`.
fn start(range: &KeyRange, direction: Direction, mut key: Vec<u8>) -> Position {
    // `high` is the first key past the range: going backward the range begins past it.
    let bound = match direction {
        Direction::Forward => range.low(),
        Direction::Backward => range.high(),
    };
    let Some(bound) = bound else { return Position::Start };
    key.clear();
    key.extend_from_slice(bound);
    match direction {
        Direction::Forward => Position::At(key),
        Direction::Backward => Position::Past(key),
    }
}
