//! Ending transactions well: commit in two calls, and two-phase commit.

use crate::attachment::kinds;
use crate::locks::HeldLocks;
use crate::state::{Status, TxnState};
use crate::{Transaction, TxnError, TxnErrorKind, TxnManager};
use firn_base::codec::Writer;
use firn_base::sync::Arc;
use firn_base::sync::atomic::Ordering;
use firn_base::{Lsn, clock};
use firn_log::{LogClass, Record};

/// A commit that is ordered: visible to others, and durable soon. Dropping the handle changes nothing.
#[derive(Clone)]
pub struct CommitHandle {
    manager: Arc<TxnManager>,
    /// Durable once the log is durable up to here.
    lsn: Lsn,
}

impl CommitHandle {
    /// End of the commit record; of the last commit seen, for a transaction that only read.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
    /// Whether it has become durable. Never blocks.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.manager.log.durable() >= self.lsn
    }
    /// Has the log flushed in the background.
    pub fn request(&self) {
        self.manager.log.request_flush(self.lsn);
    }
    /// Blocks until it is durable.
    ///
    /// Errors: `Unknown` if a log device failed: whether the transaction committed is known after the next
    /// opening.
    pub fn wait(&self) -> Result<(), TxnError> {
        if self.is_durable() {
            return Ok(());
        }
        self.manager.log.flush(self.lsn).map_err(|error| {
            // What was ordered is visible in memory and may be gone after the next opening: nothing more may
            // be built on it.
            self.manager.poison(TxnError::new(TxnErrorKind::Failed, error.message.clone()));
            TxnError::new(TxnErrorKind::Unknown, error.message)
        })
    }
}

impl std::fmt::Debug for CommitHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommitHandle({:?}, durable: {})", self.lsn, self.is_durable())
    }
}

impl Transaction {
    /// Commits and waits until the commit is durable. A transaction that only read waits until what it saw
    /// is durable.
    ///
    /// Errors: `Unknown` (see [`CommitHandle::wait`]); any other error means that nothing was committed.
    pub fn commit(self) -> Result<(), TxnError> {
        self.commit_order()?.wait()
    }

    /// The first half of a commit: its place in the order of commits is fixed, its changes are visible, its
    /// locks are free. The second half is [`CommitHandle::wait`].
    pub fn commit_order(mut self) -> Result<CommitHandle, TxnError> {
        if self.ended {
            return Err(TxnError::new(TxnErrorKind::Closed, "the transaction has ended"));
        }
        self.manager.check_usable()?;
        self.finish_undoing()?;
        let seen = match &self.snapshot {
            Some(snapshot) => snapshot.seen_lsn,
            None if self.exposed => self.manager.registry.lock().last_commit,
            None => Lsn::ZERO,
        };
        let lsn = match self.state.take() {
            None => seen,
            Some(state) if state.versions.lock().next_index() == 0 => {
                self.manager.finish(&state, Status::Aborted, None, &mut self.held);
                seen
            }
            Some(state) => match self.manager.order_with_room(&state, &mut self.held) {
                Ok(end) => end,
                Err(error) => {
                    self.state = Some(state); // the drop rolls it back
                    return Err(error);
                }
            },
        };
        self.ended = true;
        self.drop_snapshot();
        self.manager.purge_versions();
        Ok(CommitHandle { manager: self.manager.clone(), lsn })
    }

    /// Two-phase commit, first phase: after it, the transaction survives a crash with its writes locked and
    /// unseen, until [`TxnManager::commit_prepared`] or [`TxnManager::rollback_prepared`] names `gid`.
    /// Its explicit locks for reading end here. The handle tells when the promise is durable.
    ///
    /// Errors: `BadArgument` if `gid` is empty, longer than 256 bytes or taken, or if nothing was written.
    pub fn prepare(mut self, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.begin_write()?;
        let refuse = |message: &str| Err(TxnError::new(TxnErrorKind::BadArgument, message));
        if gid.is_empty() || gid.len() > 256 {
            return refuse("a global transaction id has 1 to 256 bytes");
        }
        let Some(state) = self.state.clone().filter(|_| self.has_writes()) else {
            return refuse("a transaction that wrote nothing cannot be prepared; commit it");
        };
        let manager = self.manager.clone();
        let mut prepared = manager.prepared.lock();
        if prepared.contains_key(gid) || manager.unfinished.lock().contains_key(gid) {
            return refuse("a prepared transaction has this global id already");
        }
        let mut body = Vec::new();
        body.put_varint(state.id.0);
        body.put_blob(gid);
        // Before anybody sees that it is prepared: see `Transaction::wait_for`.
        manager.locks.release(state.id, &mut self.held);
        let end = {
            let _registry = manager.registry.lock();
            let record = Record { kind: kinds::PREPARE, body: &body };
            let end = manager.log.append(LogClass::Rollback, record)?.end;
            state.set_status(Status::Prepared);
            end
        };
        manager.waits.ended(state.id);
        prepared.insert(gid.to_vec(), state);
        self.state = None;
        self.ended = true;
        self.drop_snapshot();
        Ok(CommitHandle { manager: manager.clone(), lsn: end })
    }
}

