//! Explicit locks: on keys and on key ranges.
//!
//! Writers need none (a row is locked by its header); these are for reading for update, for
//! serializable reads, and for writing parts of what a row stands for, which are rows themselves
//! (intention locks). Writers *ask* here, under the leaf's latch, whether a reader forbids the
//! write; readers register here *before* they read the leaf. The later of the two sees the earlier.
//!
//! A request that has been passed over joins a *queue*: transactions that come later, and whose
//! requests exclude it, let it go first (`locks/queue.rs`).
//!
//! Lock order: a point shard → the queue → ranges.
//!
//! Invariants, asserted by [`LockTable::check`]:
//! 1. an entry of a shard is free and has no holders, or has holders and is found by its key's
//!    hash;
//! 2. a transaction is once among an entry's holders, and all of these hold the key in one mode; an
//!    exclusive holder of a key is its only holder;
//! 3. a shard's count is its number of holders, and the count of ranges at least theirs. A writer
//!    that reads zero under the leaf's latch misses no lock: a reader that latched the leaf before
//!    had registered by then, and one that latches it later meets what was written;
//! 4. a transaction that has locked a whole tree for reading has no other range lock in it.

use crate::key_range::KeyRange;
use crate::ranks;
use firndb_base::hash::{FixedMap, hash_bytes};
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicUsize, Ordering};
use firndb_base::{TreeId, TxnId};
use points::Points;
use queue::Queue;

/// What a lock forbids to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Writing, and intention locks.
    Shared,
    /// Writing, and shared locks: it announces writes of rows that the key stands for.
    IntentExclusive,
    /// Writing and locking.
    Exclusive,
}

impl Mode {
    /// Whether two transactions cannot hold one key in these modes.
    fn excludes(self, other: Mode) -> bool {
        self != other || self == Mode::Exclusive
    }

    /// What a transaction holds that has both.
    fn with(self, other: Mode) -> Mode {
        if self == other { self } else { Mode::Exclusive }
    }
}

mod points;
mod queue;

/// Whom a request does not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// None: it lets those in the queue go first that joined before it.
    Fair,
    /// Those in the queue, since one of them waits for this transaction.
    First,
    /// Those in the queue, and those that have locked a range: the transaction has written the row,
    /// so they wait for it, and have not read the row.
    Own,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub tree: TreeId,
    pub key: &'a [u8],
    pub mode: Mode,
}

/// What a request waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Blockers {
    /// Those that hold what it excludes.
    Holders(Vec<TxnId>),
    /// The last that joined the queue before it, and that it excludes.
    Ahead(TxnId),
}

impl Blockers {
    pub fn as_slice(&self) -> &[TxnId] {
        match self {
            Blockers::Holders(holders) => holders,
            Blockers::Ahead(ahead) => std::slice::from_ref(ahead),
        }
    }
}

const SHARDS: usize = 64;
/// A transaction with more shared key locks, or more range locks, than this in one tree locks the
/// whole tree for reading instead.
const ESCALATE_AT: usize = 4096;
/// Most keys that a transaction may lock exclusively, or with intention. They are not escalated,
/// since that would have to wait for every other lock in the tree; the limit bounds their memory at
/// some 40 MiB beside the keys.
pub(crate) const EXCLUSIVE_MAX: usize = 1 << 18;
/// In debug builds, one transaction in this many checks the shards in which it releases locks.
const CHECKED_ONE_IN: u64 = 16;
/// Entries of a shard kept for their memory while no key of it is locked.
const ENTRIES_KEPT: usize = 64;

/// Keys whose hash falls on one number.
#[derive(Debug)]
struct Shard {
    /// Holders of its keys, written under the lock: a write skips the lock when there are none.
    count: AtomicUsize,
    points: Mutex<Points>,
}

impl Shard {
    fn set_count(&self, _locked: &Points, change: impl FnOnce(usize) -> usize) {
        self.count.store(change(self.count.load(Ordering::Relaxed)), Ordering::Release);
    }
}

/// All explicit locks.
#[derive(Debug)]
pub(crate) struct LockTable {
    shards: Vec<Shard>,
    /// How many range locks there are.
    range_count: AtomicUsize,
    ranges: Mutex<FixedMap<TreeId, Vec<(TxnId, KeyRange)>>>,
    pub queue: Queue,
}

