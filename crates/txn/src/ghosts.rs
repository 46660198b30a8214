//! Where ghosts are, and how they are removed from their pages.
//!
//! A deleted row stays as a *ghost* while a snapshot may not see its deletion. Then background
//! steps remove it. Every ghost is removed in bounded time; that rests on this invariant of the
//! *backlog*:
//!
//! * **Every ghost is covered.** The key of each ghost in a page lies in a range of keys that is
//!   kept in one of these places: with the running or prepared transaction that made it
//!   ([`GhostList`]), in `incoming`, or in one of the sets of [`Work`]. A delete adds its key under
//!   the lock that settles its undo entry, and so does a write over a ghost; a commit moves the
//!   list to `incoming` under the registry's lock, in the very section that ends the transaction; a
//!   rollback that puts a ghost back adds its key. A sweep removes a range only after it has judged
//!   every entry of the leaves in it, and what it had to leave there is added again first. That
//!   includes rows of transactions that recovery found and that have not ended: their lists are
//!   lost, and undoing them may put ghosts back there, before which nothing in the log says so
//!   again.
//! * **It survives.** A checkpoint record carries the union of those places, made coarse until it
//!   is small ([`TxnManager::ghosts_to_keep`]); and a log record says whether it made a ghost or
//!   covered one, so analysis adds what comes after the redo start. An undo entry that is settled
//!   when the checkpoint looks is in the union; one that is not holds the redo start at or before
//!   its record. So an opening knows at once, and without reading a page, where ghosts may be. The
//!   price is one byte's bit in the log, 16 KiB at most in a checkpoint record, and, where memory
//!   was too short for exact ranges, sweeps that read leaves without ghosts.
//! * **Its memory is bounded**: [`TxnManager::GHOST_BYTES_MAX`] in all, whatever is deleted and
//!   however long a snapshot is open. Beyond their limits the sets become coarser (`KeyRanges`),
//!   and at worst say that a tree is to be swept whole. A transaction's own list is bounded
//!   likewise.
//!
//! *When*: ranges are worked on by *generations*. What is known is sealed with the number of
//! commits so far; when every snapshot in use was taken after these, the generation is ready to be
//! swept, and the next one, which has grown meanwhile, is sealed. So each range is visited once a
//! generation, however often its rows change, and waits for two generations of snapshots at most.
//! What an opening finds, and whatever else waits for no snapshot, is ready at once. What a sweep
//! leaves:
//! * a ghost whose writer runs, or is to be rolled back: its end says what becomes of it, and
//!   covers it;
//! * rows, ghosts or not, of a loser that recovery found: their keys are kept for the next opening,
//!   since its rollback covers what it puts back in memory only, and a crash may come before a
//!   checkpoint knows of that;
//! * one whose writer has ended and is not seen by all: it belongs to the next generation;
//! * a locked one, or a row, ghost or not, of a prepared transaction that recovery found: it waits
//!   until the transactions that may hold the lock, which are those that run now, have ended.
//!
//! So no range is visited repeatedly in vain.
//!
//! *How*: a step sweeps [`LEAVES_A_STEP`] leaves at most, each latched shared to inspect it and
//! exclusively only if it has something to remove; records are of class `Normal`, so they never
//! consume the log space reserved for undo. Cold leaves enter the buffer by one use and leave by
//! it. Small leaves are merged behind the sweep, when their right neighbours have been swept, so
//! that no ghost is moved from page to page; those whose merge meets an error are tried again. A
//! full log stops a step, not the work. Damage sets the leaf aside (`set_aside.rs`), or all below a
//! damaged node; the sweep continues behind it, and the next opening tries again.
//!
//! The undo tree is swept by the same steps: its entries of transactions that all snapshots see are
//! garbage.

use crate::error::TxnError;
use crate::ghost_backlog::{GENERATION_MAX, INCOMING_MAX, SMALL_SET_MAX, Sweeps, Work};
use crate::header::RowHeader;
use crate::manager::TxnManager;
use crate::state::Status;
use firndb_base::sync::atomic::Ordering;
use firndb_base::{Progress, TreeId, TxnId};
use firndb_btree::{KeyRanges, Position, Swept, Tree, TreeError, TreeErrorKind};
use firndb_log::LogClass;

