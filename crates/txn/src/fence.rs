//! Fences: when has everybody gone who may have seen what is no longer there?
//!
//! Whoever takes something away (a dropped tree) takes a fence once nobody new can find it. When the fence
//! is past, no transaction that had begun by then runs (prepared ones included), so none can roll back
//! into it, and no snapshot of that time is in use. One that is set aside (`losers.rs`) is passed over: it does nothing
//! before the next opening.

use crate::manager::TxnManager;
use crate::state::Status;
use crate::transaction::Transaction;
use firn_base::TxnId;

impl TxnManager {
    /// A fence: an id between those of the transactions that have begun and those to come.
    #[must_use]
    pub fn fence(&self) -> TxnId {
        let mut registry = self.registry.lock();
        let state = registry.begin();
        registry.end(&state, Status::Aborted, None);
        state.id
    }

    /// Whether every transaction and snapshot from before the fence has gone. True is for ever.
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
