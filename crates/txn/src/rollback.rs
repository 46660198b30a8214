//! Undoing: logical, through the trees, with a compensation record for each entry.
//!
//! Room for it is promised before a change is made ([`firn_log::Log::undo_promise`]), and checkpoints make more. Where both
//! do not suffice, because the log is held by somebody who does not move and what is open is larger than what is kept for
//! undoing, it is put off: a transaction that is being rolled back is then a loser as recovery has them. Nothing is lost by
//! that, and no rollback fails for lack of log.
//!
//! An entry is undone only if the row still carries that very (writer, index). Indices are never given
//! out twice, so an entry that was undone before a crash is recognised and skipped after it.

use crate::attachment::{compensation, kinds};
use crate::locks::HeldLocks;
use crate::manager::undo_key;
use crate::state::{Status, TxnState};
use crate::undo::{Before, Undo};
use crate::{RowHeader, Transaction, TxnError, TxnErrorKind, TxnManager};
use firn_base::codec::Writer;
use firn_base::sync::Arc;
use firn_base::sync::atomic::Ordering;
use firn_base::{Progress, TreeId};
use firn_btree::{Change, Patches, Tree};
use firn_log::{LogClass, Record};

/// How many entries are undone between two looks at the log's space.
const ROOM_EVERY: usize = 16;
/// How often room is made for one and the same entry.
const ROOM_ATTEMPTS: usize = 8;

impl Transaction {
    /// Undoes everything and ends. What finds no room in the log is undone later, by a step in the background or by
    /// whoever waits for it: until then its rows stay locked and show others the versions before.
    ///
    /// Errors: those after which the database must be opened again; recovery then undoes the rest.
    pub fn rollback(mut self) -> Result<(), TxnError> {
        self.roll_back_all()
    }

    pub(crate) fn roll_back_all(&mut self) -> Result<(), TxnError> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        self.drop_snapshot();
        let Some(state) = self.state.take() else { return Ok(()) };
        match self.manager.roll_back_state(&state, &mut self.held) {
            Err(error) if error.kind == TxnErrorKind::LogFull => {
                self.manager.undo_later(&state, &mut self.held);
                Ok(())
            }
            // Half undone it is in nobody's hands.
            outcome => outcome.inspect_err(|error| self.manager.poison(error.clone())),
        }
    }

    /// Undoes the entries from the newest down to `index`. If the log has no room for all of it, the transaction can do
    /// nothing else before the rest is undone, which every statement tries first.
    pub(crate) fn undo_down_to(&mut self, index: u32) -> Result<(), TxnError> {
        let Some(state) = &self.state else { return Ok(()) };
        match self.manager.undo_down_to(state, index) {
            Err(error) if error.kind == TxnErrorKind::LogFull => {
                self.undo_to = Some(index);
                Err(error)
            }
            // Half undone, it could neither go on nor be committed.
            Err(error) => {
                self.manager.poison(error.clone());
                Err(error)
            }
            Ok(()) => {
                self.undo_to = None;
                Ok(())
            }
        }
    }

    /// Undoes what a return to a savepoint has left.
    pub(crate) fn finish_undoing(&mut self) -> Result<(), TxnError> {
        self.undo_to.map_or(Ok(()), |index| self.undo_down_to(index))
    }
}

impl TxnManager {
    /// Undoes all of a transaction and ends it.
    pub(crate) fn roll_back_state(
        &self,
        state: &Arc<TxnState>,
        held: &mut HeldLocks,
    ) -> Result<(), TxnError> {
        if state.versions.lock().next_index() == 0 {
            self.finish(state, Status::Aborted, None, held);
            return Ok(());
        }
        self.undo_down_to(state, 0)?;
        if state.versions.lock().spilled {
            self.with_room(|| self.remove_spilled(state.id, LogClass::Rollback))?;
        }
        let mut body = Vec::new();
        body.put_varint(state.id.0);
        self.with_room(|| {
            let record = Record { kind: kinds::ABORT, body: &body };
            Ok(self.log.append(LogClass::Rollback, record).map(|_| ())?)
        })?;
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
        self.finish(state, Status::Aborted, None, held);
        Ok(())
    }

