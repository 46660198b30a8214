//! Losers: transactions that are to be undone, and not by their owners. Recovery finds some; a
//! rollback that cannot be completed at once leaves one behind.
//!
//! A loser is undone entry by entry, each in one log record with its compensation (see
//! `rollback.rs`), so undoing may stop after any of them and continue later, in this epoch of the
//! database or the next. What is not undone stays as it is: the rows are locked by their headers,
//! and others see the versions before. Three things may keep a loser from being undone:
//!
//! * *no space*, in the log above all: it is tried again when there is some;
//! * *a failed read*: it is tried again at once, then a few times at growing intervals, since a
//!   device may be away for a moment;
//! * *damage*, to the page of one of its rows or to the undo tree: it is **set aside** until the
//!   next opening. All its other rows are undone and free. A transaction that would wait for one of
//!   the rest gets an error that names the damage.
//!
//! Why a loser that is set aside loses nothing and changes nothing that others may rely on:
//!
//! * *Checkpoints* list it with the number of its entries, as any open transaction. So the next
//!   opening finds it again, and the database is not marked as closed cleanly.
//! * *Truncation*: before-images in memory hold the log back, so checkpoints spill them as any open
//!   transaction's. None of it holds log then. If the undo tree is damaged as well, what cannot be
//!   spilled holds the log; see [`TxnManager::spill_older_than`].
//! * *Spilling* moves an entry and never changes it. An entry that was undone is gone from memory;
//!   a copy of it left in the undo tree, because its leaf is damaged, is recognised by the row,
//!   which does not carry its (writer, index) any more.
//! * *The order of undoing*: two changes of one row are undone newest first. Where the newer one
//!   cannot be undone the older ones of that row are left as well, and where it is not known which
//!   row that is (its entry cannot be read), all older entries are left.
//! * *A crash* finds the compensations of what was undone in the log, and the rest as it was.
//! * *The next opening* takes it for a loser as any other and tries again: after the damaged file
//!   was restored in place, or the table dropped, nothing is left of it. It never gets an abort
//!   record before all of it is undone: the undo entries are what tells its changes from committed
//!   ones.
//! * *Snapshots* list it as active, so its changes are seen by none. `low_water` stays below it, so
//!   no reader takes a header with its id for that of an ended transaction. *Fences* ignore it: it
//!   runs no statement and undoes nothing any more in this epoch. In the next one a dropped table
//!   has no rows to be undone, and rows of a dropped page file that are gone are found undone (see
//!   `Catalog::open`, which also says what is lost then).
//! * *The log's promise* to leave space for its undoing ends, since nothing is undone before the
//!   next opening, which renews it.

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::HeldLocks;
use crate::manager::TxnManager;
use crate::state::{Status, TxnState};
use crate::waits::WaitLimit;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::atomic::Ordering;
use firndb_base::sync::{Arc, Mutex, MutexGuard};
use firndb_base::{Progress, TxnId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often in a row one attempt reads a page that cannot be read.
const READS: u32 = 3;
/// How often an attempt is made again after reads that failed, before the loser is set aside.
const ATTEMPTS: u32 = 6;
/// How often a waiter with a limit checks whether another thread still undoes a loser.
const UNDOING_LOOK: Duration = Duration::from_millis(1);
/// The first interval between two attempts; each further one is twice as long.
const INTERVAL: Duration = Duration::from_secs(1);

/// What keeps a loser from being undone.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Nothing: recovery found it, and it is undone next.
    Found,
    /// There was no space, in the log as a rule.
    NoSpace,
    /// A read failed: how many attempts were made, and when the next one is due.
    Unreadable { attempts: u32, due: Option<Moment> },
    /// It is set aside until the next opening, because of this.
    SetAside(TxnError),
}

impl Standing {
    /// After `error`, of an attempt at one that stood so before.
    fn after(&self, error: &TxnError) -> Standing {
        match error.kind {
            TxnErrorKind::Damaged => Standing::SetAside(error.clone()),
            TxnErrorKind::Unreadable => {
                let attempts =
                    if let Standing::Unreadable { attempts, .. } = self { attempts + 1 } else { 0 };
                match attempts < ATTEMPTS {
                    true => {
                        Standing::Unreadable { attempts, due: clock::now().after(INTERVAL * (1 << attempts)) }
                    }
                    false => Standing::SetAside(error.clone()),
                }
            }
            _ => Standing::NoSpace,
        }
    }

