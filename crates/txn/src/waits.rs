//! Waiting for other transactions to end, and finding deadlocks.
//!
//! A wait is an edge from the waiter to each transaction it waits for. When a wait begins, the
//! graph is walked from the new edges; if the walk comes back to the waiter, the waiter is the
//! victim: it alone closes the circle, and all others can continue.
//!
//! An edge to a transaction that is only ahead in the queue for a lock (`locks/queue.rs`) makes no
//! deadlock: its waiter is *let go first*, and asks again without regard to the queue.
//!
//! A waiter that is woken has no edges any more, so a transaction that gives locks back and then
//! waits itself meets no circle of edges that have gone.

use crate::error::{TxnError, TxnErrorKind};
use crate::locks::Blockers;
use crate::options::CancelToken;
use crate::ranks;
use firndb_base::TxnId;
use firndb_base::clock::{self, Moment};
use firndb_base::hash::FixedMap;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use firndb_base::sync::{Arc, Condvar, Mutex, spin_hint};
use std::time::Duration;

/// Where one waiter sleeps.
#[derive(Debug, Default)]
pub(crate) struct WaitCell {
    woken: Mutex<bool>,
    changed: Condvar,
    /// It need not wait for the queue. Set before it is woken.
    goes_first: AtomicBool,
}

