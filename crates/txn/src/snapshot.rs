//! Snapshots: which transactions' changes a reader sees.

use crate::TxnManager;
use firn_base::sync::Arc;
use firn_base::{Lsn, TxnId};

/// What had committed at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Transactions from this id on began later.
    pub next: TxnId,
    /// Those that had begun and not ended; ascending.
    pub active: Vec<TxnId>,
    /// How many commits there had been.
    pub sequence: u64,
    /// End of the last commit record that it sees.
    pub seen_lsn: Lsn,
}

impl Snapshot {
    /// Whether a version written by `writer`, another transaction than the reader, is seen.
    pub fn sees(&self, writer: TxnId) -> bool {
        writer < self.next && (self.active.is_empty() || self.active.binary_search(&writer).is_err())
    }
    /// Every transaction before this one is seen.
    pub fn low(&self) -> TxnId {
        self.active.first().copied().unwrap_or(self.next)
    }
}

/// What a statement of several calls sees, a cursor's for one: under read committed the snapshot that they share. Empty
/// until the first of them, and at other levels. Dropping it gives the snapshot back; as long as it is there, versions
/// that others replace are kept for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_what_had_ended() {
        let snapshot =
            Snapshot { next: TxnId(10), active: vec![TxnId(4), TxnId(7)], sequence: 0, seen_lsn: Lsn::ZERO };
        let seen: Vec<u64> = (0..12).filter(|&id| snapshot.sees(TxnId(id))).collect();
        assert_eq!(seen, [0, 1, 2, 3, 5, 6, 8, 9]);
        assert_eq!(snapshot.low(), TxnId(4));
    }
}
