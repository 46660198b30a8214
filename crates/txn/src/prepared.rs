//! Two-phase commit: transactions that are prepared, and decided from outside.
//!
//! Invariants:
//! * A prepared transaction stands in the list, by its global id, from its prepare record to its
//!   decision: both records are appended under the list's lock. So a checkpoint, which takes that
//!   lock, names it as prepared, or its decision lies behind the log's end as the checkpoint read
//!   it before.
//! * The rows that it wrote are locked by their headers. Keys that it locked for update and did not
//!   write are in its prepare record, so that they are locked again after a crash. Its locks for
//!   reading end: it does nothing any more, so two-phase locking allows that.
//! * Space for its decision is set aside in the log before it is prepared, and space to undo it is
//!   promised while it is open. So no decision is refused for lack of space: a commit is one
//!   record, and so is the decision to roll back, after which the undoing may be put off.
//! * A reader under two-phase locking that finds the rows as they were before a prepared
//!   transaction ends its commit only when the decision to roll back is durable: a crash before
//!   that brings the transaction back prepared, and it may be committed then.
//! * How many there are, and how many bytes checkpoints list them in, is bounded; beyond that
//!   `prepare` fails.

use crate::commit::CommitHandle;
use crate::error::{TxnError, TxnErrorKind};
use crate::header::RowHeader;
use crate::locks::HeldLocks;
use crate::prepared_list::{LockedKey, Prepared, prepare_record};

use crate::manager::TxnManager;
use crate::state::{Status, TxnState};
use crate::transaction::Transaction;
use crate::waits::WaitLimit;
use firndb_base::codec::Writer;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Lsn, TreeId, TxnId};
use firndb_log::{Kind, LogClass, Record};

/// Longest global id, in bytes.
const GID_MAX: usize = 256;
impl Transaction {
    /// Two-phase commit, first phase: after it, the transaction survives a crash with its writes
    /// locked and unseen, until [`TxnManager::commit_prepared`] or
    /// [`TxnManager::rollback_prepared`] names `gid`. What it has locked for update stays locked as
    /// well; its locks for reading end here. The handle tells when the promise is durable.
    ///
    /// Errors: `BadArgument` if `gid` is empty, longer than 256 bytes or taken, or if nothing was
    /// written; `TooMany` if too many transactions are prepared, or this one has locked too many
    /// keys that it did not write; `LogFull`. The transaction is rolled back then.
    pub fn prepare(mut self, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.begin_write()?;
        let refuse = |message: &str| Err(TxnError::new(TxnErrorKind::BadArgument, message));
        if gid.is_empty() || gid.len() > GID_MAX {
            return refuse("a global transaction id has 1 to 256 bytes");
        }
        let Some(state) = self.state.clone().filter(|_| self.has_writes()) else {
            return refuse("a transaction that wrote nothing cannot be prepared; commit it");
        };
        self.settle_images()?;
        let manager = self.manager.clone();
        let keys = manager.locked_and_not_written(&state, &self.held);
        let body = prepare_record(state.id, gid, &keys);
        let held = &mut self.held;
        let mut lsn = Lsn::ZERO;
        manager.with_log_space(|| {
            let mut list = manager.prepared.lock();
            list.admit(&manager.log, gid, body.len())?;
            manager.locks.release_but(state.id, held, &keys);
            state.note_release();
            manager.waits.ended(state.id);
            lsn = manager.append_prepare(&state, &body)?;
            let prepared = Prepared {
                state: state.clone(),
                held: std::mem::take(held),
                keys: keys.clone(),
                bytes: body.len() as u64,
            };
            list.insert(gid.to_vec(), prepared);
            Ok(())
        })?;
        self.state = None;
        self.ended = true;
        self.drop_snapshot();
        Ok(CommitHandle::new(manager, lsn))
    }
}

