//! Fences: when has every transaction and snapshot ended that may have seen what was removed?
//!
//! The thread that removes something (a dropped tree) takes a fence once no new transaction can
//! find it. When the fence is past, no transaction that had begun by then runs (prepared ones
//! included), so none can roll back into it, and no snapshot of that time is in use. One that is
//! set aside (`losers.rs`) does not count: it does nothing before the next opening.

use crate::manager::TxnManager;
use crate::state::Status;
use crate::transaction::Transaction;
use firndb_base::TxnId;

impl TxnManager {
    /// A fence: an id between those of the transactions that have begun and those to come.
    #[must_use]
    pub fn fence(&self) -> TxnId {
        let mut registry = self.registry.lock();
        let state = registry.begin(0);
        registry.end(&state, Status::Aborted, None);
        state.id
    }

    /// Whether every transaction and snapshot from before the fence has ended. Once true, it stays
    /// true.
    #[must_use]
    pub fn is_past(&self, fence: TxnId) -> bool {
        self.registry.lock().is_past(fence)
    }
}

impl Transaction {
    /// Whether its snapshot, if it has one now, was taken after the fence.
    #[must_use]
    pub fn snapshot_is_past(&self, fence: TxnId) -> bool {
        self.snapshot.as_ref().is_none_or(|snapshot| snapshot.next > fence)
    }
}
