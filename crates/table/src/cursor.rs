//! Scans of a table.
//!
//! A cursor owns all it needs: a position (a key) and the visible rows of one leaf. Between calls
//! it holds no latch and no lock; it may be kept as long as its transaction. Under read committed
//! it is one statement, and keeps the snapshot of that from its first row to its end.

use crate::error::TableError;
use crate::range::KeyRange;
use crate::state::State;
use crate::table::Table;
use firndb_base::sync::Arc;
use firndb_btree::{Direction, Position, Tree};
use firndb_txn::{RowBatch, StatementView, Transaction, TxnToken};
use std::cmp::Ordering;

/// A key, and the bytes that belong to it.
pub type KeyAndValue<'a> = (&'a [u8], &'a [u8]);

/// Walks a range of one tree, a leaf at a time.
pub(crate) struct Walk {
    range: KeyRange,
    direction: Direction,
    /// Where the next leaf is read from; `None` at the end.
    from: Option<Position>,
    batch: RowBatch,
    /// Rows of the batch already returned.
    returned: usize,
    /// Key of the last row returned before this batch; meaningless if there was none.
    last: Vec<u8>,
    has_last: bool,
}

impl Walk {
    pub(crate) fn new(range: KeyRange, direction: Direction) -> Walk {
        let from = start(&range, direction);
        let (batch, last) = (RowBatch::new(), Vec::new());
        Walk { range, direction, from, batch, returned: 0, last, has_last: false }
    }

    /// Whether [`Walk::advance`] has a row without reading.
    pub(crate) fn has_next(&self) -> bool {
        self.returned < self.batch.len()
    }

    /// Whether a key lies in the range walked through.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.range.place(key) == Ordering::Equal
    }

    /// Steps to the next row; false at the end. [`Walk::current`] shows it.
    pub(crate) fn advance(&mut self, txn: &mut Transaction, tree: &Tree) -> Result<bool, TableError> {
        loop {
            if self.has_next() {
                self.returned += 1;
                debug_assert!(self.covers(self.current().0));
                return Ok(true);
            }
            self.remember();
            let Some(from) = &self.from else { return Ok(false) };
            let end = match self.direction {
                Direction::Forward => self.range.high(),
                Direction::Backward => self.range.low(),
            };
            // A failed read leaves the position as it was, so that the call can be made again.
            self.batch.clear();
            self.returned = 0;
            self.from = txn.scan(tree, from, end, self.direction, &mut self.batch)?;
        }
    }

    /// The row that the last [`Walk::advance`] stepped to.
    pub(crate) fn current(&self) -> (&[u8], &[u8]) {
        self.batch.get(self.returned - 1).expect("advance() returned that there is a row")
    }

    /// The flag of that row.
    pub(crate) fn flag(&self) -> bool {
        self.batch.flag(self.returned - 1)
    }

    /// Reverts the last [`Walk::advance`], for a row that could not be returned.
    pub(crate) fn step_back(&mut self) {
        assert!(self.returned > 0, "only a step that was made is taken back");
        self.returned -= 1;
    }

    /// Forgets the rows read ahead, and how far the leaf of the last row went: continues right
    /// behind the last row that was returned.
    pub(crate) fn refresh(&mut self) {
        self.remember();
        self.from = if self.has_last {
            Some(Position::Past(self.last.clone()))
        } else {
            start(&self.range, self.direction)
        };
        self.batch.clear();
        self.returned = 0;
    }

    /// Copies the key of the last row returned, before its batch is replaced.
    fn remember(&mut self) {
        if self.returned > 0 {
            self.last.clear();
            self.last.extend_from_slice(self.batch.get(self.returned - 1).expect("it was returned").0);
            self.has_last = true;
        }
    }
}

/// Where a walk begins; `None` if there is nothing to walk through.
fn start(range: &KeyRange, direction: Direction) -> Option<Position> {
    let bound = match direction {
        Direction::Forward => range.low().map(|low| Position::At(low.to_vec())),
        // `high` is the first key past the range: going backward the range begins past it.
        Direction::Backward => range.high().map(|high| Position::Past(high.to_vec())),
    };
    (!range.is_empty()).then(|| bound.unwrap_or(Position::Start))
}