impl TxnManager {
    /// The keys that a transaction has locked for update and did not write, sorted. What it wrote
    /// is locked by its header.
    fn locked_and_not_written(&self, state: &TxnState, held: &HeldLocks) -> Vec<LockedKey> {
        let mut keys = self.locks.exclusive_keys(state.id, held);
        keys.retain(|(tree, key)| !self.is_written_by(state.id, *tree, key));
        keys.sort();
        keys
    }

    /// Whether the row's newest version is known to be the transaction's.
    fn is_written_by(&self, id: TxnId, tree: TreeId, key: &[u8]) -> bool {
        let Some(tree) = self.tree(tree) else { return false };
        let by = |value: &[u8]| RowHeader::split(value).is_ok_and(|(header, _)| header.writer == id);
        // A page that cannot be read may hold anything: then the lock is kept.
        tree.get(key, |value| value.is_some_and(by)).unwrap_or(false)
    }

    /// Sets space aside for the decision, and appends the prepare record. Returns its end.
    fn append_prepare(&self, state: &TxnState, body: &[u8]) -> Result<Lsn, TxnError> {
        self.log.decisions().fetch_add(1, Ordering::SeqCst);
        let record = Record { kind: Kind::PREPARE, body };
        let appended =
            self.append_registered(LogClass::Rollback, record, |_, _| state.set_status(Status::Prepared));
        appended.inspect_err(|_| self.release_decision())
    }

    /// The space set aside for one decision is needed no more.
    fn release_decision(&self) {
        let before = self.log.decisions().fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "space was set aside for each decision");
    }

    /// Commits a prepared transaction, from any thread. Never refused for lack of space in the log.
    ///
    /// Errors: `BadArgument` if none has this id.
    pub fn commit_prepared(self: &Arc<Self>, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.check_usable()?;
        let mut lsn = Lsn::ZERO;
        self.with_log_space(|| {
            let mut list = self.prepared.lock();
            let prepared = list.get_mut(gid).ok_or_else(|| not_prepared(gid))?;
            lsn = self.order(&prepared.state, &mut prepared.held, &mut None, LogClass::Decision)?;
            self.release_decision();
            list.remove(gid);
            Ok(())
        })?;
        Ok(CommitHandle::new(self.clone(), lsn))
    }

    /// Rolls a prepared transaction back, from any thread. Until the handle says that this is
    /// durable, a crash may bring it back prepared. Never refused for lack of space in the log: the
    /// decision is one record. What finds no space to be undone in, or needs a page that cannot be
    /// read, is undone later, as that of any transaction that rolls back.
    ///
    /// Errors: `BadArgument` if none has this id; else those after which the database must be
    /// opened again.
    pub fn rollback_prepared(self: &Arc<Self>, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.check_usable()?;
        let mut decided = None;
        self.with_log_space(|| {
            let mut list = self.prepared.lock();
            let state = &list.get(gid).ok_or_else(|| not_prepared(gid))?.state;
            let mut body = Vec::new();
            body.put_varint(state.id.0);
            let record = Record { kind: Kind::ROLLBACK, body: &body };
            let lsn = self.append_registered(LogClass::Decision, record, |registry, end| {
                registry.note_rollback(end);
                state.set_status(Status::Active);
            })?;
            self.release_decision();
            decided = list.remove(gid).map(|prepared| (prepared, lsn));
            Ok(())
        })?;
        let (Prepared { state, mut held, .. }, lsn) = decided.expect("found above");
        match self.roll_back_patiently(&state, &mut held, &WaitLimit::default()) {
            Ok(()) => {}
            Err(error) if error.allows_undoing_later() => self.undo_later(&state, &mut held, &error),
            // Half undone it would have no owner: no thread could ever end it, and its rows would
            // stay locked.
            Err(error) => {
                self.poison(error.clone());
                return Err(error);
            }
        }
        Ok(CommitHandle::new(self.clone(), lsn))
    }
}

fn not_prepared(gid: &[u8]) -> TxnError {
    let message = format!("no prepared transaction has the id {}", gid.escape_ascii());
    TxnError::new(TxnErrorKind::BadArgument, message)
}
