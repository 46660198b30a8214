//! The queue of requests that have been passed over.
//!
//! A request that slept, and finds the lock taken anew, has been passed. After a few times it joins
//! the queue, and those that come later, and exclude it, wait until it has left. So its wait is
//! bounded: by the holders there are, and by those in the queue before it. Up to then locks go to
//! the fastest, which costs no switch of threads.
//!
//! A transaction that holds a lock on the key, or has written the row, does not wait for the queue.
//! Nor does one that could not go on if it waited: an edge to a request ahead is no deadlock, since
//! the waiter can be let go first (`waits.rs`).

use super::{Mode, Wanted};
use crate::ranks;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use firndb_base::{TreeId, TxnId};

#[derive(Debug)]
struct Queued {
    ticket: u64,
    txn: TxnId,
    hash: u64,
    tree: TreeId,
    key: Vec<u8>,
    mode: Mode,
}

/// Requests in the order in which they joined, which is that of their tickets. Invariant: one at
/// most of each transaction, from [`Queue::join`] to [`Queue::leave`], which it calls when its
/// request has ended.
#[derive(Debug)]
pub(crate) struct Queue {
    /// How many there are: most requests skip the lock.
    count: AtomicUsize,
    requests: Mutex<Vec<Queued>>,
    /// Ticket of the next one that joins; changed with the requests locked.
    next_ticket: AtomicU64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            count: AtomicUsize::new(0),
            requests: ranks::QUEUE.mutex(Vec::new()),
            next_ticket: AtomicU64::new(0),
        }
    }
}

impl Queue {
    pub(super) fn join(&self, me: TxnId, hash: u64, Wanted { tree, key, mode }: Wanted<'_>) {
        let mut requests = self.requests.lock();
        if requests.iter().any(|queued| queued.txn == me) {
            return;
        }
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        requests.push(Queued { ticket, txn: me, hash, tree, key: key.to_vec(), mode });
        self.count.store(requests.len(), Ordering::SeqCst);
    }

    /// Then those that wait for `me` are to be woken.
    pub fn leave(&self, me: TxnId) {
        let mut requests = self.requests.lock();
        requests.retain(|queued| queued.txn != me);
        self.count.store(requests.len(), Ordering::SeqCst);
    }

    /// The last request ahead of that of `me`, or of all if it is not in the queue, that excludes
    /// `wanted`.
    #[inline]
    pub(super) fn ahead(&self, me: TxnId, hash: u64, wanted: Wanted<'_>) -> Option<TxnId> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.find_ahead(me, |queued| {
            queued.hash == hash
                && queued.mode.excludes(wanted.mode)
                && queued.tree == wanted.tree
                && queued.key == wanted.key
        })
    }

    /// The last request that excludes a range lock for reading, of those with a ticket below
    /// `before`. The first look fills this in: the reader is not in the queue, and else waited for
    /// all that join while it waits.
    #[inline]
    pub(super) fn ahead_in(
        &self,
        tree: TreeId,
        before: &mut Option<u64>,
        wants: impl Fn(&[u8]) -> bool,
    ) -> Option<TxnId> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let requests = self.requests.lock();
        let before = *before.get_or_insert(self.next_ticket.load(Ordering::Relaxed));
        let excludes = |queued: &&Queued| {
            queued.ticket < before
                && queued.tree == tree
                && queued.mode.excludes(Mode::Shared)
                && wants(&queued.key)
        };
        requests.iter().rev().find(excludes).map(|queued| queued.txn)
    }

    #[cold]
    fn find_ahead(&self, me: TxnId, excludes: impl Fn(&Queued) -> bool) -> Option<TxnId> {
        let requests = self.requests.lock();
        let mine = requests.iter().position(|queued| queued.txn == me).unwrap_or(requests.len());
        requests[..mine].iter().rev().find(|queued| excludes(queued)).map(|queued| queued.txn)
    }

    pub(super) fn check(&self) {
        let requests = self.requests.lock();
        assert_eq!(self.count.load(Ordering::SeqCst), requests.len(), "the queue's requests are counted");
        let next = self.next_ticket.load(Ordering::Relaxed);
        assert!(requests.iter().all(|queued| queued.ticket < next), "tickets are given out in order");
        assert!(requests.is_sorted_by(|a, b| a.ticket < b.ticket), "requests are in the order of tickets");
        for (n, queued) in requests.iter().enumerate() {
            assert!(
                requests[..n].iter().all(|before| before.txn != queued.txn),
                "{} is in the queue once",
                queued.txn
            );
        }
    }
}