/// What a cursor is to its transaction: one statement.
#[derive(Default)]
pub(crate) struct CursorStatement {
    /// The transaction that the cursor is used with.
    owner: Option<TxnToken>,
    /// What it sees.
    pub(crate) view: StatementView,
}

impl CursorStatement {
    /// Refuses any transaction but the first one.
    pub(crate) fn belongs_to(&mut self, txn: &Transaction) -> Result<(), TableError> {
        if *self.owner.get_or_insert(txn.token()) == txn.token() {
            return Ok(());
        }
        Err(TableError::bad_argument(
            "the cursor belongs to the transaction that it was first used with; refresh it to go on with another",
        ))
    }

    /// Reads on; at the end of the walk, nothing is kept for the cursor any more.
    pub(crate) fn advance(
        &mut self,
        txn: &mut Transaction,
        walk: &mut Walk,
        tree: &Tree,
    ) -> Result<bool, TableError> {
        if walk.has_next() {
            return walk.advance(txn, tree);
        }
        let more = txn.in_statement(&mut self.view, |txn| walk.advance(txn, tree))?;
        if !more {
            self.view = StatementView::default();
        }
        Ok(more)
    }
}

impl Table {
    /// Rows of a range of keys, in their order or against it.
    #[must_use]
    pub fn scan(&self, range: KeyRange, direction: Direction) -> Cursor {
        Cursor::new(self.clone(), range, direction)
    }
}

/// Rows of a range of a table, in the order of their keys or against it.
///
/// Rows are read a leaf at a time: a row shows what the transaction saw when its leaf was read. A
/// transaction that writes *ahead* of its own cursor and wants to see that calls
/// [`Cursor::refresh`]. A cursor belongs to the transaction that it was first used with; to use it
/// with another, refresh it.
///
/// Under read committed all rows are as they were when the first one was read (but for what the
/// transaction itself writes). Versions that others replace are kept for the cursor until it has
/// reached its end, is refreshed or dropped.
pub struct Cursor {
    table: Table,
    walk: Walk,
    for_update: bool,
    row: Vec<u8>,
    statement: CursorStatement,
}

impl Cursor {
    pub(crate) fn new(table: Table, range: KeyRange, direction: Direction) -> Cursor {
        let (walk, statement) = (Walk::new(range, direction), CursorStatement::default());
        Cursor { table, walk, for_update: false, row: Vec::new(), statement }
    }

    /// The same cursor, locking every row that it returns (see [`Table::get_for_update`]).
    #[must_use]
    pub fn for_update(self) -> Cursor {
        Cursor { for_update: true, ..self }
    }

    /// The next row: its key and value, borrowed until the next call. `None` at the end.
    ///
    /// After an error the cursor stands where it stood before.
    ///
    /// Errors: `BadArgument` if the cursor belongs to another transaction; those of reads.
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<KeyAndValue<'_>>, TableError> {
        let state: Arc<State> = self.table.state_for(txn)?;
        self.statement.belongs_to(txn)?;
        loop {
            if !self.statement.advance(txn, &mut self.walk, &state.tree)? {
                return Ok(None);
            }
            let (key, stored) = self.walk.current();
            let found = if self.for_update {
                // The newest version: under read committed the row may have been deleted since the
                // cursor's snapshot.
                state.get_for_update(txn, key, &mut self.row)
            } else if self.walk.flag() {
                let (view, row) = (&mut self.statement.view, &mut self.row);
                txn.in_statement(view, |txn| state.get_stored_large(txn, key, stored, row))
            } else {
                return Ok(Some(self.walk.current()));
            };
            match found {
                Ok(true) => return Ok(Some((self.walk.current().0, &self.row))),
                Ok(false) => {}
                Err(error) => {
                    self.walk.step_back();
                    return Err(error);
                }
            }
        }
    }

    /// Forgets the rows read ahead, and the snapshot they were read by: the next one is read again.
    pub fn refresh(&mut self) {
        self.walk.refresh();
        self.statement = CursorStatement::default();
    }

    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }
}