/// What is removed because no snapshot needs it waits until there is log: it never takes what is
/// kept for undoing.
pub(crate) const HOUSEKEEPING: LogClass = LogClass::Normal;

/// Leaves swept in one step, at most.
const LEAVES_A_STEP: usize = 8;
/// How often a leaf is read that cannot be read, before it is set aside.
const READS: u32 = 3;
/// Bytes that a checkpoint record says of ghosts, at most: a sixtieth of the log between two
/// checkpoints, at least.
const IN_CHECKPOINT_MAX: usize = 16 << 10;

/// One piece of work.
enum Job {
    /// A leaf.
    Leaf(TreeId, Vec<u8>),
    /// Leaves from a key on, up to another or the tree's end.
    Range(TreeId, Vec<u8>, Option<Vec<u8>>),
    /// Nodes on the way to a key.
    Merge(TreeId, Vec<u8>),
}

/// What may be done with an entry that a transaction left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Every snapshot sees the transaction, now and later.
    Removable,
    /// It has ended, but some snapshot may not see it.
    Young,
    /// It has not ended, and will say itself what it leaves.
    Later,
    /// As `Later`, but it will not say so: recovery found it prepared.
    Prepared,
    /// As `Later`; recovery found it open. What it says is lost if a crash follows.
    Loser,
}

/// First and last of the keys that a sweep had to leave in a leaf.
#[derive(Default)]
struct Left(Option<(Vec<u8>, Vec<u8>)>);

impl Left {
    fn add(&mut self, key: &[u8]) {
        match &mut self.0 {
            None => self.0 = Some((key.to_vec(), key.to_vec())),
            Some((first, _)) if key < &first[..] => *first = key.to_vec(),
            Some((_, last)) if key > &last[..] => *last = key.to_vec(),
            Some(_) => {}
        }
    }
    fn add_to(&self, ranges: &mut KeyRanges, tree: TreeId) {
        if let Some((first, last)) = &self.0 {
            ranges.add(tree, first, Some(last));
        }
    }
}

/// What a sweep had to leave in the leaves that it visited.
#[derive(Default)]
struct LeftBehind {
    /// Their writers have ended, but some snapshot may not see them.
    young: Left,
    /// Locked, or of a prepared transaction that recovery found.
    locked: Left,
    /// Of losers that recovery found.
    losers: Left,
}

impl TxnManager {
    /// Bytes of memory that remember where ghosts are, at most: and what a handful of commits add
    /// at one moment; with very many trees, 96 bytes for each in each of seven sets if that is
    /// more.
    pub const GHOST_BYTES_MAX: usize = INCOMING_MAX + 3 * GENERATION_MAX + 4 * SMALL_SET_MAX;

    /// Where ghosts may be, for a checkpoint record, in few bytes; `None`: in every tree. `own` is
    /// what running transactions know themselves, and must have been read before.
    pub(crate) fn ghosts_to_keep(&self, own: KeyRanges) -> Option<KeyRanges> {
        let mut all = own;
        for list in &self.backlog.incoming.lock().lists {
            list.add_to(&mut all);
        }
        all.add_all(&self.backlog.unmerged.noted());
        {
            let work = self.backlog.work.lock();
            if work.every_tree {
                return None;
            }
            work.sets().into_iter().for_each(|set| all.add_all(set));
        }
        // An opening sweeps all of it anyway.
        all.remove_tree(self.undo.id());
        let limit = IN_CHECKPOINT_MAX.min((self.log.group_max() / 8) as usize);
        Some(all.limited(limit)).filter(|ranges| ranges.bytes() <= 4 * limit)
    }

    /// Takes in what commits have handed in: without background work they would hand in more and
    /// more.
    pub(crate) fn gather_ghosts(&self) {
        let mut work = self.backlog.work.lock();
        self.backlog.gather(&mut work);
    }

