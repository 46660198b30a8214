//! A transaction's own state, and its waits.

use crate::locks::{HeldLocks, Mode};
use crate::snapshot::Snapshot;
use crate::state::TxnState;
use crate::waits::deadline_from;
use crate::{Isolation, TxnError, TxnErrorKind, TxnManager, TxnOptions};
use firn_base::sync::Arc;
use firn_base::{TreeId, TxnId};

/// A mark to roll back to. Belongs to the transaction that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    pub(crate) index: u32,
}

/// A running transaction. Owned, and usable from one thread at a time. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) options: TxnOptions,
    /// Present once it has written or locked.
    pub(crate) state: Option<Arc<TxnState>>,
    pub(crate) snapshot: Option<Snapshot>,
    /// Whether the caller has been shown, or has written, anything (under the present snapshot, if there
    /// is one). Until then the snapshot may be exchanged for a newer one instead of failing with a conflict,
    /// and a commit has nothing to wait for.
    pub(crate) exposed: bool,
    pub(crate) held: HeldLocks,
    /// Prepared transactions that it has found in its way.
    pub(crate) prepared_met: Vec<TxnId>,
    pub(crate) ended: bool,
    /// A return to a savepoint, the one before this entry, is not complete.
    pub(crate) undo_to: Option<u32>,
    /// Buffers kept between calls.
    pub(crate) attachment: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Lent to the floor above.
    buffer: Vec<u8>,
}

impl Transaction {
    pub(crate) fn new(manager: Arc<TxnManager>, options: TxnOptions) -> Transaction {
        Transaction {
            manager,
            options,
            state: None,
            snapshot: None,
            exposed: false,
            held: HeldLocks::default(),
            prepared_met: Vec::new(),
            ended: false,
            undo_to: None,
            attachment: Vec::new(),
            scratch: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Its id, once it has written or locked something.
    #[must_use]
    pub fn id(&self) -> Option<TxnId> {
        self.state.as_ref().map(|state| state.id)
    }
    /// What it may see of others.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }
    /// The manager it runs under.
    #[must_use]
    pub fn manager(&self) -> &Arc<TxnManager> {
        &self.manager
    }
    /// Changes the longest wait for one lock; `None`: as long as it takes.
    pub fn set_lock_deadline(&mut self, limit: Option<std::time::Duration>) {
        self.options.lock_deadline = limit;
    }
    /// Whether it has written anything that is not undone.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.versions.lock().next_index() > 0)
    }

    /// Lends an empty buffer, with the memory of the one given back last by [`Transaction::keep_buffer`].
    #[must_use]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
    /// Takes a buffer back for the statements to come.
    pub fn keep_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.buffer = buffer;
    }

    /// A mark to which [`Transaction::rollback_to`] can return.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { index: self.state.as_ref().map_or(0, |state| state.versions.lock().next_index()) }
    }

    /// Begins a statement: the transaction must be running.
    pub(crate) fn begin_statement(&mut self) -> Result<(), TxnError> {
        if self.ended {
            return Err(TxnError::new(TxnErrorKind::Closed, "the transaction has ended"));
        }
        self.manager.check_usable()?;
        self.finish_undoing()?;
        if self.options.isolation == Isolation::ReadCommitted {
            self.drop_snapshot();
        }
        Ok(())
    }

    /// Begins a statement that writes.
    pub(crate) fn begin_write(&mut self) -> Result<(), TxnError> {
        if self.options.read_only {
            return Err(TxnError::new(TxnErrorKind::ReadOnly, "the transaction was begun read-only"));
        }
        self.begin_statement()
    }

    /// The snapshot to read by; taken now if there is none.
    pub(crate) fn ensure_snapshot(&mut self) {
        if self.snapshot.is_none() {
            self.snapshot = Some(self.manager.take_snapshot());
        }
    }
    pub(crate) fn drop_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.manager.release_snapshot(&snapshot);
        }
    }

    /// Its identity for others; taken now if it has none.
    pub(crate) fn ensure_state(&mut self) -> TxnId {
        match &self.state {
            Some(state) => state.id,
            None => {
                let state = self.manager.enroll();
                let id = state.id;
                self.state = Some(state);
                id
            }
        }
    }

    /// Waits until one of `blockers` has ended, or was prepared and so gave its explicit locks back.
    pub(crate) fn wait_for(&mut self, blockers: &[TxnId]) -> Result<(), TxnError> {
        let me = self.ensure_state();
        if self.manager.undo_instead_of_waiting(blockers)? {
            return Ok(());
        }
        let deadline = deadline_from(self.options.lock_deadline);
        let Transaction { manager, prepared_met, .. } = self;
        // The locks were given back before it could be seen that it is prepared. So the caller looks once more,
        // and if it still is in the way, it is by a row that it wrote.
        let newly_prepared = |met: &[TxnId], id: TxnId| !met.contains(&id) && manager.is_prepared(id);
        let met_before = prepared_met.len();
        for &id in blockers {
            if newly_prepared(prepared_met, id) {
                prepared_met.push(id);
            }
        }
        if prepared_met.len() > met_before {
            return Ok(());
        }
        // Poisoning wakes everyone who waits, and whoever comes later does not go to sleep.
        let in_vain = |id| manager.is_broken() || manager.has_ended(id) || newly_prepared(prepared_met, id);
        let outcome = manager.waits.wait(me, blockers, in_vain, deadline, self.options.cancel.as_ref());
        manager.check_usable()?;
        outcome
    }

    /// Locks a key explicitly, waiting as long as it takes.
    pub(crate) fn lock_key(&mut self, tree: TreeId, key: &[u8], mode: Mode) -> Result<(), TxnError> {
        let me = self.ensure_state();
        loop {
            match self.manager.locks.lock_key(me, tree, key, mode, &mut self.held) {
                Ok(()) => return Ok(()),
                Err(blockers) => self.wait_for(&blockers)?,
            }
        }
    }

    /// A write met a version that its snapshot does not see. If nothing was shown by that snapshot it is
    /// exchanged, else the transaction must be run again.
    pub(crate) fn conflict(&mut self, writer: TxnId) -> Result<(), TxnError> {
        if !self.exposed || self.options.isolation == Isolation::ReadCommitted {
            self.drop_snapshot();
            return Ok(());
        }
        self.manager.counters.conflicts.fetch_add(1, firn_base::sync::atomic::Ordering::Relaxed);
        Err(TxnError::new(
            TxnErrorKind::Conflict,
            format!(
                "transaction {writer} changed the row since this transaction's snapshot; roll back and try again"
            ),
        ))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // An error has poisoned the manager.
        let _ = self.roll_back_all();
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({:?}, {:?})", self.id(), self.options.isolation)
    }
}
