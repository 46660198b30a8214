//! Sweeping every tree on demand: what compaction asks of the background's removal of deleted rows
//! (`ghosts.rs`).

use crate::manager::TxnManager;

impl TxnManager {
    /// Has every leaf of every tree swept once more by [`TxnManager::maintenance_step`]: deleted
    /// rows that no snapshot needs are removed, and small pages are merged.
    pub fn sweep_every_tree(&self) {
        self.backlog.work.lock().every_tree = true;
    }

    /// Whether leaves are to be swept, or pages to be merged, that wait for no transaction.
    #[must_use]
    pub fn has_sweeps(&self) -> bool {
        let work = self.backlog.work.lock();
        work.every_tree || !work.ready.is_empty() || !work.merges.is_empty()
    }
}
