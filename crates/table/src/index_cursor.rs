//! Rows through an index.
//!
//! Entries come in the batches of their walk, and the rows of a batch are read together, by the
//! statement's snapshot. Which rows are returned does not depend on that: a row is read alone, when
//! it is returned, if it is read for update or under serializable isolation (which lock it), if a
//! row of the batch could not be read, and once the transaction has written since.

use crate::cursor::{CursorStatement, KeyAndValue};
use crate::error::TableError;
use crate::index::Entry;
use crate::index_handle::Index;
use crate::live_index::LiveIndex;
use crate::range::KeyRange;
use crate::rows::Rows;
use crate::rows_ahead::RowsAhead;
use crate::state::State;
use crate::walk::Walk;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_txn::{Isolation, StatementView, Transaction};

/// One row found through an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRow<'a> {
    /// The entry's key: the index columns, and in most indexes the primary key behind them.
    pub index_key: &'a [u8],
    /// The row's primary key.
    pub primary_key: &'a [u8],
    pub row: &'a [u8],
}

impl Index {
    /// Rows whose index keys lie in a range, in the order of the index or against it.
    #[must_use]
    pub fn scan(&self, range: KeyRange, direction: Direction) -> IndexCursor {
        IndexCursor {
            index: self.clone(),
            walk: Walk::of_index(range, direction),
            rows: RowReader::default(),
            statement: CursorStatement::default(),
        }
    }
}

/// Rows in the order of an index. Reads as [`crate::cursor::Cursor`] does.
pub struct IndexCursor {
    index: Index,
    walk: Walk,
    rows: RowReader,
    statement: CursorStatement,
}

impl IndexCursor {
    /// The same cursor, locking every row that it returns.
    #[must_use]
    pub fn for_update(mut self) -> IndexCursor {
        self.rows.for_update = true;
        self
    }

    /// The same rows, in no particular order: each page of the table is read once for all rows of
    /// some hundred entries. Of a cursor that has returned no row.
    #[must_use]
    pub fn unordered(self) -> UnorderedIndexCursor {
        UnorderedIndexCursor {
            cursor: self,
            entries: Entries::default(),
            order: Vec::new(),
            returned: 0,
            most: ENTRIES_FIRST,
        }
    }

    /// The next row, borrowed until the next call. `None` at the end.
    ///
    /// An entry whose row this transaction itself has deleted or changed since the entry's leaf was
    /// read is skipped. A cursor for update delivers the newest version of the row; under read
    /// committed that may differ from the one that the scan saw, and is delivered if its own entry
    /// lies in the range, else skipped.
    ///
    /// Errors: as [`crate::cursor::Cursor::next`].
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<IndexRow<'_>>, TableError> {
        let (state, changed) = self.index.table.shared.take_state(txn)?;
        let found = self.read_next(txn, &state);
        let found = found.and_then(|found| found.then(|| self.current(&state)).transpose());
        self.index.table.shared.keep_state(txn, state, changed);
        found
    }

    /// Steps to the next row that is to be returned; false at the end.
    fn read_next(&mut self, txn: &mut Transaction, state: &State) -> Result<bool, TableError> {
        let index = self.index.live(state)?;
        index.check_readable(txn)?;
        self.statement.belongs_to(txn)?;
        let IndexCursor { index: handle, walk, rows, statement } = self;
        let (spec, kind) = (&index.definition.spec, state.kind());
        loop {
            let is_new = !walk.has_next();
            walk.is_for_rows(true);
            if !statement.advance(txn, walk, &index.tree, None)? {
                return Ok(false);
            }
            if is_new {
                rows.ahead
                    .ask(walk, &index.tree, &state.tree, |key, value| spec.primary_key(kind, key, value));
                let (batch, _) = walk.batch();
                // An entry that is damaged is met when its row is to be returned.
                let keys: Result<Vec<&[u8]>, _> =
                    batch.iter().map(|(key, value)| spec.primary_key(kind, key, value)).collect();
                rows.read_together(txn, state, &mut statement.view, &keys.unwrap_or_default());
            }
            let (key, value) = walk.current();
            let found = spec.primary_key(kind, key, value).map_err(TableError::from);
            let found = found.and_then(|primary_key| {
                let entry = EntryRef { key, primary_key, number: walk.batch().1 };
                rows.read(txn, (handle, state, index), &mut statement.view, walk, entry)
            });
            match found {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    walk.step_back();
                    return Err(error);
                }
            }
        }
    }

    /// The row that [`IndexCursor::read_next`] stepped to.
    fn current(&self, state: &State) -> Result<IndexRow<'_>, TableError> {
        let spec = &self.index.live(state)?.definition.spec;
        let (key, value) = self.walk.current();
        let primary_key = spec.primary_key(state.kind(), key, value)?;
        Ok(IndexRow { index_key: &self.rows.entry.key, primary_key, row: &self.rows.row })
    }

    /// The next entry's key and primary key, without reading the row: for queries that the index
    /// alone covers.
    pub fn next_entry(&mut self, txn: &mut Transaction) -> Result<Option<KeyAndValue<'_>>, TableError> {
        let state: Arc<State> = self.index.table.state_for(txn)?;
        let index = self.index.live(&state)?;
        index.check_readable(txn)?;
        self.statement.belongs_to(txn)?;
        if !self.walk.has_next() {
            self.rows.forget();
            self.walk.is_for_rows(false);
        }
        if !self.statement.advance(txn, &mut self.walk, &index.tree, None)? {
            return Ok(None);
        }
        let (key, value) = self.walk.current();
        Ok(Some((key, index.definition.spec.primary_key(state.kind(), key, value)?)))
    }

    /// Forgets the entries read ahead, and the snapshot they were read by: the next one is read
    /// again.
    pub fn refresh(&mut self) {
        self.walk.refresh();
        self.rows.forget();
        self.statement = CursorStatement::default();
    }
}

