//! Waiting for other transactions to end, and finding deadlocks.
//!
//! A wait is an edge from the waiter to each transaction it waits for. When a wait begins, the graph is
//! walked from the new edges; if the walk comes back to the waiter, the waiter is the victim: it alone
//! closes the circle, and everyone else can go on.

use crate::ranks;
use crate::{CancelToken, TxnError, TxnErrorKind};
use firn_base::TxnId;
use firn_base::clock::{self, Moment};
use firn_base::hash::FixedMap;
use firn_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use firn_base::sync::{Arc, Condvar, Mutex, spin_hint};

/// Where one waiter sleeps.
#[derive(Debug, Default)]
pub(crate) struct WaitCell {
    woken: Mutex<bool>,
    changed: Condvar,
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

#[derive(Debug)]
struct Waiter {
    blockers: Vec<TxnId>,
    cell: Arc<WaitCell>,
}

/// Who waits for whom.
#[derive(Debug)]
pub(crate) struct WaitGraph {
    /// How many waiters there are: lets a commit by-pass the lock when nobody waits.
    count: AtomicUsize,
    waits: AtomicU64,
    /// Microseconds that waiters slept, all together.
    slept_us: AtomicU64,
    deadlocks: AtomicU64,
    waiters: Mutex<FixedMap<TxnId, Waiter>>,
}

impl Default for WaitGraph {
    fn default() -> WaitGraph {
        WaitGraph {
            count: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            slept_us: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            waiters: ranks::WAITS.mutex(FixedMap::default()),
        }
    }
}

impl WaitGraph {
    /// Sleeps until one of `blockers` has ended. `has_ended` says so of one; it must turn true *before*
    /// [`WaitGraph::ended`] is called for it.
    pub fn wait(
        &self,
        me: TxnId,
        blockers: &[TxnId],
        has_ended: impl Fn(TxnId) -> bool,
        deadline: Option<Moment>,
        cancel: Option<&CancelToken>,
    ) -> Result<(), TxnError> {
        let cell = Arc::new(WaitCell::default());
        // The count goes up before the blockers are looked at, and a blocker's end is marked before the
        // count is looked at: one of the two sides sees the other.
        self.count.fetch_add(1, Ordering::SeqCst);
        let outcome = self.enter(me, blockers, &cell, has_ended).and_then(|must_sleep| {
            if let Some(token) = cancel {
                token.register(&cell);
                if token.is_cancelled() {
                    return Err(cancelled());
                }
            }
            if !must_sleep {
                // It has ended, and may be about to give its locks back: let it.
                spin_hint();
                return Ok(());
            }
            self.waits.fetch_add(1, Ordering::Relaxed);
            let began = clock::now();
            let woken = cell.sleep(deadline);
            self.slept_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            if !woken {
                return Err(TxnError::new(TxnErrorKind::Timeout, "a lock was not free by the deadline"));
            }
            if cancel.is_some_and(CancelToken::is_cancelled) { Err(cancelled()) } else { Ok(()) }
        });
        self.waiters.lock().remove(&me);
        self.count.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Enters the edges; false if there is nothing to wait for any more.
    fn enter(
        &self,
        me: TxnId,
        blockers: &[TxnId],
        cell: &Arc<WaitCell>,
        has_ended: impl Fn(TxnId) -> bool,
    ) -> Result<bool, TxnError> {
        let mut waiters = self.waiters.lock();
        if blockers.iter().any(|&blocker| has_ended(blocker)) {
            return Ok(false);
        }
        if let Some(path) = circle(&waiters, me, blockers) {
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
        let previous = waiters.insert(me, Waiter { blockers: blockers.to_vec(), cell: cell.clone() });
        assert!(previous.is_none(), "a transaction waits for one thing at a time");
        Ok(true)
    }

    /// Wakes everyone who waits for `txn`, which has just ended or was prepared. Called with no lock held but that
    /// on the list of prepared transactions.
    pub fn ended(&self, txn: TxnId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for waiter in self.waiters.lock().values() {
            if waiter.blockers.contains(&txn) {
                waiter.cell.wake();
            }
        }
    }

    /// Wakes everyone. Whoever comes later must find that every transaction "has ended".
    pub fn wake_all(&self) {
        for waiter in self.waiters.lock().values() {
            waiter.cell.wake();
        }
    }

    /// Waits, the microseconds that they took, and deadlocks since opening.
    pub fn counts(&self) -> (u64, u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.waits), of(&self.slept_us), of(&self.deadlocks))
    }
}

fn cancelled() -> TxnError {
    TxnError::new(TxnErrorKind::Cancelled, "the wait for a lock was cancelled")
}

/// The transactions through which `me`, waiting for `blockers`, would wait for itself.
fn circle(waiters: &FixedMap<TxnId, Waiter>, me: TxnId, blockers: &[TxnId]) -> Option<Vec<TxnId>> {
    let mut seen = Vec::new();
    let mut todo = blockers.to_vec();
    while let Some(txn) = todo.pop() {
        if txn == me {
            return Some(seen);
        }
        if seen.contains(&txn) {
            continue;
        }
        seen.push(txn);
        if let Some(waiter) = waiters.get(&txn) {
            todo.extend_from_slice(&waiter.blockers);
        }
    }
    None
}

/// The moment a wait that begins now must end.
pub(crate) fn deadline_from(limit: Option<std::time::Duration>) -> Option<Moment> {
    limit.and_then(|time| clock::now().after(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn waiting(edges: &[(u64, &[u64])]) -> FixedMap<TxnId, Waiter> {
        edges
            .iter()
            .map(|(from, to)| {
                let blockers = to.iter().map(|&t| TxnId(t)).collect();
                (TxnId(*from), Waiter { blockers, cell: Arc::default() })
            })
            .collect()
    }

    #[test]
    fn circles_are_found_and_trees_are_not_circles() {
        let graph = waiting(&[(1, &[2]), (2, &[3, 4]), (4, &[5])]);
        assert!(circle(&graph, TxnId(5), &[TxnId(1)]).is_some());
        assert!(circle(&graph, TxnId(3), &[TxnId(4)]).is_none());
        assert!(circle(&graph, TxnId(3), &[TxnId(4), TxnId(1)]).is_some());
        assert!(circle(&graph, TxnId(6), &[TxnId(6)]).is_some(), "a wait for oneself is a circle");
    }

    #[test]
    fn waits_end_by_deadline_by_cancel_and_by_the_blocker() {
        let graph = WaitGraph::default();
        let soon = deadline_from(Some(Duration::from_millis(5)));
        let timeout = graph.wait(TxnId(1), &[TxnId(2)], |_| false, soon, None);
        assert_eq!(timeout.expect_err("nobody ends").kind, TxnErrorKind::Timeout);
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| graph.wait(TxnId(1), &[TxnId(2)], |_| false, None, Some(&token)));
            std::thread::sleep(Duration::from_millis(5));
            token.cancel();
            let outcome = waiter.join().expect("no panic");
            assert_eq!(outcome.expect_err("cancelled").kind, TxnErrorKind::Cancelled);
            let waiter = scope.spawn(|| graph.wait(TxnId(1), &[TxnId(2)], |_| false, None, None));
            while graph.waiters.lock().is_empty() {
                std::thread::yield_now();
            }
            graph.ended(TxnId(2));
            assert_eq!(waiter.join().expect("no panic"), Ok(()));
        });
        assert_eq!(graph.wait(TxnId(1), &[TxnId(2)], |_| true, None, None), Ok(()), "it had ended already");
    }
}
