//! Where ghosts are to be removed; see `ghosts.rs` for the invariant.

use crate::ghost_list::GhostList;
use crate::ranks;
use crate::undo::undo_key;
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{TreeId, TxnId};
use firndb_btree::{KeyRanges, Unmerged};
use std::collections::VecDeque;

/// Leaves noted by scans, at most.
pub(crate) const MET_MAX: usize = 32;
/// Bytes of the lists of committed transactions that are not gathered yet, at which a commit
/// gathers them itself.
pub(crate) const INCOMING_MAX: usize = 256 << 10;
/// Bytes of the generation that grows, and of the one that is swept.
pub(crate) const GENERATION_MAX: usize = 256 << 10;
/// Bytes of each of the smaller sets: what is locked (two sets), what is to be merged, what is set
/// aside.
pub(crate) const SMALL_SET_MAX: usize = 64 << 10;

/// What commits and rollbacks hand in; gathered by the steps.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) lists: Vec<GhostList>,
    pub(crate) bytes: usize,
    /// The undo tree holds unneeded entries of transactions from the first to the second.
    pub(crate) undo: Option<(TxnId, TxnId)>,
}

/// What is known to the steps. Ranges of the undo tree are in it like those of any other.
#[derive(Debug)]
pub(crate) struct Work {
    /// The generation that grows.
    pub(crate) open: KeyRanges,
    /// The generation that is ready when every snapshot sees the first `ready_at` commits.
    pub(crate) sealed: KeyRanges,
    pub(crate) ready_at: u64,
    /// To be swept now, from `at` on and then from the beginning, so that no tree starves.
    pub(crate) ready: KeyRanges,
    pub(crate) at: (TreeId, Vec<u8>),
    /// Counts jobs: every other one may be a scan's, or a merge.
    pub(crate) turn: u32,
    /// What waits for the ends of all transactions before `locked_until`, and what will wait next.
    pub(crate) locked: KeyRanges,
    pub(crate) locked_until: TxnId,
    pub(crate) locked_next: KeyRanges,
    /// Keys of nodes whose merge met an error.
    pub(crate) merges: KeyRanges,
    /// Behind damage, or of losers that recovery found: not tried again before the next opening.
    pub(crate) aside: KeyRanges,
    /// Every tree may hold ghosts: there were too many to be named in a checkpoint record.
    pub(crate) every_tree: bool,
}

/// Where ghosts are.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub(crate) incoming: Mutex<Incoming>,
    pub(crate) work: Mutex<Work>,
    /// Leaves in which scans met many ghosts: swept first. Hints only, the ghosts are covered
    /// elsewhere. Locked alone.
    pub(crate) met: Mutex<VecDeque<(TreeId, Box<[u8]>)>>,
    /// Where trees note merges that met an error.
    pub unmerged: Arc<Unmerged>,
    /// What the last step did. Locked alone.
    pub(crate) sweeps: Mutex<Sweeps>,
}

/// Whether background steps sweep a range of leaves, which may be long and cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sweeps {
    /// The last step did not.
    #[default]
    No,
    /// The last step did, and removed something.
    WithEffect,
    /// The last step did, and found nothing to remove.
    InVain,
}

impl Work {
    pub(crate) fn sets(&self) -> [&KeyRanges; 7] {
        let Work { open, sealed, ready, locked, locked_next, merges, aside, .. } = self;
        [open, sealed, ready, locked, locked_next, merges, aside]
    }
    pub(crate) fn sets_mut(&mut self) -> [&mut KeyRanges; 7] {
        let Work { open, sealed, ready, locked, locked_next, merges, aside, .. } = self;
        [open, sealed, ready, locked, locked_next, merges, aside]
    }
}

impl Backlog {
    pub fn new() -> Backlog {
        let small = || KeyRanges::new(SMALL_SET_MAX);
        let work = Work {
            open: KeyRanges::new(GENERATION_MAX),
            sealed: KeyRanges::new(GENERATION_MAX),
            ready_at: 0,
            ready: KeyRanges::new(GENERATION_MAX),
            at: (TreeId(0), Vec::new()),
            turn: 0,
            locked: small(),
            locked_until: TxnId(0),
            locked_next: small(),
            merges: small(),
            aside: small(),
            every_tree: false,
        };
        Backlog {
            incoming: ranks::INCOMING.mutex(Incoming::default()),
            work: ranks::BACKLOG.mutex(work),
            met: Mutex::default(),
            unmerged: Arc::default(),
            sweeps: Mutex::default(),
        }
    }

    /// Takes what a transaction leaves that commits now. Under the registry's lock. Whether
    /// [`TxnManager::gather_ghosts`] should be called once that is released.
    pub fn leave(&self, list: GhostList) -> bool {
        let mut incoming = self.incoming.lock();
        incoming.bytes += size_of::<GhostList>() + list.bytes();
        incoming.lists.push(list);
        incoming.bytes > INCOMING_MAX
    }

