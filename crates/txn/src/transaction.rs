//! A transaction's own state, and its waits.

use crate::error::{TxnError, TxnErrorKind};
use crate::kept::Kept;
use crate::locks::{Blockers, EXCLUSIVE_MAX, HeldLocks, Wanted};
use crate::manager::TxnManager;
use crate::options::{Isolation, TxnOptions};
use crate::page_images::OfTransaction;
use crate::request::{PASSED_MAX, Request};
use crate::snapshot::Snapshot;
use crate::spare_buffers;
use crate::state::TxnState;
use crate::statement_view::StatementView;
use crate::token::TxnToken;
use crate::waits::{StatementLimit, WaitLimit, Waited};
use firndb_base::clock;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use firndb_base::{Lsn, PageId, TxnId};

impl TxnManager {
    /// Begins a transaction. Costs nothing until it reads or writes.
    #[must_use]
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Transaction {
        Transaction::new(self.clone(), options)
    }
}

/// A mark to roll back to. Belongs to the transaction that made it; any other refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    pub(crate) token: TxnToken,
    pub(crate) index: u32,
}

/// A running transaction. Owned, and usable from one thread at a time. Dropping it rolls it back.
pub struct Transaction {
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) options: TxnOptions,
    token: TxnToken,
    /// Present once it has written or locked.
    pub(crate) state: Option<Arc<TxnState>>,
    pub(crate) snapshot: Option<Snapshot>,
    /// The snapshot outlives the call that runs: see [`Transaction::in_statement`].
    in_statement: bool,
    /// What ends waits for locks besides the transaction's options.
    statement_limit: StatementLimit,
    /// What the released snapshots have seen: the commit waits until it is durable.
    pub(crate) seen_lsn: Lsn,
    /// Whether the caller has been shown, or has written, anything (under the present snapshot, if
    /// there is one). Until then the snapshot may be exchanged for a newer one instead of failing
    /// with a conflict, and a commit has nothing to wait for.
    pub(crate) exposed: bool,
    pub(crate) held: HeldLocks,
    /// Its request has joined the queue for locks.
    queued: bool,
    /// Of blockers that have released locks without ending: how often they had when it met them
    /// last.
    releases_met: Vec<(TxnId, u32)>,
    pub(crate) ended: bool,
    /// Calls that may have changed rows.
    pub(crate) writes: u64,
    /// A return to a savepoint, the one before this entry, is not complete.
    pub(crate) undo_to: Option<u32>,
    /// Buffers kept between calls.
    pub(crate) attachment: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Lent to the layer above.
    buffer: Vec<u8>,
    pub(crate) kept: Kept,
    /// Of pages that it has put.
    pub(crate) images: OfTransaction,
    /// A return to a savepoint may undo entries from this one on.
    pub(crate) newest_savepoint: AtomicU32,
    /// The page that the last write took into use, and a version for its content.
    pub(crate) taken: Option<(PageId, Lsn)>,
}

/// A call, while it runs. It ends when this is dropped: also when a closure of the caller's panics,
/// so that no later call reads by its snapshot, and no other transaction lets its request go first.
pub(crate) struct Call<'t>(pub(crate) &'t mut Transaction);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.leave_queue();
        self.0.end_call();
    }
}

/// Calls with a limit, while they run.
struct Limited<'t> {
    txn: &'t mut Transaction,
    before: StatementLimit,
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.txn.statement_limit, &mut self.before);
    }
}

/// A statement of several calls, while one of them runs. It ends, or is left until the next one,
/// when this is dropped: also when a predicate of the caller's panics, so that no later statement
/// reads by its snapshot.
struct Statement<'t> {
    txn: &'t mut Transaction,
    /// Keeps the snapshot for the next call, if there may be one.
    view: Option<&'t mut StatementView>,
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        let Statement { txn, view } = self;
        txn.in_statement = false;
        match view {
            None => txn.drop_snapshot(),
            Some(view) => {
                if let Some(snapshot) = txn.snapshot.take() {
                    txn.seen_lsn = txn.seen_lsn.max(snapshot.seen_lsn);
                    view.keep(&txn.manager, snapshot);
                }
            }
        }
    }
}

