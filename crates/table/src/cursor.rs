//! Scans of a table.
//!
//! A cursor owns all it needs: a position (a key) and a batch of visible rows, of one leaf at most.
//! Between calls it holds no latch and no lock; it may be kept as long as its transaction. Under
//! read committed it is one statement, and keeps the snapshot of that from its first row to its
//! end.

use crate::error::TableError;
use crate::range::KeyRange;
use crate::state::State;
use crate::table::Table;
use crate::walk::Walk;
use firndb_btree::{Direction, Tree};
use firndb_txn::{Keep, StatementView, Transaction, TxnToken};

/// A key, and the bytes that belong to it.
pub type KeyAndValue<'a> = (&'a [u8], &'a [u8]);

/// What a cursor is to its transaction: one statement.
#[derive(Default)]
pub(crate) struct CursorStatement {
    /// The transaction that the cursor is used with.
    owner: Option<TxnToken>,
    /// What it sees.
    pub(crate) view: StatementView,
}

impl CursorStatement {
    /// Whether [`CursorStatement::belongs_to`] has accepted this transaction before.
    #[inline]
    fn is_of(&self, txn: &Transaction) -> bool {
        self.owner == Some(txn.token())
    }

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
        keep: Option<Keep<'_>>,
    ) -> Result<bool, TableError> {
        if walk.has_next() {
            return walk.advance_where(txn, tree, keep);
        }
        let more = txn.in_statement(&mut self.view, |txn| walk.advance_where(txn, tree, keep))?;
        if !more {
            self.view = StatementView::default();
        }
        Ok(more)
    }

    /// As [`CursorStatement::advance`], keeping the statement's snapshot at the end: rows are still
    /// to be read by it.
    pub(crate) fn advance_within(
        &mut self,
        txn: &mut Transaction,
        walk: &mut Walk,
        tree: &Tree,
    ) -> Result<bool, TableError> {
        if walk.has_next() {
            return walk.advance(txn, tree);
        }
        txn.in_statement(&mut self.view, |txn| walk.advance(txn, tree))
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
/// Rows are read in batches, of 1 and 16 rows and then of a leaf: a row shows what the
/// transaction saw when its batch was read. A transaction that writes *ahead* of its own cursor and
/// wants to see that calls [`Cursor::refresh`]. A cursor belongs to the transaction that it was
/// first used with; to use it with another, refresh it.
///
/// Under read committed all rows are as they were when the first one was read (but for what the
/// transaction itself writes). Versions that others replace are kept for the cursor until it has
/// reached its end, is refreshed or dropped.
pub struct Cursor {
    table: Table,
    walk: Walk,
    for_update: bool,
    keep: Option<Box<Filter>>,
    row: Vec<u8>,
    statement: CursorStatement,
}

/// Where the row lies that a cursor has stepped to.
enum Found {
    /// In the walk's batch.
    InBatch,
    /// In the cursor's `row`, its key in the batch.
    Apart,
}

/// Chooses rows by key and value.
type Filter = dyn Fn(&[u8], &[u8]) -> bool + Send + Sync;

impl Cursor {
    pub(crate) fn new(table: Table, range: KeyRange, direction: Direction) -> Cursor {
        let (walk, statement) = (Walk::new(range, direction), CursorStatement::default());
        Cursor { table, walk, for_update: false, keep: None, row: Vec::new(), statement }
    }

    /// The same cursor, locking every row that it returns (see [`Table::get_for_update`]).
    #[must_use]
    pub fn for_update(self) -> Cursor {
        Cursor { for_update: true, ..self }
    }

    /// The same cursor, returning only the rows for which `keep` holds, besides those of earlier
    /// calls. It is asked where the row lies, before anything is copied, with a latch held and
    /// perhaps more than once: it must depend on its arguments alone, and neither block nor use the
    /// database.
    #[must_use]
    pub fn filter(self, keep: impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static) -> Cursor {
        let keep: Box<Filter> = match self.keep {
            None => Box::new(keep),
            Some(before) => Box::new(move |key, row| before(key, row) && keep(key, row)),
        };
        Cursor { keep: Some(keep), ..self }
    }

    /// The next row: its key and value, borrowed until the next call. `None` at the end.
    ///
    /// After an error the cursor stands where it stood before.
    ///
    /// Errors: `BadArgument` if the cursor belongs to another transaction; those of reads.
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<KeyAndValue<'_>>, TableError> {
        if self.step_in_batch(txn) {
            return Ok(Some(self.current()));
        }
        let (state, changed) = self.table.shared.take_state(txn)?;
        let found = self.read_next(txn, &state);
        self.table.shared.keep_state(txn, state, changed);
        Ok(match found? {
            Some(Found::InBatch) => Some(self.current()),
            Some(Found::Apart) => Some((self.current().0, &self.row)),
            None => None,
        })
    }

    /// Steps to the next row that is to be returned.
    fn read_next(&mut self, txn: &mut Transaction, state: &State) -> Result<Option<Found>, TableError> {
        self.statement.belongs_to(txn)?;
        let Cursor { walk, keep, row, statement, .. } = self;
        // A large value is not where its row lies.
        let keep_now = keep
            .as_ref()
            .map(|keep| move |key: &[u8], row: &[u8], is_large: bool| is_large || keep(key, row));
        loop {
            let keep_now = keep_now.as_ref().map(|keep| keep as Keep<'_>);
            if !statement.advance(txn, walk, &state.tree, keep_now)? {
                return Ok(None);
            }
            let (key, stored) = walk.current();
            let found = if self.for_update {
                // The newest version: under read committed the row may have been deleted since the
                // cursor's snapshot.
                state.get_for_update(txn, key, row)
            } else if walk.flag() {
                txn.in_statement(&mut statement.view, |txn| state.get_stored_large(txn, key, stored, row))
            } else {
                return Ok(Some(Found::InBatch));
            };
            match found {
                Ok(true) if keep.as_ref().is_none_or(|keep| keep(key, row)) => {
                    return Ok(Some(Found::Apart));
                }
                Ok(_) => {}
                Err(error) => {
                    walk.step_back();
                    return Err(error);
                }
            }
        }
    }

    /// Steps to the next row, as [`Cursor::next`] does, if it was read with the one before and can
    /// be returned as it was read; else false, and [`Cursor::next`] is to be called. Then
    /// [`Cursor::current`] is the row. For callers that return many rows: it is a few
    /// instructions.
    #[inline]
    pub fn step_in_batch(&mut self, txn: &Transaction) -> bool {
        let steps = self.walk.has_plain_next()
            && !self.for_update
            && self.statement.is_of(txn)
            && self.table.shared.is_usable_by(txn);
        if steps {
            self.walk.step();
        }
        steps
    }

    /// The row that [`Cursor::step_in_batch`] stepped to.
    #[inline]
    #[must_use]
    pub fn current(&self) -> KeyAndValue<'_> {
        self.walk.current()
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