    /// Notes a ghost that a rollback has put back.
    pub fn put_back(&self, tree: TreeId, key: &[u8]) {
        let mut incoming = self.incoming.lock();
        let Incoming { lists, bytes, .. } = &mut *incoming;
        // The list of its own that a single key is not worth.
        if lists.is_empty() {
            lists.push(GhostList::default());
        }
        let list = lists.last_mut().expect("there is one");
        let before = list.bytes();
        list.add(tree, key);
        *bytes += list.bytes() - before.min(list.bytes());
    }

    /// Notes that the spilled before-images of transactions from `first` to `last` are not needed
    /// any more.
    pub fn leave_undo(&self, first: TxnId, last: TxnId) {
        let mut incoming = self.incoming.lock();
        let (low, high) = incoming.undo.unwrap_or((first, last));
        incoming.undo = Some((low.min(first), high.max(last)));
    }

    /// Takes over where ghosts may be since before the opening; `None`: in every tree.
    pub fn recover(&self, ghosts: Option<&KeyRanges>) {
        let mut work = self.work.lock();
        match ghosts {
            Some(ghosts) => work.ready.add_all(ghosts),
            None => work.every_tree = true,
        }
    }

    /// Notes a leaf in which a scan met many ghosts.
    pub fn met(&self, tree: TreeId, key: &[u8]) {
        let mut met = self.met.lock();
        if met.len() < MET_MAX && !met.iter().any(|(t, k)| *t == tree && **k == *key) {
            met.push_back((tree, key.into()));
        }
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> usize {
        let incoming = self.incoming.lock().bytes;
        let work = self.work.lock();
        incoming + work.sets().iter().map(|set| set.bytes()).sum::<usize>()
    }

    /// Adds what was handed in to the work, but for the undo tree. Under the work's lock, so that a
    /// thread that reads `incoming` first and the work then sees everything.
    pub(crate) fn gather(&self, work: &mut Work) {
        let (lists, bytes) = {
            let mut incoming = self.incoming.lock();
            (std::mem::take(&mut incoming.lists), std::mem::take(&mut incoming.bytes))
        };
        debug_assert!(lists.iter().map(GhostList::bytes).sum::<usize>() <= bytes);
        for list in &lists {
            list.add_to(&mut work.open);
        }
        if let Some(unmerged) = self.unmerged.take() {
            for (tree, low, high) in unmerged.iter() {
                // A range that stands for many keys is swept: that merges small nodes, too.
                if high == Some(low) {
                    work.merges.add_key(tree, low)
                } else {
                    work.open.add(tree, low, high)
                }
            }
        }
        debug_assert!(work.sets().iter().all(|set| set.is_within_limit()), "the backlog's memory is bounded");
    }

    /// Adds what the undo tree holds in vain. Only between two sweeps: a sweep removes its range
    /// from what is ready, and may have judged these entries while they were needed.
    pub(crate) fn gather_undo(&self, work: &mut Work, undo: TreeId) {
        let unneeded = self.incoming.lock().undo.take();
        if let Some((first, last)) = unneeded {
            work.ready.add(undo, &undo_key(first, 0), Some(&undo_key(TxnId(last.0 + 1), 0)));
        }
    }

    /// Forgets a tree that was dropped, or is about to be.
    pub(crate) fn forget(&self, tree: TreeId) {
        self.work.lock().sets_mut().into_iter().for_each(|set| set.remove_tree(tree));
    }
}

/// What was logged to have made ghosts, and other keys worth a sweep: for analysis.
pub(crate) fn recovered_ranges() -> KeyRanges {
    KeyRanges::new(GENERATION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep of the undo tree leaves an entry whose transaction still runs. The transaction ends,
    /// and another one's commit gathers what was handed in. That range was once added to what is
    /// ready, and removed with the leaves that the sweep had read before.
    #[test]
    fn what_is_handed_in_during_a_sweep_of_the_undo_tree_is_swept_after_it() {
        const UNDO: TreeId = TreeId(2);
        let backlog = Backlog::new();
        backlog.leave_undo(TxnId(1), TxnId(9));
        let mut work = backlog.work.lock();
        backlog.gather_undo(&mut work, UNDO);
        assert!(!work.ready.is_empty(), "a sweep begins");
        backlog.leave_undo(TxnId(5), TxnId(5));
        backlog.gather(&mut work);
        work.ready.remove(UNDO, &[], None);
        backlog.gather_undo(&mut work, UNDO);
        let ready: Vec<_> = work.ready.iter().collect();
        assert_eq!(ready, [(UNDO, &undo_key(TxnId(5), 0)[..], Some(&undo_key(TxnId(6), 0)[..]))]);
    }
}