impl Transaction {
    pub(crate) fn new(manager: Arc<TxnManager>, options: TxnOptions) -> Transaction {
        let [attachment, scratch, buffer] = spare_buffers::take();
        Transaction {
            manager,
            options,
            token: TxnToken::next(),
            state: None,
            snapshot: None,
            in_statement: false,
            statement_limit: StatementLimit::default(),
            seen_lsn: Lsn::ZERO,
            exposed: false,
            held: HeldLocks::default(),
            queued: false,
            releases_met: Vec::new(),
            ended: false,
            writes: 0,
            undo_to: None,
            attachment,
            scratch,
            buffer,
            kept: Kept::default(),
            images: None,
            newest_savepoint: AtomicU32::new(0),
            taken: None,
        }
    }

    /// Its id, once it has written or locked something.
    #[must_use]
    pub fn id(&self) -> Option<TxnId> {
        self.state.as_ref().map(|state| state.id)
    }
    /// Names the transaction among all of the process, from its beginning on.
    #[must_use]
    pub fn token(&self) -> TxnToken {
        self.token
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
    /// Whether it has written anything that is not undone.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.next_index() > 0
    }

    /// A number that grows whenever the transaction writes or takes writes back: while it stays, so
    /// do the rows that a snapshot showed to this transaction.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Fails if the transaction's token or that of its statement is cancelled, or the statement's
    /// deadline has passed: between the parts of a long read.
    pub fn check_cancelled(&self) -> Result<(), TxnError> {
        let limit = &self.statement_limit;
        if [&self.options.cancel, &limit.cancel].into_iter().flatten().any(|token| token.is_cancelled()) {
            return Err(TxnError::new(TxnErrorKind::Cancelled, "the read was cancelled"));
        }
        if limit.deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return Err(TxnError::new(TxnErrorKind::Timeout, "the read took longer than its deadline"));
        }
        Ok(())
    }

    /// Lends an empty buffer, with the memory of the one returned last by
    /// [`Transaction::keep_buffer`].
    #[must_use]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
    /// Takes a buffer back for the statements to come.
    pub fn keep_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.buffer = buffer;
    }

    /// What the layer above keeps until the transaction ends, or newer things take its place. It is
    /// taken out to be used, and kept again.
    pub fn kept(&mut self) -> &mut Kept {
        &mut self.kept
    }

    /// A mark to which [`Transaction::rollback_to`] can return.
    #[must_use]
    pub fn savepoint(&self) -> Savepoint {
        let savepoint = self.statement_savepoint();
        self.newest_savepoint.fetch_max(savepoint.index, Relaxed);
        savepoint
    }

    /// As [`Transaction::savepoint`], for a return within the statement that makes it, if
    /// something else that it does fails.
    #[must_use]
    pub fn statement_savepoint(&self) -> Savepoint {
        Savepoint { token: self.token, index: self.next_index() }
    }

    /// Whether it has written anything since the savepoint, or has yet to finish a return to one.
    #[must_use]
    pub fn has_written_since(&self, savepoint: &Savepoint) -> bool {
        self.next_index() != savepoint.index || self.undo_to.is_some()
    }

    /// Index that its next undo entry gets.
    pub(crate) fn next_index(&self) -> u32 {
        self.state.as_ref().map_or(0, |state| state.versions.next_index())
    }

    /// Runs the calls of one statement: under read committed they share the snapshot that `view`
    /// keeps, which the first call of the first such statement takes. At the other levels calls
    /// share a snapshot, or read under locks, anyway.
    ///
    /// Only reads by snapshot belong in here: a read for update may have to exchange the snapshot.
    pub fn in_statement<R>(
        &mut self,
        view: &mut StatementView,
        run: impl FnOnce(&mut Transaction) -> R,
    ) -> R {
        if self.options.isolation != Isolation::ReadCommitted || self.in_statement {
            return run(self);
        }
        self.drop_snapshot();
        self.snapshot = view.take();
        self.in_statement = true;
        let statement = Statement { txn: self, view: Some(view) };
        run(&mut *statement.txn)
    }

    /// Runs calls whose waits for locks end by this limit, too.
    pub fn limited<R>(&mut self, limit: StatementLimit, run: impl FnOnce(&mut Transaction) -> R) -> R {
        let before = std::mem::replace(&mut self.statement_limit, limit);
        let limited = Limited { txn: self, before };
        run(&mut *limited.txn)
    }

    /// As [`Transaction::in_statement`], with a snapshot that is released at once.
    pub fn in_one_statement<R>(&mut self, run: impl FnOnce(&mut Transaction) -> R) -> R {
        if self.options.isolation != Isolation::ReadCommitted || self.in_statement {
            return run(self);
        }
        self.in_statement = true;
        let statement = Statement { txn: self, view: None };
        run(&mut *statement.txn)
    }

    /// Ends a call: under read committed its snapshot holds nothing back any more.
    #[inline]
    pub(crate) fn end_call(&mut self) {
        if self.options.isolation == Isolation::ReadCommitted && !self.in_statement {
            self.drop_snapshot();
        }
    }

    /// Begins a statement, or goes on with one: the transaction must be running, and what a return
    /// to a savepoint has left is undone first.
    pub fn begin_statement(&mut self) -> Result<(), TxnError> {
        if self.ended {
            return Err(TxnError::new(TxnErrorKind::Closed, "the transaction has ended"));
        }
        self.manager.check_usable()?;
        self.finish_undoing()
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
    /// Whether the caller has been shown anything by this transaction, or has changed anything:
    /// then what it sees stays as it is, and what others change meanwhile is a `Conflict`.
    #[must_use]
    pub fn has_seen(&self) -> bool {
        self.exposed
    }

    /// After a statement that met a `Conflict` and was undone, in a transaction that had not seen
    /// anything before ([`Transaction::has_seen`]): it has not again, and what it sees next is
    /// newer.
    pub fn see_anew(&mut self) {
        self.drop_snapshot();
        self.exposed = false;
    }

    pub(crate) fn drop_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.seen_lsn = self.seen_lsn.max(snapshot.seen_lsn);
            self.manager.release_snapshot(&snapshot);
        }
    }

    /// Its identity for others; taken now if it has none.
    pub(crate) fn ensure_state(&mut self) -> Result<TxnId, TxnError> {
        match &self.state {
            Some(state) => Ok(state.id),
            None => self.enroll(false),
        }
    }

    /// As [`Transaction::ensure_state`], for a write: one that begins the transaction needs a
    /// snapshot, too. Read committed takes one a statement.
    pub(crate) fn ensure_state_to_write(&mut self) -> Result<TxnId, TxnError> {
        match &self.state {
            Some(state) => Ok(state.id),
            None => self.enroll(self.options.isolation == Isolation::Snapshot && self.snapshot.is_none()),
        }
    }

    fn enroll(&mut self, with_snapshot: bool) -> Result<TxnId, TxnError> {
        let (state, snapshot) = self.manager.enroll(with_snapshot)?;
        let id = state.id;
        self.state = Some(state);
        self.snapshot = self.snapshot.take().or(snapshot);
        Ok(id)
    }

    /// Waits until one of `blockers` has ended, or has given locks back or left the queue. The
    /// caller then asks again for what it `wanted`; a lock on a range is not given back meanwhile,
    /// and its reader does not join the queue.
    ///
    /// No wake-up is lost. A transaction that ends is marked so before waiters are woken, and one
    /// that releases locks without ending (it is prepared, or its rollback is put off) counts that
    /// first. The caller has checked the lock before this call: if a blocker has counted since it
    /// was met last, the caller checks again, and sleeps only over a count that it knew while it
    /// checked. A release that is counted later finds it asleep.
    pub(crate) fn wait_for(
        &mut self,
        wanted: Option<Wanted<'_>>,
        blockers: &Blockers,
        request: &mut Request,
    ) -> Result<(), TxnError> {
        let me = self.ensure_state()?;
        let limit = request.limit.get_or_insert_with(|| {
            WaitLimit::new(self.options.lock_deadline, self.options.cancel.as_ref())
                .within(&self.statement_limit)
        });
        let Transaction { manager, releases_met, queued, .. } = self;
        let mut look_again = false;
        for &id in blockers.as_slice() {
            look_again |= note_releases(releases_met, id, manager.releases(id));
        }
        if releases_met.len() > RELEASES_KEPT {
            releases_met.retain(|(id, _)| blockers.as_slice().contains(id) || !manager.has_ended(*id));
        }
        if look_again {
            return Ok(());
        }
        if let Blockers::Holders(holders) = blockers
            && manager.undo_instead_of_waiting(holders, limit)?
        {
            return Ok(());
        }
        if let Some(wanted) = wanted.filter(|_| request.passed >= PASSED_MAX && !*queued) {
            *queued = true;
            manager.locks.join_queue(me, wanted);
        }
        // Poisoning wakes all waiters, and later ones do not go to sleep.
        let in_vain = |id| {
            manager.is_broken()
                || manager.has_ended(id)
                || manager.releases(id) > met(releases_met, id)
                || manager.is_set_aside(id)
        };
        let outcome = manager.waits.wait(me, blockers, in_vain, limit);
        manager.check_usable()?;
        match outcome? {
            Waited::NotAtAll => {}
            Waited::Slept => request.note_sleep(blockers),
            Waited::GoesFirst => request.goes_first = true,
        }
        Ok(())
    }

    /// Leaves the queue for locks, if the transaction is in it: its request has ended.
    #[inline]
    pub(crate) fn leave_queue(&mut self) {
        if self.queued {
            self.leave_queue_now();
        }
    }

    #[cold]
    fn leave_queue_now(&mut self) {
        self.queued = false;
        let state = self.state.as_ref().expect("it has asked for a lock");
        self.manager.locks.queue.leave(state.id);
        state.note_release();
        self.manager.waits.ended(state.id);
    }

    /// A write met a version that its snapshot does not see. If nothing was shown by that snapshot
    /// it is exchanged, else the transaction must be run again.
    pub(crate) fn conflict(&mut self, writer: TxnId) -> Result<(), TxnError> {
        if !self.exposed || self.options.isolation == Isolation::ReadCommitted {
            self.drop_snapshot();
            return Ok(());
        }
        self.manager.counters.conflicts.fetch_add(1, firndb_base::sync::atomic::Ordering::Relaxed);
        Err(TxnError::new(
            TxnErrorKind::Conflict,
            format!(
                "transaction {writer} changed the row since this transaction's snapshot; roll back and try again"
            ),
        ))
    }
}