    /// Whether [`TxnManager::maintenance_step`] sweeps a range of leaves now: its caller should
    /// pause between two steps.
    #[must_use]
    pub fn sweeps(&self) -> Sweeps {
        *self.backlog.sweeps.lock()
    }

    /// Removes some ghosts, or what else is left in pages.
    ///
    /// Errors: those of pages and devices, but for damage, which is set aside; `LogFull`: there is
    /// more to do when the log has space. Nothing is forgotten by an error.
    pub(crate) fn ghost_step(&self) -> Result<Progress, TxnError> {
        let Some(job) = self.next_job() else {
            *self.backlog.sweeps.lock() = Sweeps::No;
            return Ok(Progress::Idle);
        };
        let is_of_leaves = matches!(&job, Job::Range(_, low, high) if high.as_ref() != Some(low));
        *self.backlog.sweeps.lock() = if is_of_leaves { Sweeps::InVain } else { Sweeps::No };
        let (Job::Leaf(id, _) | Job::Range(id, ..) | Job::Merge(id, _)) = &job;
        let tree = if *id == self.undo.id() { Some(self.undo.clone()) } else { self.tree(*id) };
        let Some(tree) = tree else {
            // A dropped tree; or one that a damaged catalog hides, which the next opening may know
            // again.
            self.backlog.forget(*id);
            if self.unknown_trees.get().is_some() {
                self.backlog.work.lock().aside.add(*id, &[], None);
            }
            return Ok(Progress::Worked);
        };
        match job {
            Job::Leaf(_, key) => _ = self.sweep(&tree, &key, Some(&key))?,
            Job::Range(_, low, high) => {
                if self.sweep(&tree, &low, high.as_deref())? > 0 && is_of_leaves {
                    *self.backlog.sweeps.lock() = Sweeps::WithEffect;
                }
            }
            Job::Merge(_, key) => self.merge_again(&tree, &key)?,
        }
        Ok(Progress::Worked)
    }

    fn next_job(&self) -> Option<Job> {
        let (waiting, turn) = {
            let mut work = self.backlog.work.lock();
            work.turn = work.turn.wrapping_add(1);
            ((!work.locked.is_empty()).then_some(work.locked_until), work.turn)
        };
        let met = if turn % 2 == 1 { self.backlog.met.lock().pop_front() } else { None };
        if let Some((tree, key)) = met {
            return Some(Job::Leaf(tree, key.into()));
        }
        let fallen = waiting.filter(|&until| !self.runs_before(until));
        let mut work = self.backlog.work.lock();
        self.backlog.gather(&mut work);
        self.backlog.gather_undo(&mut work, self.undo.id());
        let work = &mut *work;
        if std::mem::take(&mut work.every_tree) {
            self.tree_ids().into_iter().for_each(|tree| work.ready.add(tree, &[], None));
        }
        let Work { open, sealed, ready_at, ready, at, locked, locked_until, locked_next, merges, .. } = work;
        if merges.iter().any(|(_, low, high)| high != Some(low)) {
            // They became too many to be named one by one.
            move_all(merges, ready);
        }
        if fallen == Some(*locked_until) {
            move_all(locked, ready);
        }
        {
            let registry = self.registry.lock();
            if locked.is_empty() && !locked_next.is_empty() {
                std::mem::swap(locked, locked_next);
                *locked_until = registry.next();
            }
            if registry.horizon() >= *ready_at {
                move_all(sealed, ready);
                std::mem::swap(sealed, open);
                // What was gathered was left by commits that had their numbers when the registry
                // was free.
                *ready_at = registry.sequence();
                if registry.horizon() >= *ready_at {
                    move_all(sealed, ready);
                }
            }
        }
        let merge = merges.iter().next().map(|(tree, key, _)| Job::Merge(tree, key.to_vec()));
        let next = ready.next_from(at.0, &at.1).or_else(|| ready.iter().next());
        let sweep = next.map(|(tree, low, high)| Job::Range(tree, low.to_vec(), high.map(<[u8]>::to_vec)));
        // By turns, so that one that always fails does not keep the others from being done.
        if turn % 2 == 0 { merge.or(sweep) } else { sweep.or(merge) }
    }

