//! Which transactions run, which snapshots are in use, and which transactions may be forgotten.

use crate::shared_versions::SharedVersions;
use crate::snapshot::Snapshot;
use crate::state::{Status, TxnState};
use crate::versions::SpareMemory;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, TxnId};
use std::collections::{BTreeMap, VecDeque};

/// A committed transaction whose before-images some snapshot may still need.
#[derive(Debug)]
pub(crate) struct Ended {
    pub sequence: u64,
    pub state: Arc<TxnState>,
}

/// Snapshots of one sequence.
#[derive(Debug)]
struct InUse {
    count: u32,
    /// The least `Snapshot::low` among them.
    low: TxnId,
    /// The least `Snapshot::next` among them.
    next: TxnId,
}

/// Committed transactions whose before-images some snapshot may still need, all of them in the undo
/// tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spilled {
    /// The last of their commits.
    upto: u64,
    /// The least and the greatest of their ids; others may lie between.
    ids: (TxnId, TxnId),
}

/// Runs of spilled transactions, at most: one for each snapshot that parts them, as a rule.
const RUNS_MAX: usize = 64;

/// Guarded by one lock in the manager. A commit's record is appended under it, so that the order in
/// which changes become visible is that of the log, and a checkpoint's list of active transactions
/// agrees with the log up to it.
#[derive(Debug)]
pub(crate) struct Registry {
    next: TxnId,
    pub active: BTreeMap<TxnId, Arc<TxnState>>,
    /// Snapshots in use, by their sequence.
    snapshots: BTreeMap<u64, InUse>,
    sequence: u64,
    /// End of the last commit record, or of the last decision to roll a prepared transaction back.
    /// What a reader finds depends on both.
    pub last_decision: Lsn,
    /// In the order of their commits, without gaps.
    pub ended: VecDeque<Ended>,
    /// Committed transactions up to this one are counted as kept.
    settled: u64,
    /// In the order of their commits; all of them before those in `ended`.
    spilled: VecDeque<Spilled>,
    /// Memory for transactions to come.
    pub spare: SpareMemory,
}

/// In debug builds, the end of one transaction in this many checks the registry.
const CHECKED_ONE_IN: u64 = 16;
/// Transactions that are kept of which a check looks at this many.
const CHECKED_MAX: usize = 64;

impl Registry {
    pub fn new(next: TxnId) -> Registry {
        Registry {
            next,
            active: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            sequence: 0,
            last_decision: Lsn::ZERO,
            ended: VecDeque::new(),
            settled: 0,
            spilled: VecDeque::new(),
            spare: SpareMemory::default(),
        }
    }

    pub fn next(&self) -> TxnId {
        self.next
    }