/// The locks one transaction holds.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks {
    /// Shards and entries of keys.
    points: Vec<(u32, u32)>,
    /// How many of them are shared, tree by tree.
    shared: Vec<(TreeId, usize)>,
    /// How many are not.
    not_shared: usize,
    range_trees: Vec<TreeId>,
}

impl HeldLocks {
    fn shared_in(&mut self, tree: TreeId) -> &mut usize {
        let at = self.shared.iter().position(|(of, _)| *of == tree).unwrap_or_else(|| {
            self.shared.push((tree, 0));
            self.shared.len() - 1
        });
        &mut self.shared[at].1
    }
}

/// Why a key is not locked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It must wait.
    Blocked(Blockers),
    /// The transaction holds [`EXCLUSIVE_MAX`] locks that are not shared.
    TooMany,
}

impl Default for LockTable {
    fn default() -> LockTable {
        LockTable {
            shards: (0..SHARDS)
                .map(|_| Shard { count: AtomicUsize::new(0), points: ranks::POINTS.mutex(Points::default()) })
                .collect(),
            range_count: AtomicUsize::new(0),
            ranges: ranks::RANGES.mutex(FixedMap::default()),
            queue: Queue::default(),
        }
    }
}

fn hash_of(tree: TreeId, key: &[u8]) -> u64 {
    hash_bytes(u64::from(tree.0), key)
}

impl LockTable {
    /// Locks a key, or returns the transactions that forbid it. Called under the latch of the
    /// key's leaf, after its row was found free; or by recovery; or by one that has the intention
    /// lock, so that no other transaction is writing the row.
    pub fn lock_key(
        &self,
        me: TxnId,
        Wanted { tree, key, mode }: Wanted<'_>,
        turn: Turn,
        held: &mut HeldLocks,
    ) -> Result<(), Refused> {
        if mode == Mode::Shared && self.range_covers(me, tree, key) {
            return Ok(());
        }
        let hash = hash_of(tree, key);
        let number = hash as usize % SHARDS;
        let shard = &self.shards[number];
        let mut points = shard.points.lock();
        let (mut blockers, mut holds) = (Vec::new(), false);
        let found = points.find(hash, tree, key);
        if let Some(at) = found {
            let holders = &points.entries[at as usize].holders;
            blockers.extend(holders.iter().filter(|(t, m)| *t != me && mode.excludes(*m)).map(|(t, _)| *t));
            holds = holders.iter().any(|(t, _)| *t == me);
        }
        if mode != Mode::Shared && turn != Turn::Own {
            self.range_blockers(me, tree, key, &mut blockers);
        }
        if !blockers.is_empty() {
            return Err(Refused::Blocked(Blockers::Holders(blockers)));
        }
        if !holds
            && turn == Turn::Fair
            && let Some(ahead) = self.queue.ahead(me, hash, Wanted { tree, key, mode })
        {
            return Err(Refused::Blocked(Blockers::Ahead(ahead)));
        }
        if mode != Mode::Shared && held.not_shared >= EXCLUSIVE_MAX {
            let counted = |(t, m): &(TxnId, Mode)| *t == me && *m != Mode::Shared;
            if !found.is_some_and(|at| points.entries[at as usize].holders.iter().any(counted)) {
                return Err(Refused::TooMany);
            }
        }
        let at = found.unwrap_or_else(|| points.claim(hash, tree, key));
        let holders = &mut points.entries[at as usize].holders;
        match holders.iter_mut().find(|(t, _)| *t == me) {
            Some((_, mine)) => {
                // Nothing excludes `mode`, nor what is held, so there is no other holder if these
                // differ.
                if *mine == Mode::Shared && mode != Mode::Shared {
                    *held.shared_in(tree) -= 1;
                    held.not_shared += 1;
                }
                *mine = mine.with(mode);
                return Ok(());
            }
            None => {
                holders.push((me, mode));
                shard.set_count(&points, |count| count + 1);
                held.points.push((number as u32, at));
            }
        }
        drop(points);
        if mode != Mode::Shared {
            held.not_shared += 1;
            return Ok(());
        }
        let shared = held.shared_in(tree);
        *shared += 1;
        if *shared > ESCALATE_AT {
            self.escalate(me, tree, held);
        }
        Ok(())
    }

    /// Replaces `me`'s shared key locks in a tree by a lock on the whole tree.
    fn escalate(&self, me: TxnId, tree: TreeId, held: &mut HeldLocks) {
        self.lock_range(me, tree, KeyRange::ALL, held);
        *held.shared_in(tree) = 0;
        self.release_points(me, held, |of, _, mode| of == tree && mode == Mode::Shared);
    }