    /// What may be done with something that `writer` has left.
    fn fate(&self, writer: TxnId) -> Fate {
        if writer < self.low_water() {
            return Fate::Removable;
        }
        match self.find(writer) {
            // Purged, unless its before-images are all spilled.
            None if self.is_spilled_out(writer) => Fate::Young,
            None => Fate::Removable,
            Some(state) => match state.status() {
                Status::Committed | Status::Aborted => Fate::Young,
                Status::Prepared if state.found_by_recovery => Fate::Prepared,
                _ if state.found_by_recovery => Fate::Loser,
                // What is set aside is undone after the next opening, if ever.
                Status::Active | Status::Prepared | Status::SetAside => Fate::Later,
            },
        }
    }

    /// Sweeps leaves from that of `low` on, up to that of `high` or the tree's end. Returns how
    /// many entries it removed.
    fn sweep(&self, tree: &Tree, low: &[u8], high: Option<&[u8]>) -> Result<u64, TxnError> {
        let id = tree.id();
        let mut left = LeftBehind::default();
        let mut judge = |key: &[u8], value: &[u8]| self.is_garbage(id, key, value, &mut left);
        let mut leaves: Vec<Swept> = Vec::with_capacity(LEAVES_A_STEP);
        let mut at = low.to_vec();
        let (mut ended, mut failed) = (false, None);
        while leaves.len() < LEAVES_A_STEP && !ended && failed.is_none() {
            let mut outcome = tree.sweep_leaf(&at, HOUSEKEEPING, &mut judge);
            for _ in 1..READS {
                if matches!(&outcome, Err(error) if error.kind == TreeErrorKind::Unreadable) {
                    outcome = tree.sweep_leaf(&at, HOUSEKEEPING, &mut judge);
                }
            }
            match outcome {
                Ok(leaf) => {
                    match &leaf.high {
                        Some(next) if high.is_none_or(|high| high >= &next[..]) => at.clone_from(next),
                        _ => ended = true,
                    }
                    leaves.push(leaf);
                }
                Err(error) => failed = Some(error),
            }
        }
        let removed: u64 = leaves.iter().map(|leaf| leaf.removed as u64).sum();
        if id != self.undo.id() {
            self.counters.ghosts_removed.fetch_add(removed, Ordering::Relaxed);
        }
        // The last one, if it is small and the sweep continues, is merged by the next step, when
        // its neighbour is swept, too.
        let continues = !ended && failed.is_none();
        if continues && leaves.len() > 1 && leaves.last().is_some_and(|leaf| leaf.small) {
            leaves.pop();
        }
        for leaf in leaves.iter().filter(|leaf| leaf.small) {
            tree.merge_opportunely(&leaf.low, HOUSEKEEPING);
        }
        self.note_swept(id, &leaves, &left);
        match failed {
            None => {}
            Some(error) if concerns_a_page(&error) && self.is_known(tree) => {
                self.set_leaf_aside(tree, &at, error);
            }
            Some(error) => self.unless_gone(tree, error)?,
        }
        Ok(removed)
    }

    /// Whether a sweep removes the entry; notes in `left` what it must leave.
    fn is_garbage(&self, tree: TreeId, key: &[u8], value: &[u8], left: &mut LeftBehind) -> bool {
        if tree == self.undo.id() {
            let writer = key.first_chunk::<8>().map(|id| TxnId(u64::from_be_bytes(*id)));
            match writer.map(|writer| self.fate(writer)) {
                Some(Fate::Removable) => return true,
                Some(Fate::Young) => left.young.add(key),
                Some(Fate::Prepared | Fate::Loser | Fate::Later) | None => {}
            }
            return false;
        }
        let Ok((header, _)) = RowHeader::split(value) else { return false };
        // What undoing makes of a row is known of the transactions of this epoch.
        if !header.ghost && (header.writer >= self.first_txn || header.writer < self.low_water()) {
            return false;
        }
        match self.fate(header.writer) {
            Fate::Prepared => left.locked.add(key),
            Fate::Loser => left.losers.add(key),
            Fate::Removable | Fate::Young | Fate::Later if !header.ghost => {}
            Fate::Removable if self.locks.is_locked(tree, key) => left.locked.add(key),
            Fate::Removable => return true,
            Fate::Young => left.young.add(key),
            Fate::Later => {}
        }
        false
    }