    /// Whether `error`, of an attempt at one that stands so, changes how it stands. Clients that
    /// want its rows try at any time: reads that failed are counted once an interval only.
    fn counts(&self, error: &TxnError) -> bool {
        let early = matches!(self, Standing::Unreadable { .. }) && !self.is_due();
        error.concerns_a_page() && !(early && error.kind == TxnErrorKind::Unreadable)
    }

    /// Whether it was put off and is to be tried again now.
    fn is_due(&self) -> bool {
        match self {
            Standing::NoSpace => true,
            Standing::Unreadable { due, .. } => due.is_some_and(|due| due <= clock::now()),
            Standing::Found | Standing::SetAside(_) => false,
        }
    }
}

/// A transaction to be undone, and what keeps it from that.
#[derive(Clone, Debug)]
pub(crate) struct Loser {
    pub state: Arc<TxnState>,
    pub standing: Standing,
    /// Held by the thread that undoes it, and taken with no latch and no lock held. Several threads
    /// undo different losers.
    undoing: Arc<Mutex<()>>,
}

impl Loser {
    fn new(state: Arc<TxnState>, standing: Standing) -> Loser {
        Loser { state, standing, undoing: Arc::default() }
    }
}

impl TxnManager {
    /// Takes over a transaction that recovery found open.
    pub(crate) fn add_loser(&self, state: Arc<TxnState>) {
        self.losers.lock().insert(state.id, Loser::new(state, Standing::Found));
    }

    /// Leaves to others a transaction whose rollback came to `error`, which may have undone a part
    /// of it.
    pub(crate) fn undo_later(&self, state: &Arc<TxnState>, held: &mut HeldLocks, error: &TxnError) {
        assert!(state.status() == Status::Active && error.allows_undoing_later(), "it can be gone on with");
        // Its locks for reading are not needed any more; its rows are locked by their headers.
        self.locks.release(state.id, held);
        let standing = Standing::NoSpace.after(error);
        // Before others find it among the losers, and try it.
        self.stand(state, &standing);
        {
            let mut losers = self.losers.lock();
            losers.insert(state.id, Loser::new(state.clone(), standing.clone()));
            self.note_put_off(&losers);
        }
        state.note_release();
        self.report_failure(state.id, &standing);
    }

    /// Whether some transactions were put off and are to be tried again in this incarnation.
    #[must_use]
    pub fn has_put_off(&self) -> bool {
        self.put_off.load(Ordering::Relaxed)
    }

    /// Undoes one of the transactions that were put off, if it is due.
    ///
    /// Errors: as [`TxnManager::rollback_loser`], but for those of space, which mean: later.
    pub fn undo_put_off(&self) -> Result<Progress, TxnError> {
        match self.undo_first(Standing::is_due) {
            Ok(true) => Ok(Progress::Worked),
            Ok(false) => Ok(Progress::Idle),
            Err(error) if error.allows_undoing_later() => Ok(Progress::Idle),
            Err(error) => Err(error),
        }
    }

    /// Rolls back one transaction that recovery found open and not prepared; false if there is none
    /// left. One that damage or failing reads keep from being undone is dealt with, too: it is set
    /// aside, or tried again later. Others may run meanwhile, and call this too.
    ///
    /// Errors: those of space, and those after which the database must be opened again.
    pub fn rollback_loser(&self) -> Result<bool, TxnError> {
        self.undo_first(|standing| matches!(standing, Standing::Found))
    }

    /// How many are left to be rolled back, those included that are set aside.
    #[must_use]
    pub fn losers_left(&self) -> usize {
        self.losers.lock().len()
    }

    /// How many recovery has found and not tried yet.
    #[must_use]
    pub fn losers_found(&self) -> usize {
        self.losers.lock().values().filter(|loser| matches!(loser.standing, Standing::Found)).count()
    }

    /// How many are set aside until the next opening.
    #[must_use]
    pub fn losers_set_aside(&self) -> usize {
        self.losers.lock().values().filter(|loser| matches!(loser.standing, Standing::SetAside(_))).count()
    }

