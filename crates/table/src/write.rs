//! Statements that write one row and every index of it.
//!
//! Invariants:
//! * a statement that fails leaves the transaction as it was before: it goes back to a savepoint;
//! * the row itself is written first. That locks it, so that two writers of one row never meet in an
//!   index, and everybody takes locks in the same order: row, then its indexes in their order;
//! * which indexes to keep is read after the row is written (see [`crate::state`]).

use crate::definition::TableKind;
use crate::index::{Entry, IndexState};
use crate::show;
use crate::state::{LiveIndex, State};
use crate::{Table, TableError, TableErrorKind};
use firn_base::sync::Arc;
use firn_txn::Transaction;

impl Table {
    /// Inserts a row.
    ///
    /// Errors of all writes: `Duplicate` (of a unique index, or of the primary key here), `BadArgument` (the
    /// bytes are no row of the table, or too short for an index), `Damaged` (an index entry that should be
    /// there is not), and the transaction's (`Conflict`, `Deadlock`: roll back and try again). A write that
    /// fails has changed nothing.
    pub fn insert(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        self.check_row(txn, key, value)?;
        self.insert_checked(txn, key, value)
    }

    /// Inserts the row, or replaces the one at its key; whether there was one.
    pub fn put(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<bool, TableError> {
        self.check_row(txn, key, value)?;
        self.put_checked(txn, key, value)
    }

    /// Replaces the row at `key`; false if there is none.
    pub fn update(&self, txn: &mut Transaction, key: &[u8], value: &[u8]) -> Result<bool, TableError> {
        self.check_row(txn, key, value)?;
        self.update_checked(txn, key, value)
    }

    /// Deletes the row at `key`; false if there is none.
    pub fn delete(&self, txn: &mut Transaction, key: &[u8]) -> Result<bool, TableError> {
        self.statement(txn, |txn, state| {
            let mut old = Vec::new();
            if !txn.remove(&state.tree, key, &mut old)? {
                return Ok(false);
            }
            let state = self.state_for(txn)?;
            if !state.indexes.is_empty() {
                unindex(txn, &state, key, &old)?;
            }
            Ok(true)
        })
    }

    pub(crate) fn insert_checked(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TableError> {
        self.statement(txn, |txn, state| {
            if !txn.insert(&state.tree, key, value)? {
                let message = format!(
                    "table {:?} has a row with primary key {} already",
                    state.definition.name,
                    show::Bytes(key)
                );
                return Err(TableError::new(TableErrorKind::Duplicate, message));
            }
            let state = self.state_for(txn)?;
            index_new(txn, &state, key, value)
        })
    }

    pub(crate) fn put_checked(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TableError> {
        self.statement(txn, |txn, state| {
            let mut old = Vec::new();
            let existed = txn.replace(&state.tree, key, value, &mut old)?;
            let state = self.state_for(txn)?;
            if existed {
                index_changed(txn, &state, key, &old, value)?;
            } else {
                index_new(txn, &state, key, value)?;
            }
            Ok(existed)
        })
    }

    pub(crate) fn update_checked(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TableError> {
        let savepoint = txn.savepoint();
        let existed = self.statement(txn, |txn, state| {
            let mut old = Vec::new();
            if !txn.replace(&state.tree, key, value, &mut old)? {
                return Ok(false);
            }
            let state = self.state_for(txn)?;
            index_changed(txn, &state, key, &old, value)?;
            Ok(true)
        })?;
        if !existed {
            // Rows that are updated nearly always exist, so it pays to write first and ask afterwards.
            txn.rollback_to(&savepoint)?;
        }
        Ok(existed)
    }

    /// Runs a statement; goes back to where it began if it fails.
    fn statement<R>(
        &self,
        txn: &mut Transaction,
        run: impl FnOnce(&mut Transaction, &State) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        // Held to the end: it keeps the tree from being cleared under the statement.
        let state: Arc<State> = self.state_for(txn)?;
        let savepoint = txn.savepoint();
        let error = match run(txn, &state) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        match txn.rollback_to(&savepoint) {
            Ok(()) => Err(error),
            Err(worse) => {
                let message =
                    format!("{error}; and what the statement had done could not be undone: {worse}");
                Err(TableError::new(TableErrorKind::Transaction(worse.kind), message))
            }
        }
    }

    /// Refuses bytes that are no row of a typed table.
    fn check_row(&self, txn: &Transaction, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let state = self.state_for(txn)?;
        let TableKind::Typed(schema) = state.kind() else { return Ok(()) };
        schema.decode(key, value, &mut Vec::new()).map_err(|error| {
            TableError::bad_argument(format!("not a row of table {:?}: {error}", state.definition.name))
        })
    }
}

/// Adds the entries of a new row.
fn index_new(txn: &mut Transaction, state: &State, key: &[u8], value: &[u8]) -> Result<(), TableError> {
    if state.indexes.is_empty() {
        return Ok(());
    }
    let row = state.source(key, value)?;
    let mut entry = Entry::default();
    for index in &state.indexes {
        index.entry(&row, &mut entry)?;
        add(txn, state, index, &entry)?;
    }
    Ok(())
}

/// Exchanges the entries of a row for those of its new value.
fn index_changed(
    txn: &mut Transaction,
    state: &State,
    key: &[u8],
    old: &[u8],
    new: &[u8],
) -> Result<(), TableError> {
    if state.indexes.is_empty() {
        return Ok(());
    }
    let (old, new) = (state.source(key, old)?, state.source(key, new)?);
    let (mut before, mut after, mut scratch) = (Entry::default(), Entry::default(), Vec::new());
    for index in &state.indexes {
        index.entry(&old, &mut before)?;
        index.entry(&new, &mut after)?;
        if before != after {
            take_out(txn, state, index, &before, &mut scratch)?;
            add(txn, state, index, &after)?;
        }
    }
    Ok(())
}

/// Takes out the entries of a deleted row.
fn unindex(txn: &mut Transaction, state: &State, key: &[u8], old: &[u8]) -> Result<(), TableError> {
    let row = state.source(key, old)?;
    let (mut entry, mut scratch) = (Entry::default(), Vec::new());
    for index in &state.indexes {
        index.entry(&row, &mut entry)?;
        take_out(txn, state, index, &entry, &mut scratch)?;
    }
    Ok(())
}

/// Adds one entry. Fails with `Duplicate` if it is another row's.
pub(crate) fn add(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    entry: &Entry,
) -> Result<(), TableError> {
    if !index.definition.spec.unique {
        // Its key ends with the primary key of a row that is locked: nobody else can be meant.
        return Ok(txn.put(&index.tree, &entry.key, &entry.value)?);
    }
    if txn.insert(&index.tree, &entry.key, &entry.value)? {
        return Ok(());
    }
    let mut holder = Vec::new();
    if index.definition.state == IndexState::Building
        && txn.get_for_update(&index.tree, &entry.key, &mut holder)?
        && holder == entry.value
    {
        return Ok(());
    }
    let columns = index.definition.spec.columns_len(state.kind(), &entry.key)?;
    let message = format!(
        "another row of table {:?} has {} in unique index {:?}",
        state.definition.name,
        show::Bytes(&entry.key[..columns]),
        index.definition.spec.name
    );
    Err(TableError::new(TableErrorKind::Duplicate, message))
}

fn take_out(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    entry: &Entry,
    scratch: &mut Vec<u8>,
) -> Result<(), TableError> {
    let removed = txn.remove(&index.tree, &entry.key, scratch)?;
    // While an index is being built it may lack the entries of rows that the build has not reached.
    if removed || index.definition.state == IndexState::Building {
        return Ok(());
    }
    Err(TableError::damaged(format!(
        "index {:?} of table {:?} lacks the entry {} of a row that is there; check the table, and build the index anew",
        index.definition.spec.name,
        state.definition.name,
        show::Bytes(&entry.key)
    )))
}