    /// Removes the range of swept leaves from the work, and adds what was left in them.
    fn note_swept(&self, tree: TreeId, leaves: &[Swept], left: &LeftBehind) {
        let mut work = self.backlog.work.lock();
        left.young.add_to(&mut work.open, tree);
        left.locked.add_to(&mut work.locked_next, tree);
        left.losers.add_to(&mut work.aside, tree);
        if let (Some(first), Some(last)) = (leaves.first(), leaves.last()) {
            work.ready.remove(tree, &first.low, last.high.as_deref());
            work.at = match &last.high {
                Some(next) => (tree, next.clone()),
                None => (TreeId(tree.0.saturating_add(1)), Vec::new()),
            };
        }
    }

    /// Leaves a damaged leaf, or all below a damaged node, to the next opening.
    fn set_leaf_aside(&self, tree: &Tree, at: &[u8], error: TreeError) {
        let next = match tree.past_leaf(&Position::At(at.to_vec())) {
            Ok(Some(Position::At(next))) => Some(next),
            // The rest of the tree, as far as is known.
            _ => None,
        };
        {
            let mut work = self.backlog.work.lock();
            work.ready.remove(tree.id(), at, next.as_deref());
            // All that was removed from `ready`, or these ghosts would be in no set.
            work.aside.add(tree.id(), at, next.as_deref());
        }
        self.set_aside(self.about(tree), &error.into());
    }

    /// Tries merges again that met an error.
    fn merge_again(&self, tree: &Tree, key: &[u8]) -> Result<(), TxnError> {
        let outcome = tree.merge_small(key, HOUSEKEEPING);
        if let Err(error) = &outcome
            && !(concerns_a_page(error) && self.is_known(tree))
        {
            return outcome.or_else(|error| self.unless_gone(tree, error));
        }
        {
            let mut work = self.backlog.work.lock();
            work.merges.remove_key(tree.id(), key);
            if outcome.is_err() {
                work.aside.add_key(tree.id(), key);
            }
        }
        outcome.or_else(|error| {
            self.set_aside(self.about(tree), &error.into());
            Ok(())
        })
    }

    /// Forgets the work in a tree that is being cleared, or was dropped meanwhile; otherwise the
    /// error is the caller's.
    fn unless_gone(&self, tree: &Tree, error: TreeError) -> Result<(), TxnError> {
        if self.is_known(tree) && error.kind != TreeErrorKind::Condemned {
            return Err(error.into());
        }
        self.backlog.forget(tree.id());
        Ok(())
    }

    fn is_known(&self, tree: &Tree) -> bool {
        tree.id() == self.undo.id() || self.tree(tree.id()).is_some()
    }

    /// What a sweep does in a tree, for people.
    fn about(&self, tree: &Tree) -> String {
        match tree.id() == self.undo.id() {
            true => "removing unneeded before-images from the undo tree".to_owned(),
            false => format!("removing deleted rows from {}", tree.id()),
        }
    }

    /// Whether a transaction from before `until` runs or is prepared, other than those that are
    /// only left to be undone.
    fn runs_before(&self, until: TxnId) -> bool {
        let losers: Vec<TxnId> = self.losers.lock().keys().copied().collect();
        let registry = self.registry.lock();
        registry.active.range(..until).any(|(id, _)| losers.binary_search(id).is_err())
    }
}

fn concerns_a_page(error: &TreeError) -> bool {
    matches!(error.kind, TreeErrorKind::Damaged | TreeErrorKind::Unreadable)
}

fn move_all(from: &mut KeyRanges, to: &mut KeyRanges) {
    if from.is_empty() {
        return;
    }
    match to.is_empty() && to.limit() == from.limit() {
        true => std::mem::swap(from, to),
        false => {
            to.add_all(from);
            from.clear();
        }
    }
}