    /// Releases the key locks of `me` that `which` chooses, by tree, key and mode.
    fn release_points(
        &self,
        me: TxnId,
        held: &mut HeldLocks,
        mut which: impl FnMut(TreeId, &[u8], Mode) -> bool,
    ) {
        held.points.retain(|&(number, at)| {
            let shard = &self.shards[number as usize];
            let mut points = shard.points.lock();
            let point = &points.entries[at as usize];
            let (_, mode) =
                point.holders.iter().find(|(t, _)| *t == me).expect("a held lock is in the table");
            if !which(point.tree, &point.key, *mode) {
                return true;
            }
            points.release(at, me);
            shard.set_count(&points, |count| count - 1);
            false
        });
    }

    /// The keys that `me` has locked exclusively.
    pub fn exclusive_keys(&self, me: TxnId, held: &HeldLocks) -> Vec<(TreeId, Vec<u8>)> {
        if held.not_shared == 0 {
            return Vec::new();
        }
        let keys = held.points.iter().filter_map(|&(number, at)| {
            let points = self.shards[number as usize].points.lock();
            let point = &points.entries[at as usize];
            point.holders.contains(&(me, Mode::Exclusive)).then(|| (point.tree, point.key.clone()))
        });
        keys.collect()
    }

    /// Releases all locks but the exclusive ones on `kept`, which is sorted.
    pub fn release_but(&self, me: TxnId, held: &mut HeldLocks, kept: &[(TreeId, Vec<u8>)]) {
        let is_kept = |tree: TreeId, key: &[u8]| {
            kept.binary_search_by(|(t, k)| t.cmp(&tree).then_with(|| k.as_slice().cmp(key))).is_ok()
        };
        self.release_points(me, held, |tree, key, mode| mode == Mode::Shared || !is_kept(tree, key));
        held.shared.clear();
        held.not_shared = held.points.len();
        self.release_ranges(me, held);
    }

    /// Locks a range for reading. Never refused: the reader meets writers of rows in it when it
    /// reads the rows.
    pub fn lock_range(&self, me: TxnId, tree: TreeId, mut range: KeyRange, held: &mut HeldLocks) {
        let mut ranges = self.ranges.lock();
        let of_tree = ranges.entry(tree).or_default();
        if of_tree.iter().any(|(t, r)| *t == me && *r == KeyRange::ALL) {
            return;
        }
        // Up before down: a writer that saw zero in between would by-pass the locks of `me`.
        self.range_count.fetch_add(1, Ordering::SeqCst);
        let last = of_tree.iter().rposition(|(t, _)| *t == me);
        if let Some((at, whole)) = last.and_then(|at| Some((at, of_tree[at].1.continued_by(&range)?))) {
            range = whole;
            of_tree.swap_remove(at);
            self.range_count.fetch_sub(1, Ordering::SeqCst);
        }
        let mine = of_tree.iter().filter(|(t, _)| *t == me).count();
        if mine >= ESCALATE_AT || range == KeyRange::ALL {
            let before = of_tree.len();
            of_tree.retain(|(t, _)| *t != me);
            self.range_count.fetch_sub(before - of_tree.len(), Ordering::SeqCst);
            of_tree.push((me, KeyRange::ALL));
        } else {
            of_tree.push((me, range));
        }
        if !held.range_trees.contains(&tree) {
            held.range_trees.push(tree);
        }
    }

    /// Whether `me` has locked a range with this key.
    fn range_covers(&self, me: TxnId, tree: TreeId, key: &[u8]) -> bool {
        if self.range_count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let ranges = self.ranges.lock();
        ranges.get(&tree).is_some_and(|list| list.iter().any(|(t, range)| *t == me && range.contains(key)))
    }

    fn range_blockers(&self, me: TxnId, tree: TreeId, key: &[u8], blockers: &mut Vec<TxnId>) {
        if self.range_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let ranges = self.ranges.lock();
        if let Some(list) = ranges.get(&tree) {
            let others = list.iter().filter(|(t, range)| *t != me && range.contains(key)).map(|(t, _)| *t);
            blockers.extend(others);
        }
    }