    /// Begins a transaction that writes or locks; `allowance` bytes of its before-images are not
    /// counted.
    pub fn begin(&mut self, allowance: usize) -> Arc<TxnState> {
        let versions = SharedVersions::with_memory(self.spare.take(), allowance);
        let state = Arc::new(TxnState::with_versions(self.next, versions));
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
            seen_lsn: self.last_decision,
        };
        debug_assert!(snapshot.active.last().is_none_or(|&last| last < snapshot.next));
        let first = InUse { count: 0, low: snapshot.low(), next: snapshot.next };
        let in_use = self.snapshots.entry(self.sequence).or_insert(first);
        in_use.count += 1;
        in_use.low = in_use.low.min(snapshot.low());
        snapshot
    }

    pub fn release(&mut self, snapshot: &Snapshot) {
        let entry = self.snapshots.get_mut(&snapshot.sequence).expect("a snapshot is released once");
        entry.count -= 1;
        if entry.count == 0 {
            self.snapshots.remove(&snapshot.sequence);
        }
    }

    /// Whether no snapshot is in use, and nothing is kept for one: of a transaction that commits
    /// now nothing is needed either.
    pub fn needs_nothing_kept(&self) -> bool {
        self.snapshots.is_empty() && self.ended.is_empty()
    }

    /// Ends a transaction: from here on its changes are visible, or undone. A committed one is
    /// kept if it may be needed.
    pub fn end(&mut self, state: &TxnState, status: Status, commit_end: Option<Lsn>) {
        let removed = self.active.remove(&state.id).expect("a transaction ends once");
        state.set_status(status);
        if let Some(end) = commit_end {
            debug_assert!(self.last_decision <= end, "what is visible first is first in the log");
            self.sequence += 1;
            self.last_decision = end;
            if !self.needs_nothing_kept() {
                self.ended.push_back(Ended { sequence: self.sequence, state: removed });
            }
        }
        if cfg!(debug_assertions) && state.id.0.is_multiple_of(CHECKED_ONE_IN) {
            self.check();
        }
    }

    /// Asserts what the struct's fields state.
    pub fn check(&self) {
        for (id, state) in &self.active {
            assert!(*id < self.next && !state.has_ended(), "{id} runs: {:?}", state.status());
        }
        let first = self.ended.front().map(|ended| ended.sequence);
        for (ended, expected) in self.ended.iter().zip(first.unwrap_or(0)..).take(CHECKED_MAX) {
            assert_eq!(ended.sequence, expected, "there are no gaps");
            assert_eq!(ended.state.status(), Status::Committed, "what is kept has committed");
        }
        assert!(
            self.ended.back().is_none_or(|last| last.sequence == self.sequence),
            "the newest is the last"
        );
        assert!(self.settled <= self.sequence);
        let mut last = 0;
        for run in &self.spilled {
            assert!(
                last < run.upto && run.ids.0 <= run.ids.1 && run.ids.1 < self.next,
                "{run:?} after {last}"
            );
            last = run.upto;
        }
        assert!(first.is_none_or(|first| last < first), "what is spilled out came before what is kept");
        assert!(self.spilled.len() <= RUNS_MAX);
        for (sequence, in_use) in &self.snapshots {
            assert!(in_use.count > 0 && *sequence <= self.sequence);
            assert!(in_use.low <= in_use.next && in_use.next <= self.next, "{in_use:?} of {:?}", self.next);
        }
    }

    /// Notes the end of the decision to roll a prepared transaction back.
    pub fn note_rollback(&mut self, end: Lsn) {
        debug_assert!(self.last_decision <= end, "decisions are noted in the order of the log");
        self.last_decision = end;
    }

    /// How many commits there have been.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The oldest of the committed transactions that is not counted as kept, if more than `recent`
    /// came after it. It is from now on.
    pub fn next_to_settle(&mut self, recent: usize) -> Option<Arc<TxnState>> {
        let first = self.ended.front()?.sequence;
        let at = (self.settled + 1).saturating_sub(first) as usize;
        if at + recent >= self.ended.len() {
            return None;
        }
        let Ended { sequence, state } = &self.ended[at];
        assert_eq!(*sequence, first + at as u64, "there are no gaps");
        self.settled = *sequence;
        Some(state.clone())
    }

    /// Removes the oldest of the committed transactions, if it is this one: its before-images are
    /// in the undo tree, and nothing of it need stay in memory. False if it was purged meanwhile.
    pub fn leave_spilled(&mut self, sequence: u64) -> bool {
        if self.ended.front().is_none_or(|ended| ended.sequence != sequence) {
            return false;
        }
        let id = self.ended.pop_front().expect("looked at just now").state.id;
        let last = self.spilled.back_mut();
        // A snapshot between two of them may need the later one only.
        match last.filter(|last| self.snapshots.range(last.upto..sequence).next().is_none()) {
            Some(last) => {
                last.upto = sequence;
                last.ids = (last.ids.0.min(id), last.ids.1.max(id));
            }
            None => self.spilled.push_back(Spilled { upto: sequence, ids: (id, id) }),
        }
        if self.spilled.len() > RUNS_MAX {
            // The two oldest runs are joined.
            let first = self.spilled.pop_front().expect("there are many");
            let second = &mut self.spilled[0];
            debug_assert!(first.upto < second.upto, "runs are in the order of their commits");
            second.ids = (second.ids.0.min(first.ids.0), second.ids.1.max(first.ids.1));
        }
        true
    }

    /// Ids of transactions of which nothing but spilled before-images is left that no snapshot
    /// needs any more; others, of which that is not true, may lie between them. Forgets them.
    pub fn release_spilled(&mut self, horizon: u64) -> Option<(TxnId, TxnId)> {
        let first = self.spilled.front().filter(|run| run.upto <= horizon)?.ids;
        self.spilled.pop_front();
        Some(first)
    }

    /// Whether a transaction may be one that left nothing but spilled before-images.
    pub fn is_spilled_out(&self, id: TxnId) -> bool {
        self.spilled.iter().any(|run| run.ids.0 <= id && id <= run.ids.1)
    }

    /// Whether there are any such.
    pub fn has_spilled(&self) -> bool {
        !self.spilled.is_empty()
    }

    /// Commits up to this sequence are seen by every snapshot in use or still to come.
    pub fn horizon(&self) -> u64 {
        self.snapshots.first_key_value().map_or(self.sequence, |(&sequence, _)| sequence)
    }

    /// Every transaction before this one has ended and is seen by every snapshot.
    pub fn low_water(&self) -> TxnId {
        let oldest_active = self.active.first_key_value().map_or(self.next, |(&id, _)| id);
        self.snapshots.first_key_value().map_or(oldest_active, |(_, in_use)| in_use.low.min(oldest_active))
    }

    /// Whether every transaction that had begun before `fence` has ended or is set aside, and every
    /// snapshot from before it was released. Once true, it stays true: a transaction that is set
    /// aside does nothing before the next opening.
    pub fn is_past(&self, fence: TxnId) -> bool {
        let runs = |state: &Arc<TxnState>| state.status() != Status::SetAside;
        let mut before = self.active.range(..=fence).map(|(_, state)| state);
        // Sequences ascend with time, and so do the ids of the transactions to come.
        !before.any(runs) && self.snapshots.first_key_value().is_none_or(|(_, in_use)| in_use.next > fence)
    }

    pub fn snapshots_in_use(&self) -> u64 {
        self.snapshots.values().map(|in_use| u64::from(in_use.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_follows_the_oldest_snapshot_in_use() {
        let mut registry = Registry::new(TxnId(1));
        let a = registry.begin(0);
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
        let b = registry.begin(0);
        assert_eq!(registry.low_water(), b.id);
        registry.release(&late);
        assert_eq!(registry.horizon(), 1);
        registry.end(&b, Status::Aborted, None);
        assert_eq!(registry.ended.len(), 1, "an aborted transaction leaves nothing to keep");
    }

    fn commit(registry: &mut Registry) -> Arc<TxnState> {
        let state = registry.begin(0);
        registry.end(&state, Status::Committed, Some(Lsn(1)));
        state
    }

    #[test]
    fn the_newest_of_the_kept_ones_are_not_counted() {
        let mut registry = Registry::new(TxnId(1));
        let _old = registry.snapshot();
        let states: Vec<_> = (0..5).map(|_| commit(&mut registry)).collect();
        for state in &states[..3] {
            assert_eq!(registry.next_to_settle(2).expect("too old").id, state.id);
        }
        assert!(registry.next_to_settle(2).is_none());
        registry.ended.drain(..4);
        assert!(registry.next_to_settle(1).is_none(), "what was purged meanwhile is not settled");
        assert_eq!(registry.next_to_settle(0).expect("the last").id, states[4].id);
        assert!(registry.next_to_settle(0).is_none());
    }

    #[test]
    fn what_no_snapshot_can_need_is_not_kept() {
        let mut registry = Registry::new(TxnId(1));
        let state = commit(&mut registry);
        assert!(registry.ended.is_empty() && state.has_ended());
        let snapshot = registry.snapshot();
        assert!(snapshot.sees(state.id) && snapshot.sequence == 1);
        commit(&mut registry);
        registry.release(&snapshot);
        commit(&mut registry);
        let kept: Vec<u64> = registry.ended.iter().map(|ended| ended.sequence).collect();
        assert_eq!(kept, [2, 3], "behind one that is kept there is no gap");
        registry.check();
    }

    #[test]
    fn spilled_transactions_are_remembered_by_runs_between_snapshots() {
        let mut registry = Registry::new(TxnId(1));
        let old = registry.snapshot();
        let (a, b) = (commit(&mut registry), commit(&mut registry));
        let newer = registry.snapshot();
        let c = commit(&mut registry);
        assert!(!registry.leave_spilled(2), "the oldest first");
        assert!((1..=3).all(|sequence| registry.leave_spilled(sequence)));
        assert!(!registry.leave_spilled(3));
        assert!(registry.ended.is_empty() && registry.has_spilled());
        assert!([&a, &b, &c].iter().all(|state| registry.is_spilled_out(state.id)));
        assert_eq!(registry.release_spilled(registry.horizon()), None);
        registry.release(&old);
        assert_eq!(registry.release_spilled(registry.horizon()), Some((a.id, b.id)));
        assert_eq!(registry.release_spilled(registry.horizon()), None, "the newer snapshot does not see it");
        assert!(registry.is_spilled_out(c.id) && !registry.is_spilled_out(b.id));
        registry.release(&newer);
        assert_eq!(registry.release_spilled(registry.horizon()), Some((c.id, c.id)));
        assert!(!registry.has_spilled());
    }

    #[test]
    fn very_many_snapshots_cost_time_and_not_memory() {
        let mut registry = Registry::new(TxnId(1));
        let mut snapshots = Vec::new();
        for sequence in 1..=1000 {
            snapshots.push(registry.snapshot());
            commit(&mut registry);
            assert!(registry.leave_spilled(sequence));
            assert!(registry.spilled.len() <= RUNS_MAX);
        }
        assert!((1..=1000).all(|id| registry.is_spilled_out(TxnId(id))));
        snapshots.iter().for_each(|snapshot| registry.release(snapshot));
        let mut released = 0;
        while let Some((first, last)) = registry.release_spilled(registry.horizon()) {
            assert_eq!(first.0, released + 1);
            released = last.0;
        }
        assert_eq!(released, 1000);
    }
}
