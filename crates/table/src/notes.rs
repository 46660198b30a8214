//! Notes: what writers would do to an index while its tree is being loaded.
//!
//! A tree of notes has a row for each entry that was changed: at the entry's key, what the last
//! writer left there, the entry or its absence (the row's flag). Notes are written and undone by
//! the writers' transactions as entries are. They go through three stages
//! ([`crate::upkeep::Upkeep`]):
//! 1. *noted*: writers note;
//! 2. *settled*: the tree is loaded, writers change it, and for each entry that they touch they
//!    first do there what is noted, and remove the note. The build does so for all others;
//! 3. *whole*: there are no notes.
//!
//! Why no note is missed in the change from 1 to 2: the builder puts the second stage in place,
//! closes the notes, and only then walks through them; a writer looks whether they are closed after
//! it has noted. Where the builder's latch on a leaf comes first, the writer finds them closed, and
//! settles its own note. Writers and the build wait for locks on notes and
//! entries alone.
//!
//! Why the last note of an entry is the truth: changes of an entry are ordered by the lock on its
//! row. A unique index's entry is shared by the rows that have its key one after the other; there
//! the note names the row. What the load has put into the tree may be older than the note, so the
//! row that the tree names is asked whether it has the key still ([`State::have_entry`]).

use crate::error::TableError;
use crate::index::Entry;
use crate::live_index::{LiveIndex, duplicate};
use crate::state::State;
use crate::upkeep::Notes;
use firndb_txn::{RowValue, Transaction, TxnOptions};

/// What a writer does to an index for its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Enter,
    Leave,
}

impl Notes {
    /// Notes a change of an entry; whether that is all there is to do: not if notes are closed.
    pub(crate) fn note(
        &self,
        txn: &mut Transaction,
        state: &State,
        index: &LiveIndex,
        (change, entry): (Change, &Entry),
    ) -> Result<bool, TableError> {
        let (payload, flag) = match change {
            Change::Enter => (&entry.value[..], ENTERED),
            Change::Leave => (&[][..], LEFT),
        };
        let mut before = txn.take_buffer();
        let noted = txn.replace_flagged(&self.tree, &entry.key, RowValue { payload, flag }, &mut before)?;
        if index.definition.spec.unique && noted == Some(ENTERED) && before != entry.value {
            // Another row has it.
            if change == Change::Enter {
                return Err(duplicate(&state.definition, index, &entry.key)?);
            }
            let other = RowValue { payload: &before, flag: ENTERED };
            txn.replace_flagged(&self.tree, &entry.key, other, &mut Vec::new())?;
        }
        txn.keep_buffer(before);
        Ok(!self.are_closed())
    }

    /// Does to the index what is noted for the entry at `key`, and removes the note; false, with
    /// nothing done, if another row has the entry, too. Writes first the note, which locks it, then
    /// the entry: a lock beside the note would be in the way of its own writer.
    ///
    /// Where there is no note, nothing is locked. One that is written afterwards is that of a
    /// writer which settles it: it meets the caller at the entry.
    pub(crate) fn settle(
        &self,
        txn: &mut Transaction,
        state: &State,
        index: &LiveIndex,
        key: &[u8],
    ) -> Result<bool, TableError> {
        // A note that a transaction has removed is still an entry of the tree.
        if !self.tree.get(key, |note| note.is_some())? {
            return Ok(true);
        }
        let mut noted = Entry { key: key.to_vec(), value: Vec::new() };
        let Some(flag) = txn.remove_flagged(&self.tree, key, &mut noted.value)? else { return Ok(true) };
        if flag == ENTERED {
            if !lead(txn, state, index, &noted)? {
                let note = RowValue { payload: &noted.value, flag };
                txn.replace_flagged(&self.tree, key, note, &mut Vec::new())?;
                return Ok(false);
            }
            return Ok(true);
        }
        let mut held = Vec::new();
        let is_there = txn.get_for_update(&index.tree, key, &mut held)?;
        // Of a unique index it may be a row's that has the key before and after.
        let is_others =
            is_there && index.definition.spec.unique && state.have_entry(txn, index, [&held; 2], key)?[0];
        if is_there && !is_others {
            txn.remove(&index.tree, key, &mut held)?;
        }
        Ok(true)
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
        if index.definition.spec.unique
            && let [true, own] = state.have_entry(txn, index, [&held, &entry.value], &entry.key)?
        {
            return Ok(!own);
        }
    }
    txn.put(&index.tree, &entry.key, &entry.value)?;
    Ok(true)
}

impl State {
    /// Whether rows with these primary keys have, as `txn` wrote them or as they were committed at
    /// one moment, the entry at `key` of a unique index. They are not locked: a writer of such a
    /// row changes the entry afterwards, and waits there for the transaction that has locked it.
    pub(crate) fn have_entry(
        &self,
        txn: &Transaction,
        index: &LiveIndex,
        primary_keys: [&[u8]; 2],
        key: &[u8],
    ) -> Result<[bool; 2], TableError> {
        let mut committed = txn.manager().begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let (mut row, mut entry, mut have) = (Vec::new(), Entry::default(), [false; 2]);
        for (primary_key, has) in primary_keys.into_iter().zip(&mut have) {
            let is_there = match txn.get_own_flagged(&self.tree, primary_key, &mut row)? {
                Some(flag) => self.complete(txn, primary_key, flag, &mut row)?,
                None => self.get(&mut committed, primary_key, &mut row)?,
            };
            if is_there {
                index.entry(&self.source(primary_key, &row)?, &mut entry)?;
                *has = entry.key == key;
            }
        }
        Ok(have)
    }
}