impl WaitCell {
    /// Wakes the waiter, now or when it goes to sleep.
    pub fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }
    /// Sleeps until woken; false if `deadline` passed first.
    fn sleep(&self, deadline: Option<Moment>) -> bool {
        let mut woken = self.woken.lock();
        while !*woken {
            match deadline {
                None => self.changed.wait(&mut woken),
                Some(deadline) => {
                    if !self.changed.wait_until(&mut woken, deadline) && !*woken {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// When a transaction gives up getting a lock: at a moment, when a token is cancelled, or never.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitLimit {
    pub deadline: Option<Moment>,
    pub cancel: Option<CancelToken>,
    /// That of the statement.
    pub cancel_statement: Option<CancelToken>,
}

impl WaitLimit {
    /// Of a lock that is asked for now.
    pub fn new(limit: Option<Duration>, cancel: Option<&CancelToken>) -> WaitLimit {
        let deadline = limit.and_then(|time| clock::now().after(time));
        WaitLimit { deadline, cancel: cancel.cloned(), cancel_statement: None }
    }
    /// And of the statement that asks for it.
    pub fn within(self, statement: &StatementLimit) -> WaitLimit {
        let deadlines = self.deadline.into_iter().chain(statement.deadline);
        WaitLimit { deadline: deadlines.min(), cancel_statement: statement.cancel.clone(), ..self }
    }
    fn tokens(&self) -> impl Iterator<Item = &CancelToken> {
        self.cancel.iter().chain(&self.cancel_statement)
    }
    /// Whether the wait is unlimited.
    pub fn is_none(&self) -> bool {
        self.deadline.is_none() && self.tokens().next().is_none()
    }
    fn check_cancelled(&self) -> Result<(), TxnError> {
        if self.tokens().any(CancelToken::is_cancelled) { Err(cancelled()) } else { Ok(()) }
    }
    /// Fails if it is time to give up.
    pub fn check(&self) -> Result<(), TxnError> {
        self.check_cancelled()?;
        if self.deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return Err(timeout());
        }
        Ok(())
    }
}

/// What ends the waits of one statement, besides what ends those of its transaction.
#[derive(Clone, Debug, Default)]
pub struct StatementLimit {
    /// When a wait for a lock ends with kind `Timeout`.
    pub deadline: Option<Moment>,
    /// Ends it from outside.
    pub cancel: Option<CancelToken>,
}

/// Waiters at most for which debug builds check the graph after each change.
const CHECKED_MAX: usize = 16;

/// How a wait ended, if not by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There was nothing to wait for any more.
    NotAtAll,
    Slept,
    /// The request is to be made again without regard to the queue.
    GoesFirst,
}

/// What one transaction waits for.
#[derive(Debug)]
struct Wait {
    blockers: Vec<TxnId>,
    /// These are only ahead of it in the queue.
    queued: bool,
}

/// The waits, by waiter and by what is waited for.
#[derive(Debug, Default)]
struct Waiters {
    by_waiter: FixedMap<TxnId, Wait>,
    /// In the order in which they began to wait.
    by_blocker: FixedMap<TxnId, Vec<(TxnId, Arc<WaitCell>)>>,
}

impl Waiters {
    fn enter(&mut self, me: TxnId, blockers: &Blockers, cell: &Arc<WaitCell>) {
        // One transaction may block by several of its locks.
        let mut distinct: Vec<TxnId> = Vec::with_capacity(blockers.as_slice().len());
        for &blocker in blockers.as_slice() {
            if !distinct.contains(&blocker) {
                distinct.push(blocker);
                self.by_blocker.entry(blocker).or_default().push((me, cell.clone()));
            }
        }
        let wait = Wait { blockers: distinct, queued: matches!(blockers, Blockers::Ahead(_)) };
        let previous = self.by_waiter.insert(me, wait);
        assert!(previous.is_none(), "a transaction waits for one thing at a time");
        self.check_in_debug();
    }

    /// In debug builds, asserts that each edge stands in both maps, and that there is no circle.
    fn check_in_debug(&self) {
        if cfg!(debug_assertions) && self.by_waiter.len() <= CHECKED_MAX {
            for (waiter, Wait { blockers, .. }) in &self.by_waiter {
                assert!(circle(self, *waiter, blockers, false).is_none(), "{waiter} waits for itself");
                for blocker in blockers {
                    let waiting = self.by_blocker.get(blocker).into_iter().flatten();
                    assert_eq!(
                        waiting.filter(|(of, _)| of == waiter).count(),
                        1,
                        "an edge stands in both maps"
                    );
                }
            }
            let by_waiter: usize = self.by_waiter.values().map(|wait| wait.blockers.len()).sum();
            let by_blocker: usize = self.by_blocker.values().map(Vec::len).sum();
            assert_eq!(by_waiter, by_blocker, "an edge stands in both maps");
        }
    }

    /// Removes the edges of a waiter. Returns its cell if there were any.
    fn leave(&mut self, me: TxnId) -> Option<Arc<WaitCell>> {
        let mut cell = None;
        for blocker in self.by_waiter.remove(&me).into_iter().flat_map(|wait| wait.blockers) {
            let waiting = self.by_blocker.get_mut(&blocker).expect("an edge stands in both maps");
            let at = waiting.iter().position(|(waiter, _)| *waiter == me);
            cell = Some(waiting.remove(at.expect("an edge stands in both maps")).1);
            if waiting.is_empty() {
                self.by_blocker.remove(&blocker);
            }
        }
        self.check_in_debug();
        cell
    }

    /// Wakes the waiters of `txn`. They ask again, and wait for it no more.
    fn wake(&mut self, txn: TxnId) {
        let Some(waiting) = self.by_blocker.get(&txn) else { return };
        for waiter in waiting.iter().map(|(waiter, _)| *waiter).collect::<Vec<_>>() {
            self.leave(waiter).expect("it waits").wake();
        }
    }

    /// Lets a waiter go first that waits for those ahead of it in the queue.
    fn let_go_first(&mut self, waiter: TxnId) {
        let cell = self.leave(waiter).expect("it waits");
        cell.goes_first.store(true, Ordering::SeqCst);
        cell.wake();
    }
}

/// Which transaction waits for which.
#[derive(Debug)]
pub(crate) struct WaitGraph {
    /// How many waiters there are: lets a commit skip the lock when there are none.
    count: AtomicUsize,
    waits: AtomicU64,
    /// Microseconds that waiters slept, all together.
    slept_us: AtomicU64,
    deadlocks: AtomicU64,
    waiters: Mutex<Waiters>,
}

impl Default for WaitGraph {
    fn default() -> WaitGraph {
        WaitGraph {
            count: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            slept_us: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            waiters: ranks::WAITS.mutex(Waiters::default()),
        }
    }
}

impl WaitGraph {
    /// Sleeps until one of `blockers` has ended, or has given locks back or left the queue.
    /// `has_ended` says so of one: true *before* [`WaitGraph::ended`] is called for it.
    pub fn wait(
        &self,
        me: TxnId,
        blockers: &Blockers,
        has_ended: impl Fn(TxnId) -> bool,
        limit: &WaitLimit,
    ) -> Result<Waited, TxnError> {
        // What it waits for may need the latches and locks that it has.
        ranks::PREPARED.assert_none_from();
        let cell = Arc::new(WaitCell::default());
        // The count is raised before the blockers are checked, and a blocker's end is marked before
        // the count is read: one of the two sides sees the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        let outcome = self.enter(me, blockers, &cell, has_ended).and_then(|entered| {
            // A token that is cancelled later wakes the waiter.
            limit.tokens().for_each(|token| token.register(&cell));
            limit.check_cancelled()?;
            if entered == Waited::NotAtAll {
                // It has ended, and may be about to release its locks.
                spin_hint();
            }
            if entered != Waited::Slept {
                return Ok(entered);
            }
            self.waits.fetch_add(1, Ordering::Relaxed);
            let began = clock::now();
            let woken = cell.sleep(limit.deadline);
            self.slept_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            if !woken {
                return Err(timeout());
            }
            limit.check_cancelled()?;
            Ok(if cell.goes_first.load(Ordering::SeqCst) { Waited::GoesFirst } else { Waited::Slept })
        });
        _ = self.waiters.lock().leave(me);
        self.count.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Enters the edges, if `me` is to sleep.
    fn enter(
        &self,
        me: TxnId,
        blockers: &Blockers,
        cell: &Arc<WaitCell>,
        has_ended: impl Fn(TxnId) -> bool,
    ) -> Result<Waited, TxnError> {
        let mut waiters = self.waiters.lock();
        let all = blockers.as_slice();
        if all.iter().any(|&blocker| has_ended(blocker)) {
            return Ok(Waited::NotAtAll);
        }
        while let Some(path) = circle(&waiters, me, all, false) {
            if matches!(blockers, Blockers::Ahead(_)) {
                return Ok(Waited::GoesFirst);
            }
            let path = match circle(&waiters, me, all, true) {
                Some(deadlock) => deadlock,
                None => {
                    let queued = path.iter().find(|txn| waiters.by_waiter[*txn].queued);
                    waiters.let_go_first(*queued.expect("else it were a deadlock"));
                    continue;
                }
            };
            self.deadlocks.fetch_add(1, Ordering::Relaxed);
            let names: Vec<String> = path.iter().map(TxnId::to_string).collect();
            return Err(TxnError::new(
                TxnErrorKind::Deadlock,
                format!(
                    "deadlock: transaction {me} would wait for itself through {}; roll back and try again",
                    names.join(", ")
                ),
            ));
        }
        waiters.enter(me, blockers, cell);
        Ok(Waited::Slept)
    }

    /// Wakes the waiters of `txn`, which has just ended, released locks or left the queue, in the
    /// order in which they came. Called with no lock held but that on the list of prepared
    /// transactions.
    pub fn ended(&self, txn: TxnId) {
        ranks::MOVING.assert_none_from();
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.waiters.lock().wake(txn);
    }

    /// Wakes all waiters. A later waiter must find that every transaction "has ended".
    pub fn wake_all(&self) {
        for waiting in self.waiters.lock().by_blocker.values() {
            waiting.iter().for_each(|(_, cell)| cell.wake());
        }
    }

    /// Waits, the microseconds that they took, and deadlocks since opening.
    pub fn counts(&self) -> (u64, u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.waits), of(&self.slept_us), of(&self.deadlocks))
    }
}

