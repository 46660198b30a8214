//! Statements that write one row and every index of it.
//!
//! Invariants:
//! * a statement that fails leaves the transaction as it was before: it rolls back to a savepoint;
//! * the row itself is written first. That locks it, so that two writers of one row never meet in
//!   an index, and all transactions take locks in the same order: row, then its indexes in their
//!   order;
//! * which indexes to keep is read after the row is written (see [`crate::state`]);
//! * parts of a large value are written last, when only a lack of space can stop the statement.

use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, RowSource};
use crate::large::{self, ValueId};
use crate::large_read;
use crate::large_write;
use crate::large_write::Stored;
use crate::live_index::{LiveIndex, duplicate};
use crate::notes::Change;
use crate::show;
use crate::state::State;
use crate::statement::whole_or_nothing;
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::upkeep::{Notes, Upkeep};
use firndb_base::sync::atomic::Ordering;
use firndb_txn::Transaction;

impl Table {
    /// Inserts a row. A key has at most [`firndb_txn::max_key_len`] bytes, a value
    /// [`crate::row::MAX_VALUE_LEN`].
    ///
    /// Errors of all writes: `Duplicate` (of a unique index, or of the primary key here),
    /// `BadArgument` (the bytes are no row of the table, or too short for an index), `Damaged` (an
    /// index entry that should be there is not), and the transaction's (`Conflict`, `Deadlock`:
    /// roll back and try again; `TooLarge`). A write that fails has changed nothing.
    pub fn insert(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        self.insert_bytes(txn, key, value, Bytes::Given)
    }

