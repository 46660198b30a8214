//! What the calls of one statement see.

use crate::manager::TxnManager;
use crate::snapshot::Snapshot;
use firndb_base::sync::Arc;

/// What a statement of several calls sees, a cursor's for one: under read committed the snapshot
/// that they share. Empty until the first of them, and at other levels. Dropping it gives the
/// snapshot back; as long as it is there, versions that others replace are kept for it.
#[derive(Debug, Default)]
pub struct StatementView(Option<Kept>);

struct Kept {
    manager: Arc<TxnManager>,
    snapshot: Option<Snapshot>,
}

impl StatementView {
    pub(crate) fn take(&mut self) -> Option<Snapshot> {
        self.0.as_mut()?.snapshot.take()
    }
    /// Keeps the snapshot, which belongs to `manager`.
    pub(crate) fn keep(&mut self, manager: &Arc<TxnManager>, snapshot: Snapshot) {
        let kept = self.0.get_or_insert_with(|| Kept { manager: manager.clone(), snapshot: None });
        let before = kept.snapshot.replace(snapshot);
        assert!(before.is_none(), "a view's snapshot is taken out before another is kept");
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.snapshot.fmt(f)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.manager.release_snapshot(&snapshot);
        }
    }
}
