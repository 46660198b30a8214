//! Notes: what writers would do to an index while its tree is being loaded.
//!
//! A tree of notes has a row for each entry that was changed: at the entry's key, what the last
//! writer left there, the entry or its absence (the row's flag). Notes are written and undone by
//! the writers' transactions as entries are. They go through three stages ([`Upkeep`]):
//! 1. *noted*: writers note;
//! 2. *settled*: the tree is loaded, writers change it, and for each entry that they touch they
//!    first do there what is noted, and remove the note. The build does so for all others;
//! 3. *whole*: there are no notes.
//!
//! Why no note is missed in the change from 1 to 2: the builder puts the second stage in place,
//! closes the notes, and only then walks through them; a writer looks whether they are closed after
//! it has noted. Where the builder's latch on a leaf comes first, the writer finds them closed, and
//! settles its own note. Nobody waits for a lock meanwhile but as for a row.
//!
//! Why the last note of an entry is the truth: changes of an entry are ordered by the lock on its
//! row. A unique index's entry is shared by the rows that have its key one after the other; there
//! the note names the row. What the load has put into the tree may be older than the note, so the
//! row that the tree names is asked whether it has the key still ([`State::has_entry`]).

use crate::error::TableError;
use crate::index::Entry;
use crate::state::{LiveIndex, State};
use crate::write::duplicate;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_btree::Tree;
use firndb_txn::{RowValue, Transaction, TxnOptions};

/// How writers keep an index.
#[derive(Clone)]
pub(crate) enum Upkeep {
    Noted(Arc<Notes>),
    Settled(Arc<Notes>),
    Whole,
}

impl Upkeep {
    /// Those of an index that is being built.
    pub(crate) fn notes(&self) -> Option<&Arc<Notes>> {
        match self {
            Upkeep::Noted(notes) | Upkeep::Settled(notes) => Some(notes),
            Upkeep::Whole => None,
        }
    }
}

/// Notes on an index that is being built.
pub(crate) struct Notes {
    pub(crate) tree: Arc<Tree>,
    /// Whoever finds this set after it has written a note settles it.
    closed: AtomicBool,
    /// Two rows have one entry of a unique index.
    violated: AtomicBool,
}

/// What a writer does to an index for its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Enter,
    Leave,
}

impl Notes {
    pub(crate) fn new(tree: Arc<Tree>) -> Arc<Notes> {
        Arc::new(Notes { tree, closed: AtomicBool::new(false), violated: AtomicBool::new(false) })
    }

    /// From here on writers that do not know it yet settle what they note.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether an entry was met that two rows have.
    pub(crate) fn are_violated(&self) -> bool {
        self.violated.load(Ordering::SeqCst)
    }

    /// Notes a change of an entry; whether that is all there is to do: not if notes are closed.
    pub(crate) fn note(
        &self,
        txn: &mut Transaction,
        state: &State,
        index: &LiveIndex,
        (change, entry): (Change, &Entry),
    ) -> Result<bool, TableError> {
        let mut row = txn.take_buffer();
        let other = index.definition.spec.unique
            && txn.get_for_update_flagged(&self.tree, &entry.key, &mut row)? == Some(ENTERED)
            && row != entry.value;
        match change {
            Change::Enter if other => return Err(duplicate(state, index, &entry.key)?),
            Change::Enter => {
                self.write(txn, &entry.key, RowValue { payload: &entry.value, flag: ENTERED })?
            }
            // The other row has it by then.
            Change::Leave if other => {}
            Change::Leave => self.write(txn, &entry.key, RowValue { payload: &[], flag: LEFT })?,
        }
        txn.keep_buffer(row);
        Ok(!self.closed.load(Ordering::SeqCst))
    }

    fn write(&self, txn: &mut Transaction, key: &[u8], note: RowValue<'_>) -> Result<(), TableError> {
        txn.replace_flagged(&self.tree, key, note, &mut Vec::new())?;
        Ok(())
    }

    /// Does to the index what is noted for the entry at `key`, and removes the note. Locks first
    /// the note, then the entry.
    pub(crate) fn settle(
        &self,
        txn: &mut Transaction,
        state: &State,
        index: &LiveIndex,
        key: &[u8],
    ) -> Result<(), TableError> {
        let mut noted = Entry { key: key.to_vec(), value: Vec::new() };
        let Some(flag) = txn.get_for_update_flagged(&self.tree, key, &mut noted.value)? else {
            return Ok(());
        };
        if flag == ENTERED {
            if !lead(txn, state, index, &noted)? {
                self.violated.store(true, Ordering::SeqCst);
            }
        } else {
            let mut held = Vec::new();
            let is_there = txn.get_for_update(&index.tree, key, &mut held)?;
            // Of a unique index it may be a row's that has the key before and after.
            if is_there && !(index.definition.spec.unique && state.has_entry(txn, index, &held, key)?) {
                txn.remove(&index.tree, key, &mut held)?;
            }
        }
        txn.remove(&self.tree, key, &mut Vec::new())?;
        Ok(())
    }
}

/// Flags of notes.
const ENTERED: bool = false;
const LEFT: bool = true;

/// Has an entry lead to its row, instead of one that does not have it any more; false if both rows
/// have it.
pub(crate) fn lead(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    entry: &Entry,
) -> Result<bool, TableError> {
    let mut held = Vec::new();
    if txn.get_for_update(&index.tree, &entry.key, &mut held)? {
        if held == entry.value {
            return Ok(true);
        }
        if index.definition.spec.unique && state.has_entry(txn, index, &held, &entry.key)? {
            return Ok(!state.has_entry(txn, index, &entry.value, &entry.key)?);
        }
    }
    txn.put(&index.tree, &entry.key, &entry.value)?;
    Ok(true)
}

impl State {
    /// Whether the row with this primary key has, as `txn` wrote it or as it was committed last,
    /// the entry at `key` of a unique index. The row is not locked: who changes it changes its
    /// entry afterwards, and waits there for whoever has locked that.
    pub(crate) fn has_entry(
        &self,
        txn: &mut Transaction,
        index: &LiveIndex,
        primary_key: &[u8],
        key: &[u8],
    ) -> Result<bool, TableError> {
        let mut row = Vec::new();
        let is_there = match txn.get_own_flagged(&self.tree, primary_key, &mut row)? {
            Some(flag) => self.complete(txn, primary_key, flag, &mut row)?,
            None => {
                let read_only = TxnOptions { read_only: true, ..TxnOptions::default() };
                self.get(&mut txn.manager().begin(read_only), primary_key, &mut row)?
            }
        };
        if !is_there {
            return Ok(false);
        }
        let mut entry = Entry::default();
        index.entry(&self.source(primary_key, &row)?, &mut entry)?;
        Ok(entry.key == key)
    }
}