    /// Inserts the row, or replaces the one at its key; whether there was one.
    pub fn put(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<bool, TableError> {
        self.put_bytes(txn, key, value, Bytes::Given)
    }

    /// Replaces the row at `key`; false if there is none.
    pub fn update(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<bool, TableError> {
        self.update_bytes(txn, key, value, Bytes::Given)
    }

    /// Replaces the row at `key` by what `change` makes of it, in `value`; false if there is none.
    /// As [`Table::get_for_update`] and [`Table::update`], at the cost of the latter.
    ///
    /// `change` is called under a latch: it must not block or use the database. It may be called
    /// again, with the row as it is then: the last call counts.
    pub fn update_with(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<bool, TableError> {
        self.statement(txn, one_if, |txn, state| self.change_row(txn, state, key, value, change))
    }

    /// As [`Table::update_with`], of many rows, one after the other in the order of their keys, as
    /// one statement. The keys may come in any order and repeat; `change` is called with a key's
    /// number and its row, or without a row if there is none.
    pub fn update_many_with<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        change: &mut dyn FnMut(usize, Option<&mut Vec<u8>>),
    ) -> Result<(), TableError> {
        let mut order: Vec<(&[u8], usize)> = keys.iter().map(AsRef::as_ref).zip(0..).collect();
        order.sort_unstable();
        let rows = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        self.statement(txn, |()| rows, |txn, state| self.change_rows(txn, state, &order, change))
    }

    /// Deletes the row at `key`; false if there is none.
    pub fn delete(&self, txn: &mut Transaction, key: &[u8]) -> Result<bool, TableError> {
        self.statement(txn, one_if, |txn, state| {
            let mut old = Vec::new();
            let Some(flag) = txn.remove_flagged(&state.tree, key, &mut old)? else { return Ok(false) };
            let newer = self.shared.newer(state)?;
            let state = newer.as_deref().unwrap_or(state);
            let gone = old_value(txn, state, key, flag, &mut old)?;
            self.unindex(txn, state, key, &old)?;
            self.mark_freed(txn, state, gone)?;
            Ok(true)
        })
    }

    pub(crate) fn insert_bytes(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
        bytes: Bytes,
    ) -> Result<(), TableError> {
        self.statement(
            txn,
            |_| 1,
            |txn, state| {
                bytes.check(state, key, value)?;
                let stored = Stored::new(txn, state, key, value)?;
                if !txn.insert_flagged(&state.tree, key, stored.row())? {
                    let message = format!(
                        "table {:?} has a row with primary key {} already",
                        state.definition.name,
                        show::Bytes(key)
                    );
                    return Err(TableError::new(TableErrorKind::Duplicate, message));
                }
                let newer = self.shared.newer(state)?;
                let state = newer.as_deref().unwrap_or(state);
                self.index_new(txn, state, key, value)?;
                stored.write_parts(txn, state)
            },
        )
    }

    pub(crate) fn put_bytes(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
        bytes: Bytes,
    ) -> Result<bool, TableError> {
        self.statement(
            txn,
            |_| 1,
            |txn, state| {
                bytes.check(state, key, value)?;
                let stored = Stored::new(txn, state, key, value)?;
                let mut old = txn.take_buffer();
                let before = txn.replace_flagged(&state.tree, key, stored.row(), &mut old)?;
                self.after_write(txn, state, key, &stored, value, before.map(|flag| (flag, &mut old)))?;
                txn.keep_buffer(old);
                Ok(before.is_some())
            },
        )
    }

    pub(crate) fn update_bytes(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
        bytes: Bytes,
    ) -> Result<bool, TableError> {
        self.statement(txn, one_if, |txn, state| self.update_row(txn, state, key, value, bytes))
    }

    fn update_row(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        value: &[u8],
        bytes: Bytes,
    ) -> Result<bool, TableError> {
        bytes.check(state, key, value)?;
        let stored = Stored::new(txn, state, key, value)?;
        let mut old = txn.take_buffer();
        let before = txn.update_flagged(&state.tree, key, stored.row(), &mut old)?;
        if before.is_none() {
            return Ok(false);
        }
        self.after_write(txn, state, key, &stored, value, before.map(|flag| (flag, &mut old)))?;
        txn.keep_buffer(old);
        Ok(true)
    }

    /// Changes a row where it is, or, if it was or becomes a large value, reads and replaces it.
    fn change_row(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<bool, TableError> {
        let page_size = state.tree.pool().page_size();
        let (mut old, mut checked, mut stays_inline) = (txn.take_buffer(), Ok(()), true);
        let before = txn.edit(&state.tree, key, value, &mut |row, new| {
            (stays_inline, checked) = (!row.flag, Ok(()));
            if stays_inline {
                old.clear();
                old.extend_from_slice(row.payload);
                change(new);
                checked = Bytes::Given.check(state, key, new);
                stays_inline = large::fits_row(page_size, key.len(), new.len());
            }
            stays_inline && checked.is_ok()
        })?;
        checked?;
        if before.is_none() {
            txn.keep_buffer(old);
            return Ok(false);
        }
        if !stays_inline {
            let is_there = state.get_for_update(txn, key, value)?;
            if is_there {
                change(value);
            }
            return Ok(is_there && self.update_row(txn, state, key, value, Bytes::Given)?);
        }
        self.after_write(txn, state, key, &Stored::Inline(value), value, Some((false, &mut old)))?;
        txn.keep_buffer(old);
        Ok(true)
    }

    /// Changes rows, given with their numbers, which ascend by key. Once a leaf was not in memory,
    /// those to come are read together; and where that was so the last time, all of them are.
    fn change_rows(
        &self,
        txn: &mut Transaction,
        state: &State,
        rows: &[(&[u8], usize)],
        change: &mut dyn FnMut(usize, Option<&mut Vec<u8>>),
    ) -> Result<(), TableError> {
        let (pool, missing) = (state.tree.pool(), &self.shared.leaves_are_missing);
        let bring_in = |txn: &Transaction, rows: &[(&[u8], usize)]| {
            let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| *key).collect();
            txn.bring_in(&state.tree, &keys)
        };
        let mut is_brought = missing.load(Ordering::Relaxed);
        if is_brought && !bring_in(txn, rows)? {
            missing.store(false, Ordering::Relaxed);
        }
        let (misses, mut value) = (pool.misses(), Vec::new());
        for (at, &(key, number)) in rows.iter().enumerate() {
            if !self.change_row(txn, state, key, &mut value, &mut |row| change(number, Some(row)))? {
                change(number, None);
            }
            if !is_brought && pool.misses() != misses {
                missing.store(true, Ordering::Relaxed);
                is_brought = true;
                bring_in(txn, &rows[at + 1..])?;
            }
        }
        Ok(())
    }

    /// What follows the write of the row itself. `before`: flag and bytes that it had, if it was
    /// there.
    fn after_write(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        stored: &Stored<'_>,
        value: &[u8],
        before: Option<(bool, &mut Vec<u8>)>,
    ) -> Result<(), TableError> {
        let newer = self.shared.newer(state)?;
        let state = newer.as_deref().unwrap_or(state);
        match before {
            None => self.index_new(txn, state, key, value)?,
            Some((flag, old)) => {
                let gone = old_value(txn, state, key, flag, old)?;
                self.index_changed(txn, state, key, old, value)?;
                self.mark_freed(txn, state, gone)?;
            }
        }
        stored.write_parts(txn, state)
    }

    fn mark_freed(
        &self,
        txn: &mut Transaction,
        state: &State,
        gone: Option<ValueId>,
    ) -> Result<(), TableError> {
        let Some(id) = gone else { return Ok(()) };
        large_write::mark_freed(txn, state, id)?;
        // After the mark: the thread that searches for marks clears this first.
        self.shared.has_marks.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Runs a statement that changes as many rows as `rows` says; rolls it back if it fails.
    fn statement<R>(
        &self,
        txn: &mut Transaction,
        rows: impl FnOnce(&R) -> u32,
        run: impl FnOnce(&mut Transaction, &State) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        self.shared.run_change(txn, |txn, state| whole_or_nothing(txn, |txn| run(txn, state)), rows)
    }
}

/// Rows that a statement changed which returns whether it found its row.
fn one_if(is_there: &bool) -> u32 {
    u32::from(*is_there)
}

/// Where the bytes of a row to be written come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// From the user: they may be no row of the table.
    Given,
    /// From the table's own encoding.
    Encoded,
}

impl Bytes {
    /// Refuses bytes that are no row of a typed table.
    pub(crate) fn check(self, state: &State, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let (Bytes::Given, TableKind::Typed(schema)) = (self, state.kind()) else { return Ok(()) };
        schema.decode(key, value, &mut Vec::new()).map_err(|error| {
            TableError::bad_argument(format!("not a row of table {:?}: {error}", state.definition.name))
        })
    }
}

/// The large value that a row's old version leads to. If an index needs the value, which may have
/// 64 MiB, it takes the reference's place in `old`.
fn old_value(
    txn: &Transaction,
    state: &State,
    key: &[u8],
    flag: bool,
    old: &mut Vec<u8>,
) -> Result<Option<ValueId>, TableError> {
    if !flag {
        return Ok(None);
    }
    let reference = state.reference(key, old)?;
    if state.indexes_need_value() && !large_read::read(txn, state, reference, old)? {
        return Err(large::not_whole(&state.definition.name, key));
    }
    Ok(Some(reference.id))
}

impl Table {
    /// Adds the entries of a new row.
    fn index_new(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TableError> {
        if state.indexes.is_empty() {
            return Ok(());
        }
        self.change_entries(txn, state, &state.source(key, value)?, Change::Enter)
    }

    /// Exchanges the entries of a row for those of its new value.
    fn index_changed(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        old: &[u8],
        new: &[u8],
    ) -> Result<(), TableError> {
        if !state.indexes_need_value() {
            // Entries of the primary key alone stay as they are.
            return Ok(());
        }
        let (old, new) = (state.source(key, old)?, state.source(key, new)?);
        let (mut before, mut after) = (Entry::default(), Entry::default());
        for index in state.indexes.iter().filter(|index| !index.definition.spec.stays(&old, &new)) {
            index.entry(&old, &mut before)?;
            index.entry(&new, &mut after)?;
            if before != after {
                self.change_entry(txn, (state, index), (Change::Leave, &before))?;
                self.change_entry(txn, (state, index), (Change::Enter, &after))?;
            }
        }
        Ok(())
    }

    /// Removes the entries of a deleted row.
    fn unindex(
        &self,
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        old: &[u8],
    ) -> Result<(), TableError> {
        if state.indexes.is_empty() {
            return Ok(());
        }
        let row = state.source_with(state.indexes_need_value(), key, old)?;
        self.change_entries(txn, state, &row, Change::Leave)
    }

    /// Changes a row's entry in each index.
    fn change_entries(
        &self,
        txn: &mut Transaction,
        state: &State,
        row: &RowSource<'_>,
        change: Change,
    ) -> Result<(), TableError> {
        let mut entry = Entry::default();
        for index in &state.indexes {
            index.entry(row, &mut entry)?;
            self.change_entry(txn, (state, index), (change, &entry))?;
        }
        Ok(())
    }

    /// Changes one entry of an index, or notes that for its build.
    fn change_entry(
        &self,
        txn: &mut Transaction,
        (state, index): (&State, &LiveIndex),
        (change, entry): (Change, &Entry),
    ) -> Result<(), TableError> {
        match &index.upkeep {
            Upkeep::Whole => {}
            Upkeep::Settled(notes) => settle(notes, txn, (state, index), (change, entry))?,
            Upkeep::Noted(notes) => {
                if notes.note(txn, state, index, (change, entry))? {
                    return Ok(());
                }
                let newer = self.shared.state()?;
                let Some(index) = newer.index(index.tree.id()) else { return Ok(()) };
                return match &index.upkeep {
                    Upkeep::Settled(notes) => settle(notes, txn, (&newer, index), (change, entry)),
                    _ => apply(txn, (&newer, index), (change, entry)),
                };
            }
        }
        apply(txn, (state, index), (change, entry))
    }
}

/// Settles what is noted for an entry that is about to be changed, or was noted just now.
fn settle(
    notes: &Notes,
    txn: &mut Transaction,
    (state, index): (&State, &LiveIndex),
    (change, entry): (Change, &Entry),
) -> Result<(), TableError> {
    match notes.settle(txn, state, index, &entry.key)? {
        // Of two rows with one entry one may leave it.
        false if change == Change::Enter => Err(duplicate(&state.definition, index, &entry.key)?),
        _ => Ok(()),
    }
}

/// Changes one entry of an index whose tree writers keep.
fn apply(
    txn: &mut Transaction,
    (state, index): (&State, &LiveIndex),
    (change, entry): (Change, &Entry),
) -> Result<(), TableError> {
    match change {
        Change::Enter => enter(txn, state, index, entry),
        Change::Leave => leave(txn, state, index, entry),
    }
}

/// Adds an entry. Fails with `Duplicate` if it is another row's.
fn enter(txn: &mut Transaction, state: &State, index: &LiveIndex, entry: &Entry) -> Result<(), TableError> {
    if !index.definition.spec.unique {
        // Its key ends with the primary key of a row that is locked: no other transaction can own
        // it.
        return Ok(txn.put(&index.tree, &entry.key, &entry.value)?);
    }
    if txn.insert(&index.tree, &entry.key, &entry.value)? {
        return Ok(());
    }
    let mut holder = Vec::new();
    if index.is_settled()
        && txn.get_for_update(&index.tree, &entry.key, &mut holder)?
        && holder == entry.value
    {
        return Ok(());
    }
    Err(duplicate(&state.definition, index, &entry.key)?)
}

fn leave(txn: &mut Transaction, state: &State, index: &LiveIndex, entry: &Entry) -> Result<(), TableError> {
    let mut scratch = txn.take_buffer();
    // Of a unique index that is being built another row may have had it, too.
    let is_own = !index.is_settled()
        || !index.definition.spec.unique
        || (txn.get_for_update(&index.tree, &entry.key, &mut scratch)? && scratch == entry.value);
    let removed = is_own && txn.remove(&index.tree, &entry.key, &mut scratch)?;
    txn.keep_buffer(scratch);
    if removed || index.is_settled() {
        return Ok(());
    }
    Err(TableError::damaged(format!(
        "index {:?} of table {:?} lacks the entry {} of a row that is there; check the table, and build the index anew",
        index.definition.spec.name,
        state.definition.name,
        show::Bytes(&entry.key)
    )))
}