    pub(crate) fn undo_down_to(&self, state: &TxnState, down_to: u32) -> Result<(), TxnError> {
        let newest = state.versions.lock().next_index();
        let mut entry = Vec::new();
        for (done, index) in (down_to..newest).rev().enumerate() {
            if done % ROOM_EVERY == 0
                && let Some(room) = self.room.get()
            {
                // Early, while spilling what is left still fits. If it cannot help, the log's reserve may do.
                let _ = room(false);
            }
            // A part may be done again: an entry that was undone is recognised.
            self.with_room(|| {
                let _moving = state.moving.lock();
                if self.read_undo(state, index, &mut entry)? {
                    self.undo_entry(state, index, &entry)?;
                    self.forget_undo(state, index)?;
                    let mut versions = state.versions.lock();
                    versions.account(&self.version_bytes);
                    versions.promise(self.log.undo_promise());
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Hands a transaction that is to be undone, and of which a part may be, to whoever finds room for it.
    pub(crate) fn undo_later(&self, state: &Arc<TxnState>, held: &mut HeldLocks) {
        assert!(state.status() == Status::Active, "it has not ended");
        // What it learnt is of no interest any more; its rows are locked by themselves.
        self.locks.release(state.id, held);
        self.losers.lock().insert(state.id, state.clone());
        self.put_off.store(true, Ordering::SeqCst);
        self.waits.ended(state.id);
    }

    /// Whether transactions wait to be undone because the log had no room.
    #[must_use]
    pub fn has_put_off(&self) -> bool {
        self.put_off.load(Ordering::Relaxed)
    }

    /// Undoes one of the transactions that could not be undone for lack of room. The log has some again.
    ///
    /// Errors: as [`TxnManager::rollback_loser`], but for `LogFull`, which means: later.
    pub fn undo_put_off(&self) -> Result<Progress, TxnError> {
        match self.rollback_loser() {
            Ok(true) => Ok(Progress::Worked),
            Ok(false) => Ok(Progress::Idle),
            Err(error) if error.kind == TxnErrorKind::LogFull => Ok(Progress::Idle),
            Err(error) => Err(error),
        }
    }

    /// Runs a part of undoing, or a commit; while the log is full, makes room and runs it again.
    pub(crate) fn with_room(&self, mut work: impl FnMut() -> Result<(), TxnError>) -> Result<(), TxnError> {
        for _ in 0..ROOM_ATTEMPTS {
            match (work(), self.room.get()) {
                (Err(error), Some(room)) if error.kind == TxnErrorKind::LogFull => room(true)?,
                (outcome, _) => return outcome,
            }
        }
        work()
    }

    fn undo_entry(&self, state: &TxnState, index: u32, entry: &[u8]) -> Result<(), TxnError> {
        match Undo::decode(entry)? {
            Undo::Row { tree, key, before } => match self.tree(tree) {
                Some(tree) => self.undo_row(&tree, key, before, state, index),
                None => Self::unknown_tree(state, tree),
            },
            Undo::TreeCreated { tree, root } => {
                if root.0 == 0 {
                    return Ok(()); // its creation was never logged
                }
                let found = self.tree(tree).unwrap_or_else(|| Tree::open(self.pool.clone(), tree, root));
                found.clear(LogClass::Rollback)?;
                // Forgotten first: if a crash comes between, one free-standing page is lost, while the other
                // order could free a page that belongs to somebody else by then.
                self.forget_undo(state, index)?;
                let mut attachment = Vec::new();
                compensation(&mut attachment, state.id, index);
                found.drop_root(LogClass::Rollback, &attachment)?;
                self.forget_tree(tree);
                Ok(())
            }
        }
    }

    /// A row of a tree that nobody knows: after a crash it was created by the very transaction being undone
    /// and will be dropped whole; at any other time it is damage.
    fn unknown_tree(state: &TxnState, tree: TreeId) -> Result<(), TxnError> {
        if state.found_by_recovery {
            return Ok(());
        }
        Err(TxnError::new(
            TxnErrorKind::Damaged,
            format!("transaction {} wrote to {tree:?}, which is not known", state.id),
        ))
    }

    fn undo_row(
        &self,
        tree: &Tree,
        key: &[u8],
        before: Before<'_>,
        state: &TxnState,
        index: u32,
    ) -> Result<(), TxnError> {
        let decide = |current: Option<&[u8]>,
                      change: &mut Change,
                      attachment: &mut Vec<u8>|
         -> Result<(), TxnError> {
            let Some((header, payload)) = current.map(RowHeader::split).transpose()? else { return Ok(()) };
            if header.writer != state.id || header.undo != index {
                return Ok(()); // undone before
            }
            compensation(attachment, state.id, index);
            *change = match before {
                Before::Absent => Change::Remove,
                Before::Full(header, old) => Change::put_parts(&[&header.encode(), old]),
                Before::Patch(header, patches) => {
                    let mut back = Patches::new();
                    back.push(0, &header.encode());
                    for (at, old) in patches.ranges(payload.len())? {
                        back.push(RowHeader::LEN + at, old);
                    }
                    Change::Patch(back)
                }
            };
            Ok(())
        };
        tree.modify(key, LogClass::Rollback, decide).map(|_| ())
    }

    /// Forgets an entry that has been used, wherever it is.
    fn forget_undo(&self, state: &TxnState, index: u32) -> Result<(), TxnError> {
        let spilled = {
            let mut versions = state.versions.lock();
            versions.forget(index);
            versions.spilled
        };
        if spilled {
            self.remove_undo(&undo_key(state.id, index), LogClass::Rollback)?;
        }
        Ok(())
    }

    /// Removes an entry from the undo tree, if it is there.
    pub(crate) fn remove_undo(&self, key: &[u8], class: LogClass) -> Result<(), TxnError> {
        let decide = |current: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| -> Result<(), TxnError> {
            if current.is_some() {
                *change = Change::Remove;
            }
            Ok(())
        };
        self.undo.modify(key, class, decide).map(|_| ())
    }
}