    /// Returns the transactions that `me` must wait for before it writes the key. Called under the
    /// leaf's exclusive latch.
    pub fn write_blockers(&self, me: TxnId, tree: TreeId, key: &[u8], turn: Turn) -> Option<Blockers> {
        let hash = hash_of(tree, key);
        let (holders, holds) = self.holders(me, hash, tree, key);
        if !holders.is_empty() {
            return Some(Blockers::Holders(holders));
        }
        if holds || turn != Turn::Fair {
            return None;
        }
        self.queue.ahead(me, hash, Wanted { tree, key, mode: Mode::Exclusive }).map(Blockers::Ahead)
    }

    /// The other transactions that have locked the key, or a range around it, and whether `me` has
    /// locked the key.
    fn holders(&self, me: TxnId, hash: u64, tree: TreeId, key: &[u8]) -> (Vec<TxnId>, bool) {
        let (mut blockers, mut holds) = (Vec::new(), false);
        let shard = &self.shards[hash as usize % SHARDS];
        if shard.count.load(Ordering::SeqCst) > 0 {
            let points = shard.points.lock();
            if let Some(at) = points.find(hash, tree, key) {
                let holders = &points.entries[at as usize].holders;
                blockers.extend(holders.iter().filter(|(t, _)| *t != me).map(|(t, _)| *t));
                holds = blockers.len() < holders.len();
            }
        }
        self.range_blockers(me, tree, key, &mut blockers);
        (blockers, holds)
    }

    /// Whom `me` must let go first before it locks a range for reading: none that joined the queue
    /// from ticket `before` on, which the first look fills in. What it has locked already is none
    /// of theirs.
    pub fn ahead_in(
        &self,
        me: TxnId,
        tree: TreeId,
        range: &KeyRange,
        before: &mut Option<u64>,
    ) -> Option<TxnId> {
        let wants = |key: &[u8]| range.contains(key) && !self.range_covers(me, tree, key);
        self.queue.ahead_in(tree, before, wants)
    }

    /// Joins the queue, if `me` is not in it.
    pub fn join_queue(&self, me: TxnId, wanted: Wanted<'_>) {
        self.queue.join(me, hash_of(wanted.tree, wanted.key), wanted);
    }

    /// Whether any transaction has locked the key, or a range around it: then its row must stay
    /// where it is.
    pub fn is_locked(&self, tree: TreeId, key: &[u8]) -> bool {
        // No transaction has id zero, so every holder is an "other".
        !self.holders(TxnId(0), hash_of(tree, key), tree, key).0.is_empty()
    }

    /// Releases everything a transaction holds.
    pub fn release(&self, me: TxnId, held: &mut HeldLocks) {
        for (number, at) in held.points.drain(..) {
            let shard = &self.shards[number as usize];
            let mut points = shard.points.lock();
            points.release(at, me);
            shard.set_count(&points, |count| count - 1);
            if cfg!(debug_assertions)
                && me.0.is_multiple_of(CHECKED_ONE_IN)
                && points.entries.len() <= ENTRIES_KEPT
            {
                points.check(shard.count.load(Ordering::SeqCst));
            }
        }
        held.shared.clear();
        held.not_shared = 0;
        self.release_ranges(me, held);
    }

    fn release_ranges(&self, me: TxnId, held: &mut HeldLocks) {
        if held.range_trees.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock();
        for tree in held.range_trees.drain(..) {
            if let Some(list) = ranges.get_mut(&tree) {
                let before = list.len();
                list.retain(|(t, _)| *t != me);
                self.range_count.fetch_sub(before - list.len(), Ordering::SeqCst);
            }
        }
    }

    /// Asserts the module's invariants. The caller holds no lock of this table.
    pub fn check(&self) {
        for shard in &self.shards {
            shard.points.lock().check(shard.count.load(Ordering::SeqCst));
        }
        self.queue.check();
        let ranges = self.ranges.lock();
        let count: usize = ranges.values().map(Vec::len).sum();
        let counted = self.range_count.load(Ordering::SeqCst);
        assert!(counted >= count, "{counted} ranges are counted and {count} are there");
        for list in ranges.values() {
            for (txn, _) in list.iter().filter(|(_, range)| *range == KeyRange::ALL) {
                assert_eq!(
                    list.iter().filter(|(t, _)| t == txn).count(),
                    1,
                    "{txn} has locked the whole tree, and nothing beside"
                );
            }
        }
    }

    /// How many locks there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        let points: usize = self.shards.iter().map(|shard| shard.count.load(Ordering::SeqCst)).sum();
        points + self.range_count.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests;
