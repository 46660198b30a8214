//! Ending transactions well: commit in two calls.

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::HeldLocks;
use crate::manager::TxnManager;
use crate::options::Isolation;
use crate::purge::Forgotten;
use crate::registry::Registry;
use crate::snapshot::Snapshot;
use crate::state::{Status, TxnState};
use crate::transaction::Transaction;
use crate::versions::Versions;
use firndb_base::codec::Writer;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, TxnId, clock};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, Record};

/// A commit that is ordered: visible to others, and durable soon. Dropping the handle changes
/// nothing.
#[derive(Clone)]
pub struct CommitHandle {
    manager: Arc<TxnManager>,
    /// Durable once the log is durable up to here.
    lsn: Lsn,
}

impl CommitHandle {
    pub(crate) fn new(manager: Arc<TxnManager>, lsn: Lsn) -> CommitHandle {
        CommitHandle { manager, lsn }
    }
    /// End of the commit record; of the last commit, or decision to roll a prepared transaction
    /// back, that was seen, for a transaction that only read.
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
    /// Errors: `Unknown` if a log device failed: whether the transaction committed is known after
    /// the next opening.
    pub fn wait(&self) -> Result<(), TxnError> {
        if self.is_durable() {
            return Ok(());
        }
        self.manager.log.flush(self.lsn).map_err(|error| {
            // What was ordered is visible in memory and may be lost by the next opening: nothing
            // more may be built on it.
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
    /// Commits and waits until the commit is durable. A transaction that only read waits until what
    /// it saw is durable.
    ///
    /// Errors: `Unknown` (see [`CommitHandle::wait`]); any other error means that nothing was
    /// committed.
    pub fn commit(self) -> Result<(), TxnError> {
        self.commit_order()?.wait()
    }

    /// The first half of a commit: its place in the order of commits is fixed, its changes are
    /// visible, its locks are free. The second half is [`CommitHandle::wait`].
    pub fn commit_order(mut self) -> Result<CommitHandle, TxnError> {
        if self.ended {
            return Err(TxnError::new(TxnErrorKind::Closed, "the transaction has ended"));
        }
        self.manager.check_usable()?;
        self.finish_undoing()?;
        self.settle_images()?;
        let seen = match &self.snapshot {
            Some(snapshot) => snapshot.seen_lsn.max(self.seen_lsn),
            None if self.exposed && self.options.isolation == Isolation::Serializable => {
                self.manager.registry.lock().last_decision
            }
            None => self.seen_lsn,
        };
        let writes = self.state.as_ref().is_some_and(|state| state.versions.next_index() > 0);
        let lsn = match self.state.take() {
            None => seen,
            Some(state) if !writes => {
                self.manager.finish(&state, Status::Aborted, None, &mut self.held);
                seen
            }
            Some(state) => {
                match self.manager.order_with_log_space(&state, &mut self.held, &mut self.snapshot) {
                    Ok(end) => end,
                    Err(error) => {
                        self.state = Some(state); // the drop rolls it back
                        return Err(error);
                    }
                }
            }
        };
        self.ended = true;
        match self.snapshot.take() {
            Some(snapshot) => self.manager.release_and_purge(&snapshot),
            // A commit that writes purges as it is ordered.
            None if !writes => _ = self.manager.purge_versions(),
            None => {}
        }
        Ok(CommitHandle { manager: self.manager.clone(), lsn })
    }
}

impl TxnManager {
    /// As [`TxnManager::order`]; if another transaction's undoing has used up the log's reserve,
    /// waits for space and tries again. Called with no lock held.
    fn order_with_log_space(
        &self,
        state: &TxnState,
        held: &mut HeldLocks,
        snapshot: &mut Option<Snapshot>,
    ) -> Result<Lsn, TxnError> {
        let mut end = Lsn::ZERO;
        self.with_log_space(|| {
            end = self.order(state, held, snapshot, LogClass::Rollback)?;
            Ok(())
        })?;
        Ok(end)
    }

    /// Appends a record and notes in the registry what it means, both under the registry's lock.
    /// Returns the record's end.
    ///
    /// Every transaction takes that lock, so no device is waited for under it: while the log's
    /// buffer is full, it is released and taken again.
    pub(crate) fn append_registered(
        &self,
        class: LogClass,
        record: Record<'_>,
        note: impl FnOnce(&mut Registry, Lsn),
    ) -> Result<Lsn, TxnError> {
        loop {
            let mut registry = self.registry.lock();
            match self.log.try_append(class, record) {
                Ok(appended) => {
                    note(&mut registry, appended.end);
                    return Ok(appended.end);
                }
                Err(error) if error.kind == LogErrorKind::BufferFull => {
                    drop(registry);
                    self.log.wait_for_buffer(Log::framed_len(record.body.len()))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Appends the commit record, makes the changes visible, and releases the transaction's
    /// snapshot. Returns the record's end. Forgets what is not needed any more of transactions that
    /// have committed, mostly this one: all under one lock, which every transaction takes.
    pub(crate) fn order(
        &self,
        state: &TxnState,
        held: &mut HeldLocks,
        snapshot: &mut Option<Snapshot>,
        class: LogClass,
    ) -> Result<Lsn, TxnError> {
        let mut body = Vec::with_capacity(20);
        body.put_varint(state.id.0);
        body.put_varint(clock::unix_time_us());
        let record = Record { kind: Kind::COMMIT, body: &body };
        let (mut gather, mut forgotten) = (false, Forgotten::default());
        let end = self.append_registered(class, record, |registry, end| {
            // Before it can be purged.
            let mut versions = state.versions.lock();
            versions.end_promise(self.log.undo_promise());
            check_sampled(state.id, &versions);
            if !versions.ghosts.is_empty() {
                gather = self.backlog.leave(std::mem::take(&mut versions.ghosts));
                versions.account(&self.version_bytes);
            }
            if let Some(snapshot) = snapshot.take() {
                registry.release(&snapshot);
            }
            let purged = registry.needs_nothing_kept().then_some((state.id, versions.spilled));
            registry.end(state, Status::Committed, Some(end));
            if purged.is_some() {
                registry.spare.keep(versions.clear_for_reuse(&self.version_bytes));
            }
            drop(versions);
            forgotten = self.take_forgotten(registry, purged);
        })?;
        self.forget(forgotten);
        if gather {
            self.gather_ghosts();
        }
        self.locks.release(state.id, held);
        self.waits.ended(state.id);
        Ok(end)
    }

    /// Ends a transaction that left nothing behind.
    pub(crate) fn finish(&self, state: &TxnState, status: Status, end: Option<Lsn>, held: &mut HeldLocks) {
        self.registry.lock().end(state, status, end);
        self.retire(state.id);
        let mut versions = state.versions.lock();
        versions.end_promise(self.log.undo_promise());
        check_sampled(state.id, &versions);
        versions.clear(&self.version_bytes);
        drop(versions);
        self.locks.release(state.id, held);
        self.waits.ended(state.id);
    }
}

/// In debug builds, one transaction in this many checks its undo entries when it ends.
const CHECKED_ONE_IN: u64 = 16;

fn check_sampled(id: TxnId, versions: &Versions) {
    if cfg!(debug_assertions) && id.0.is_multiple_of(CHECKED_ONE_IN) {
        versions.check();
    }
}