fn timeout() -> TxnError {
    TxnError::new(TxnErrorKind::Timeout, "a lock was not free by the deadline")
}

fn cancelled() -> TxnError {
    TxnError::new(TxnErrorKind::Cancelled, "the wait for a lock was cancelled")
}

/// The transactions through which `me`, waiting for `blockers`, would wait for itself, in this
/// order. With `holders_only`, of those that wait for holders of locks.
fn circle(waiters: &Waiters, me: TxnId, blockers: &[TxnId], holders_only: bool) -> Option<Vec<TxnId>> {
    // With the place of the one that waits for it.
    let mut reached: Vec<(TxnId, Option<usize>)> = blockers.iter().map(|txn| (*txn, None)).collect();
    let mut next = 0;
    while let Some(&(txn, from)) = reached.get(next) {
        if txn == me {
            let mut path = Vec::new();
            let mut at = from;
            while let Some(place) = at {
                path.push(reached[place].0);
                at = reached[place].1;
            }
            path.reverse();
            return Some(path);
        }
        if let Some(wait) = waiters.by_waiter.get(&txn).filter(|wait| !(holders_only && wait.queued)) {
            for blocker in &wait.blockers {
                if !reached.iter().any(|(seen, _)| seen == blocker) {
                    reached.push((*blocker, Some(next)));
                }
            }
        }
        next += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(of: &[u64]) -> Blockers {
        Blockers::Holders(of.iter().map(|txn| TxnId(*txn)).collect())
    }

    fn waiting(edges: &[(u64, &[u64])]) -> Waiters {
        let mut waiters = Waiters::default();
        edges.iter().for_each(|(from, to)| waiters.enter(TxnId(*from), &holders(to), &Arc::default()));
        waiters
    }

    /// Each end once scanned every waiter of the database, and woke those of this transaction.
    #[test]
    fn an_end_wakes_the_waiters_of_this_transaction_in_the_order_they_came() {
        let mut waiters = Waiters::default();
        let cells: Vec<Arc<WaitCell>> = (0..4).map(|_| Arc::default()).collect();
        waiters.enter(TxnId(10), &holders(&[1, 2]), &cells[0]);
        waiters.enter(TxnId(11), &holders(&[2]), &cells[1]);
        waiters.enter(TxnId(12), &holders(&[1]), &cells[2]);
        let of = |waiters: &Waiters, blocker: u64| -> Vec<u64> {
            let waiting = waiters.by_blocker.get(&TxnId(blocker));
            waiting.into_iter().flatten().map(|(waiter, _)| waiter.0).collect()
        };
        assert_eq!((of(&waiters, 1), of(&waiters, 2)), (vec![10, 12], vec![10, 11]));
        waiters.leave(TxnId(10));
        assert_eq!((of(&waiters, 1), of(&waiters, 2)), (vec![12], vec![11]));
        waiters.leave(TxnId(11));
        waiters.leave(TxnId(12));
        // One that blocks by two of its locks is waited for once.
        waiters.enter(TxnId(13), &holders(&[1, 2, 1]), &cells[3]);
        assert_eq!((of(&waiters, 1), of(&waiters, 2)), (vec![13], vec![13]));
        waiters.leave(TxnId(13));
        assert!(waiters.by_waiter.is_empty() && waiters.by_blocker.is_empty(), "nothing is left behind");
        let graph = WaitGraph::default();
        graph.count.fetch_add(2, Ordering::SeqCst);
        graph.waiters.lock().enter(TxnId(10), &holders(&[1]), &cells[0]);
        graph.waiters.lock().enter(TxnId(11), &holders(&[2]), &cells[1]);
        graph.ended(TxnId(1));
        assert_eq!((*cells[0].woken.lock(), *cells[1].woken.lock()), (true, false));
    }

    #[test]
    fn circles_are_found_and_trees_are_not_circles() {
        let graph = waiting(&[(1, &[2]), (2, &[3, 4]), (4, &[5])]);
        assert!(circle(&graph, TxnId(5), &[TxnId(1)], false).is_some());
        assert!(circle(&graph, TxnId(3), &[TxnId(4)], false).is_none());
        assert!(circle(&graph, TxnId(3), &[TxnId(4), TxnId(1)], false).is_some());
        assert!(circle(&graph, TxnId(6), &[TxnId(6)], false).is_some(), "a wait for oneself is a circle");
    }

    #[test]
    fn waits_end_by_deadline_by_cancel_and_by_the_blocker() {
        let graph = WaitGraph::default();
        let soon = WaitLimit::new(Some(Duration::from_millis(5)), None);
        let timeout = graph.wait(TxnId(1), &holders(&[2]), |_| false, &soon);
        assert_eq!(timeout.expect_err("no transaction ends").kind, TxnErrorKind::Timeout);
        let token = CancelToken::new();
        let (cancellable, endless) = (WaitLimit::new(None, Some(&token)), WaitLimit::default());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| graph.wait(TxnId(1), &holders(&[2]), |_| false, &cancellable));
            std::thread::sleep(Duration::from_millis(5));
            token.cancel();
            let outcome = waiter.join().expect("no panic");
            assert_eq!(outcome.expect_err("cancelled").kind, TxnErrorKind::Cancelled);
            let waiter = scope.spawn(|| graph.wait(TxnId(1), &holders(&[2]), |_| false, &endless));
            while graph.waiters.lock().by_waiter.is_empty() {
                std::thread::yield_now();
            }
            graph.ended(TxnId(2));
            assert_eq!(waiter.join().expect("no panic"), Ok(Waited::Slept));
        });
        assert_eq!(
            graph.wait(TxnId(1), &holders(&[2]), |_| true, &endless),
            Ok(Waited::NotAtAll),
            "it had ended already"
        );
    }
}