    /// Rolls back the losers among `blockers`; whether there was one. So a transaction that would
    /// wait for one of many losers waits for no other. The caller holds no latch.
    ///
    /// Errors: `Damaged` if one of them is set aside, so that there is nothing to wait for;
    /// `Timeout` and `Cancelled`, of `limit`. A waiter with a limit makes no space in the log for
    /// it, which may take a minute.
    pub(crate) fn undo_instead_of_waiting(
        &self,
        blockers: &[TxnId],
        limit: &WaitLimit,
    ) -> Result<bool, TxnError> {
        if let Some(error) = blockers.iter().find_map(|id| self.locked_for_good(*id)) {
            return Err(error);
        }
        let mut undone = false;
        for id in blockers {
            undone |= self.undo_loser(*id, limit)?;
        }
        Ok(undone)
    }

    /// Rolls a transaction back if it is a loser; whether it was one.
    ///
    /// Errors: `Damaged` if it is set aside; those of `limit`; those of space only without a limit.
    fn undo_loser(&self, id: TxnId, limit: &WaitLimit) -> Result<bool, TxnError> {
        let found = self.losers.lock().get(&id).cloned();
        let Some(loser) = found else { return Ok(false) };
        let undoing = lock_undoing(&loser, limit)?;
        match self.undo_one(&loser, undoing, |_| true, limit) {
            Ok(undone) => Ok(undone),
            Err(error) if error.concerns_a_page() => Err(self.locked_for_good(id).unwrap_or_else(|| {
                error.within(&format!(
                    "the row is locked by transaction {id}, which could not be rolled back yet; try again later"
                ))
            })),
            // It makes none, and its statement is not to take this for its own want of space. It
            // waits: the loser is tried again in the background.
            Err(error) if error.allows_undoing_later() && !limit.is_none() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether there is nothing to wait for: it cannot be undone before the next opening.
    pub(crate) fn is_set_aside(&self, id: TxnId) -> bool {
        self.find(id).is_some_and(|state| state.status() == Status::SetAside)
    }

    /// The damage that keeps a loser from being undone before the next opening.
    pub(crate) fn why_set_aside(&self, id: TxnId) -> Option<TxnError> {
        if !self.is_set_aside(id) {
            return None;
        }
        match self.losers.lock().get(&id) {
            Some(Loser { standing: Standing::SetAside(cause), .. }) => Some(cause.clone()),
            // It says so itself a moment before it is listed.
            _ => Some(TxnError::new(TxnErrorKind::Damaged, "a page is damaged")),
        }
    }

    /// Why a row of a loser that is set aside cannot be had.
    fn locked_for_good(&self, id: TxnId) -> Option<TxnError> {
        let cause = self.why_set_aside(id)?;
        let message = format!(
            "the row is locked by transaction {id}, which did not commit and cannot be rolled back before the next \
             opening: {cause}"
        );
        Some(TxnError::new(TxnErrorKind::Damaged, message))
    }

    /// Undoes the first loser that stands so and that no other thread undoes, or waits for one that
    /// another thread does; false if there is none.
    fn undo_first(&self, wanted: impl Fn(&Standing) -> bool) -> Result<bool, TxnError> {
        loop {
            let picked = {
                let losers = self.losers.lock();
                let mut found = losers.values().filter(|loser| wanted(&loser.standing)).peekable();
                let first = found.peek().copied();
                found.find(|loser| !loser.undoing.is_locked()).or(first).cloned()
            };
            let Some(loser) = picked else { return Ok(false) };
            match self.undo_one(&loser, loser.undoing.lock(), &wanted, &WaitLimit::default()) {
                // Another thread has undone it, or has failed to.
                Ok(false) => {}
                Err(error) if !error.concerns_a_page() => return Err(error),
                _ => return Ok(true),
            }
        }
    }

    /// Undoes the loser if it is one still and stands as wanted; whether it was. After an error it
    /// is a loser as before: what is undone already is recognised.
    fn undo_one(
        &self,
        loser: &Loser,
        undoing: MutexGuard<'_, ()>,
        wanted: impl FnOnce(&Standing) -> bool,
        limit: &WaitLimit,
    ) -> Result<bool, TxnError> {
        let state = &loser.state;
        // Another thread may have tried it since it was found.
        let now = self.losers.lock().get(&state.id).map(|loser| loser.standing.clone());
        let Some(standing) = now.filter(wanted) else { return Ok(false) };
        if let Standing::SetAside(cause) = standing {
            return Err(cause);
        }
        let outcome = self.roll_back_patiently(state, &mut HeldLocks::default(), limit);
        let standing = match &outcome {
            Err(error) if standing.counts(error) => standing.after(error),
            // The caller asks again when there is space.
            _ => standing,
        };
        self.stand(state, &standing);
        {
            let mut losers = self.losers.lock();
            match &outcome {
                Ok(()) => drop(losers.remove(&state.id)),
                Err(_) => {
                    let loser = losers.get_mut(&state.id).expect("it is a loser until it is undone");
                    loser.standing = standing.clone();
                }
            }
            self.note_put_off(&losers);
        }
        drop(undoing);
        if outcome.as_ref().is_err_and(TxnError::concerns_a_page) {
            self.report_failure(state.id, &standing);
        }
        outcome.map(|()| true)
    }

    /// As [`TxnManager::roll_back_state`]; where a read fails, tries again at once.
    pub(crate) fn roll_back_patiently(
        &self,
        state: &Arc<TxnState>,
        held: &mut HeldLocks,
        limit: &WaitLimit,
    ) -> Result<(), TxnError> {
        for _ in 1..READS {
            match self.roll_back_state(state, held, limit) {
                Err(error) if error.kind == TxnErrorKind::Unreadable => {}
                outcome => return outcome,
            }
        }
        self.roll_back_state(state, held, limit)
    }

    /// Notes in the loser's own state that it is set aside. The caller holds its `undoing`, or no
    /// other thread knows of the loser yet.
    fn stand(&self, state: &TxnState, standing: &Standing) {
        if matches!(standing, Standing::SetAside(_)) {
            state.versions.lock().end_promise(self.log.undo_promise());
            state.set_status(Status::SetAside);
        }
    }

    fn note_put_off(&self, losers: &BTreeMap<TxnId, Loser>) {
        let is_put_off =
            |loser: &Loser| matches!(loser.standing, Standing::NoSpace | Standing::Unreadable { .. });
        self.put_off.store(losers.values().any(is_put_off), Ordering::SeqCst);
    }

    /// Reports a loser that was set aside just now, and wakes its waiters: there may be nothing to
    /// wait for. No lock of this crate is held.
    fn report_failure(&self, id: TxnId, standing: &Standing) {
        if let Standing::SetAside(cause) = standing {
            self.set_aside(format!("rolling back transaction {id}"), cause);
        }
        self.waits.ended(id);
    }
}

/// Waits until no other thread undoes the loser, as long as `limit` allows.
fn lock_undoing<'a>(loser: &'a Loser, limit: &WaitLimit) -> Result<MutexGuard<'a, ()>, TxnError> {
    if limit.is_none() {
        return Ok(loser.undoing.lock());
    }
    loop {
        limit.check()?;
        if let Some(guard) = loser.undoing.try_lock() {
            return Ok(guard);
        }
        clock::sleep(UNDOING_LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_fail_before_the_next_attempt_is_due_are_not_counted() {
        let error = |kind| TxnError::new(kind, "of a test");
        let (unreadable, damaged) = (error(TxnErrorKind::Unreadable), error(TxnErrorKind::Damaged));
        let put_off = Standing::Found.after(&unreadable);
        assert!(Standing::Found.counts(&unreadable), "the first one is");
        assert!(!put_off.is_due() && !put_off.counts(&unreadable), "an attempt of a client");
        assert!(put_off.counts(&damaged), "damage ends the attempts at any time");
        let due = Standing::Unreadable { attempts: 0, due: clock::now().after(Duration::ZERO) };
        assert!(due.counts(&unreadable), "the attempt that was due");
    }

    #[test]
    fn reads_that_fail_are_tried_again_for_a_minute_and_damage_never() {
        let error = |kind| TxnError::new(kind, "of a test");
        let unreadable = error(TxnErrorKind::Unreadable);
        let mut standing = Standing::Found;
        let mut attempts = 0;
        loop {
            standing = standing.after(&unreadable);
            match &standing {
                Standing::Unreadable { .. } => assert!(!standing.is_due(), "not at once"),
                Standing::SetAside(cause) => break assert_eq!(*cause, unreadable),
                other => panic!("{other:?}"),
            }
            attempts += 1;
        }
        assert_eq!(attempts, ATTEMPTS);
        assert!(INTERVAL * ((1 << ATTEMPTS) - 1) >= Duration::from_secs(60));
        let damaged = Standing::NoSpace.after(&error(TxnErrorKind::Damaged));
        assert!(matches!(damaged, Standing::SetAside(_)) && !damaged.is_due());
        assert!(Standing::NoSpace.after(&error(TxnErrorKind::LogFull)).is_due());
    }
}