/// Entries of the first batch in no order, and how much larger the next ones are.
const ENTRIES_FIRST: usize = 32;
const ENTRIES_GROWTH: usize = 4;
/// Entries of a batch at most.
const ENTRIES_MAX: usize = 512;

/// Rows found through an index, in no particular order, from [`IndexCursor::unordered`].
pub struct UnorderedIndexCursor {
    cursor: IndexCursor,
    entries: Entries,
    /// Numbers of the entries, in the order of their primary keys.
    order: Vec<u32>,
    returned: usize,
    /// Entries of the next batch at most.
    most: usize,
}

/// Entries: keys and primary keys.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Ends of each one's key and primary key.
    ends: Vec<(usize, usize)>,
}

impl Entries {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    fn push(&mut self, key: &[u8], primary_key: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(primary_key);
        self.ends.push((key_end, self.bytes.len()));
    }
    fn get(&self, number: u32) -> (&[u8], &[u8]) {
        let start = (number as usize).checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[number as usize];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }
}

impl UnorderedIndexCursor {
    /// The next row, borrowed until the next call. `None` at the end. As [`IndexCursor::next`].
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<IndexRow<'_>>, TableError> {
        let state: Arc<State> = self.cursor.index.table.state_for(txn)?;
        let live = self.cursor.index.live(&state)?;
        live.check_readable(txn)?;
        self.cursor.statement.belongs_to(txn)?;
        loop {
            if self.returned == self.order.len() && !self.read_entries(txn, &state)? {
                self.cursor.statement.view = StatementView::default();
                return Ok(None);
            }
            let (key, primary_key) = self.entries.get(self.order[self.returned]);
            let entry = EntryRef { key, primary_key, number: self.returned };
            let IndexCursor { index, walk, rows, statement } = &mut self.cursor;
            // A row that cannot be read is asked for again by the next call.
            let found = rows.read(txn, (index, &state, live), &mut statement.view, walk, entry)?;
            self.returned += 1;
            if found {
                break;
            }
        }
        let (_, primary_key) = self.entries.get(self.order[self.returned - 1]);
        let rows = &self.cursor.rows;
        Ok(Some(IndexRow { index_key: &rows.entry.key, primary_key, row: &rows.row }))
    }

    /// The same cursor, locking every row that it returns.
    #[must_use]
    pub fn for_update(mut self) -> UnorderedIndexCursor {
        self.cursor.rows.for_update = true;
        self
    }

    /// Forgets the rows that were read and not returned, and the snapshot they were read by; their
    /// entries stay, and their rows are read again.
    pub fn refresh(&mut self) {
        self.cursor.refresh();
    }

    /// Reads the next entries and their rows; false if there are no more entries.
    fn read_entries(&mut self, txn: &mut Transaction, state: &State) -> Result<bool, TableError> {
        let UnorderedIndexCursor { cursor, entries, order, returned, most } = self;
        let IndexCursor { index, walk, rows, statement } = cursor;
        let live = index.live(state)?;
        walk.is_for_rows(true);
        // What was read before an error stays for the next call.
        if *returned > 0 {
            entries.clear();
            order.clear();
            *returned = 0;
        }
        while entries.ends.len() < *most && statement.advance_within(txn, walk, &live.tree)? {
            let (key, value) = walk.current();
            match live.definition.spec.primary_key(state.kind(), key, value) {
                Ok(primary_key) => entries.push(key, primary_key),
                Err(error) => {
                    walk.step_back();
                    return Err(error.into());
                }
            }
        }
        *most = (*most * ENTRIES_GROWTH).min(ENTRIES_MAX);
        order.extend(0..entries.ends.len() as u32);
        order.sort_unstable_by(|a, b| entries.get(*a).1.cmp(entries.get(*b).1));
        let keys: Vec<&[u8]> = order.iter().map(|number| entries.get(*number).1).collect();
        rows.read_together(txn, state, &mut statement.view, &keys);
        Ok(!order.is_empty())
    }
}

