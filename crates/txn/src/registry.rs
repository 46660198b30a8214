//! Which transactions run, which snapshots are in use, and who may be forgotten.

use crate::snapshot::Snapshot;
use crate::state::{Status, TxnState};
use firn_base::sync::Arc;
use firn_base::{Lsn, TxnId};
use std::collections::{BTreeMap, VecDeque};

/// A committed transaction whose before-images some snapshot may still need.
#[derive(Debug)]
pub(crate) struct Ended {
    pub sequence: u64,
    pub state: Arc<TxnState>,
}

/// Guarded by one lock in the manager. A commit's record is appended under it, so that the order in which
/// changes become visible is that of the log, and a checkpoint's list of active transactions agrees with
/// the log up to it.
#[derive(Debug)]
pub(crate) struct Registry {
    next: TxnId,
    pub active: BTreeMap<TxnId, Arc<TxnState>>,
    /// Snapshots in use, by their sequence: how many, and the least `Snapshot::low` among them.
    snapshots: BTreeMap<u64, (u32, TxnId)>,
    sequence: u64,
    pub last_commit: Lsn,
    pub ended: VecDeque<Ended>,
}

impl Registry {
    pub fn new(next: TxnId) -> Registry {
        Registry {
            next,
            active: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            sequence: 0,
            last_commit: Lsn::ZERO,
            ended: VecDeque::new(),
        }
    }

    pub fn next(&self) -> TxnId {
        self.next
    }

    /// Begins a transaction that writes or locks.
    pub fn begin(&mut self) -> Arc<TxnState> {
        let state = Arc::new(TxnState::new(self.next));
        self.next = TxnId(self.next.0 + 1);
        self.active.insert(state.id, state.clone());
        state
    }

    /// Takes back a transaction found by recovery.
    pub fn adopt(&mut self, state: Arc<TxnState>) {
        assert!(state.id < self.next, "recovery knows every id given out");
        self.active.insert(state.id, state);
    }

    pub fn snapshot(&mut self) -> Snapshot {
        let snapshot = Snapshot {
            next: self.next,
            active: self.active.keys().copied().collect(),
            sequence: self.sequence,
            seen_lsn: self.last_commit,
        };
        let (count, low) = self.snapshots.entry(self.sequence).or_insert((0, snapshot.low()));
        *count += 1;
        *low = (*low).min(snapshot.low());
        snapshot
    }

    pub fn release(&mut self, snapshot: &Snapshot) {
        let entry = self.snapshots.get_mut(&snapshot.sequence).expect("a snapshot is released once");
        entry.0 -= 1;
        if entry.0 == 0 {
            self.snapshots.remove(&snapshot.sequence);
        }
    }

    /// Ends a transaction: from here on its changes are visible, or gone.
    pub fn end(&mut self, state: &Arc<TxnState>, status: Status, commit_end: Option<Lsn>) {
        let removed = self.active.remove(&state.id);
        assert!(removed.is_some(), "a transaction ends once");
        state.set_status(status);
        if let Some(end) = commit_end {
            self.sequence += 1;
            self.last_commit = self.last_commit.max(end);
            self.ended.push_back(Ended { sequence: self.sequence, state: state.clone() });
        }
    }

    /// Commits up to this sequence are seen by every snapshot in use or still to come.
    pub fn horizon(&self) -> u64 {
        self.snapshots.first_key_value().map_or(self.sequence, |(&sequence, _)| sequence)
    }

    /// Every transaction before this one has ended and is seen by every snapshot.
    pub fn low_water(&self) -> TxnId {
        let oldest_active = self.active.first_key_value().map_or(self.next, |(&id, _)| id);
        self.snapshots.first_key_value().map_or(oldest_active, |(_, &(_, low))| low.min(oldest_active))
    }

    pub fn snapshots_in_use(&self) -> u64 {
        self.snapshots.values().map(|(count, _)| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_follows_the_oldest_snapshot_in_use() {
        let mut registry = Registry::new(TxnId(1));
        let a = registry.begin();
        let early = registry.snapshot();
        assert!(!early.sees(a.id));
        registry.end(&a, Status::Committed, Some(Lsn(10)));
        let late = registry.snapshot();
        assert!(late.sees(a.id) && late.seen_lsn == Lsn(10));
        assert_eq!(registry.horizon(), 0);
        assert_eq!(registry.low_water(), a.id);
        registry.release(&early);
        assert_eq!(registry.horizon(), 1);
        assert!(registry.low_water() > a.id);
        let b = registry.begin();
        assert_eq!(registry.low_water(), b.id);
        registry.release(&late);
        assert_eq!(registry.horizon(), 1);
        registry.end(&b, Status::Aborted, None);
        assert_eq!(registry.ended.len(), 1, "an aborted transaction leaves nothing to keep");
    }
}
