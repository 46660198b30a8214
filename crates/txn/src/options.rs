//! What a transaction is begun with.

use crate::waits::WaitCell;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// What a transaction may see of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Isolation {
    /// Each statement sees what had committed when it began.
    ReadCommitted,
    /// The whole transaction sees what had committed at its first statement; of two that write one
    /// row, the first to do so wins. Permits write skew.
    #[default]
    Snapshot,
    /// As if transactions had run one after the other: reads lock keys and key ranges.
    Serializable,
}

/// How a transaction runs.
#[derive(Clone, Debug, Default)]
pub struct TxnOptions {
    /// What it may see of others.
    pub isolation: Isolation,
    /// Writes are refused.
    pub read_only: bool,
    /// Longest wait for one lock; `None`: as long as it takes (deadlocks are found at once).
    pub lock_deadline: Option<Duration>,
    /// Ends its waits, and long reads between two of their parts, from outside.
    pub cancel: Option<CancelToken>,
}

/// Cancels the waits and long reads of the transactions it was given to. Cheap to clone.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Cancel>);

#[derive(Default)]
struct Cancel {
    cancelled: AtomicBool,
    /// The current waiters.
    waiting: Mutex<Vec<Weak<WaitCell>>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> CancelToken {
        CancelToken::default()
    }
    /// Ends every wait under this token with an error, now and from now on, and every read that
    /// goes on past a leaf, or past some hundred keys.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        for cell in self.0.waiting.lock().drain(..) {
            if let Some(cell) = cell.upgrade() {
                cell.wake();
            }
        }
    }
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }
    pub(crate) fn register(&self, cell: &Arc<WaitCell>) {
        let mut waiting = self.0.waiting.lock();
        waiting.retain(|other| other.strong_count() > 0);
        waiting.push(Arc::downgrade(cell));
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelToken(cancelled: {})", self.is_cancelled())
    }
}