/// An entry, and its number among those whose rows were read together.
#[derive(Clone, Copy)]
struct EntryRef<'a> {
    key: &'a [u8],
    primary_key: &'a [u8],
    number: usize,
}

/// Reads the rows of entries.
#[derive(Default)]
struct RowReader {
    for_update: bool,
    /// Rows read together, by the numbers of their entries.
    together: Rows,
    /// How often the transaction had written then; `None` if no rows were.
    writes: Option<u64>,
    /// The row read last.
    row: Vec<u8>,
    /// That of the row.
    entry: Entry,
    ahead: RowsAhead,
}

impl RowReader {
    fn forget(&mut self) {
        self.writes = None;
    }

    /// Reads the rows with these keys, as far as that is the same as reading each when it is
    /// returned.
    fn read_together(
        &mut self,
        txn: &mut Transaction,
        state: &State,
        view: &mut StatementView,
        keys: &[&[u8]],
    ) {
        self.writes = None;
        if keys.len() < 2 {
            return;
        }
        if self.for_update || txn.isolation() == Isolation::Serializable {
            return self.ahead.bring_in(&state.tree, keys);
        }
        let outcome = self.together.fill(keys.len(), |rows| {
            txn.in_statement(view, |txn| txn.get_many(&state.tree, keys, |number, row| rows.set(number, row)))
        });
        self.writes = outcome.ok().map(|()| txn.writes());
    }

    /// Reads the row of an entry; false if it is to be skipped.
    fn read(
        &mut self,
        txn: &mut Transaction,
        (handle, state, index): (&Index, &State, &LiveIndex),
        view: &mut StatementView,
        walk: &Walk,
        of: EntryRef<'_>,
    ) -> Result<bool, TableError> {
        let RowReader { for_update, together, writes, row, entry, .. } = self;
        let (key, primary_key) = (of.key, of.primary_key);
        let found = if *for_update {
            state.get_for_update(txn, primary_key, row)?
        } else if *writes != Some(txn.writes()) {
            txn.in_statement(view, |txn| state.get(txn, primary_key, row))?
        } else {
            match together.get(of.number) {
                None => false,
                Some(stored) if together.is_large(of.number) => {
                    txn.in_statement(view, |txn| state.get_stored_large(txn, primary_key, stored, row))?
                }
                Some(stored) => {
                    row.clear();
                    row.extend_from_slice(stored);
                    true
                }
            }
        };
        if !found {
            return Ok(false);
        }
        handle.entry_of_read(state, index, primary_key, row, entry)?;
        if entry.key == key {
            return Ok(true);
        }
        if !*for_update || txn.isolation() != Isolation::ReadCommitted || !walk.covers(&entry.key) {
            return Ok(false);
        }
        // Others have changed the row since the scan's snapshot, in which it has this one entry, or
        // this transaction has: then the scan comes, or has come, to the row's new entry, too.
        let (mut seen, mut seen_entry) = (Vec::new(), Entry::default());
        if !txn.in_statement(view, |txn| state.get(txn, primary_key, &mut seen))? {
            return Ok(false);
        }
        handle.entry_of_read(state, index, primary_key, &seen, &mut seen_entry)?;
        Ok(seen_entry.key == key)
    }
}