pub(crate) fn too_many_locks() -> TxnError {
    TxnError::new(
        TxnErrorKind::TooMany,
        format!(
            "the transaction has locked {EXCLUSIVE_MAX} keys for update, which is the limit: commit in smaller pieces, or write \
             the rows without locking them first"
        ),
    )
}

/// With more notes than these of blockers that released locks, those of ended ones are dropped.
const RELEASES_KEPT: usize = 64;

/// How often a transaction was known to have given locks back when it was met.
fn met(releases_met: &[(TxnId, u32)], id: TxnId) -> u32 {
    releases_met.iter().find(|(of, _)| *of == id).map_or(0, |(_, releases)| *releases)
}

/// Notes how often a transaction has given locks back; whether that is news.
fn note_releases(releases_met: &mut Vec<(TxnId, u32)>, id: TxnId, releases: u32) -> bool {
    if releases <= met(releases_met, id) {
        return false;
    }
    releases_met.retain(|(of, _)| *of != id);
    releases_met.push((id, releases));
    true
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // An error has poisoned the manager.
        let _ = self.roll_back_all();
        spare_buffers::keep([&mut self.attachment, &mut self.scratch, &mut self.buffer].map(std::mem::take));
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({:?}, {:?})", self.id(), self.options.isolation)
    }
}