impl TxnManager {
    /// As [`TxnManager::order`]; if another transaction's undoing has used up the log's reserve, waits for
    /// room and tries again. Called with no lock held.
    fn order_with_room(&self, state: &Arc<TxnState>, held: &mut HeldLocks) -> Result<Lsn, TxnError> {
        let mut end = Lsn::ZERO;
        self.with_room(|| {
            end = self.order(state, held)?;
            Ok(())
        })?;
        Ok(end)
    }

    /// Appends the commit record and makes the changes visible. Answers the record's end.
    fn order(&self, state: &Arc<TxnState>, held: &mut HeldLocks) -> Result<Lsn, TxnError> {
        let mut body = Vec::with_capacity(20);
        body.put_varint(state.id.0);
        body.put_varint(clock::unix_time_us());
        let record = Record { kind: kinds::COMMIT, body: &body };
        let end = {
            let mut registry = self.registry.lock();
            let end = self.log.append(LogClass::Rollback, record)?.end;
            // Before it can be purged.
            state.versions.lock().end_promise(self.log.undo_promise());
            registry.end(state, Status::Committed, Some(end));
            end
        };
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.locks.release(state.id, held);
        self.waits.ended(state.id);
        Ok(end)
    }

    /// Ends a transaction that left nothing behind.
    pub(crate) fn finish(
        &self,
        state: &Arc<TxnState>,
        status: Status,
        end: Option<Lsn>,
        held: &mut HeldLocks,
    ) {
        self.registry.lock().end(state, status, end);
        self.retire(state.id);
        let mut versions = state.versions.lock();
        versions.end_promise(self.log.undo_promise());
        versions.clear(&self.version_bytes);
        drop(versions);
        self.locks.release(state.id, held);
        self.waits.ended(state.id);
    }

    /// Commits a prepared transaction, from any thread.
    ///
    /// Errors: `BadArgument` if none has this id.
    pub fn commit_prepared(self: &Arc<Self>, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.check_usable()?;
        // It stays among the prepared ones until its record is appended: a checkpoint in between must not take
        // it for a transaction that recovery may roll back.
        let mut prepared = self.prepared.lock();
        let state = prepared.get(gid).ok_or_else(|| not_prepared(gid))?;
        let lsn = self.order(state, &mut HeldLocks::default())?;
        prepared.remove(gid);
        Ok(CommitHandle { manager: self.clone(), lsn })
    }

    /// Rolls a prepared transaction back, from any thread. Until the handle says that this is durable, a crash may
    /// bring it back prepared.
    ///
    /// Errors: `BadArgument` if none has this id; `LogFull` if there was no room for all of it: it goes on by itself when
    /// there is, and who asks again is told that it has ended; else those after which the database must be opened again.
    pub fn rollback_prepared(self: &Arc<Self>, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        self.check_usable()?;
        let Some(state) = self.prepared.lock().remove(gid) else { return self.rollback_prepared_again(gid) };
        state.set_status(Status::Active);
        let held = &mut HeldLocks::default();
        match self.roll_back_state(&state, held) {
            Err(error) if error.kind == TxnErrorKind::LogFull => {
                self.unfinished.lock().insert(gid.to_vec(), state.clone());
                self.undo_later(&state, held);
                Err(error)
            }
            // Half undone it is in nobody's hands: nobody could ever end it, and its rows would stay locked.
            Err(error) => {
                self.poison(error.clone());
                Err(error)
            }
            Ok(()) => Ok(CommitHandle { manager: self.clone(), lsn: self.log.end() }),
        }
    }

    /// Goes on with a rolling back that has found no room.
    fn rollback_prepared_again(self: &Arc<Self>, gid: &[u8]) -> Result<CommitHandle, TxnError> {
        let state = self.unfinished.lock().get(gid).cloned().ok_or_else(|| not_prepared(gid))?;
        self.undo_loser(state.id)?;
        if !state.has_ended() {
            let message = "the transaction is being rolled back; ask again";
            return Err(TxnError::new(TxnErrorKind::LogFull, message));
        }
        self.unfinished.lock().remove(gid);
        Ok(CommitHandle { manager: self.clone(), lsn: self.log.end() })
    }
}

fn not_prepared(gid: &[u8]) -> TxnError {
    let message = format!("no prepared transaction has the id {}", gid.escape_ascii());
    TxnError::new(TxnErrorKind::BadArgument, message)
}
