//! Explicit locks: on keys and on key ranges.
//!
//! Writers need none (a row is locked by its header); these are for reading for update, and for
//! serializable reads. Writers *ask* here, under the leaf's latch, whether a reader forbids the write;
//! readers register here *before* they look at the leaf. Whoever comes second sees the first.
//!
//! Lock order: a point shard → ranges.

use crate::ranks;
use firn_base::hash::{FixedMap, hash_bytes};
use firn_base::sync::Mutex;
use firn_base::sync::atomic::{AtomicUsize, Ordering};
use firn_base::{TreeId, TxnId};

/// What a lock forbids to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Writing.
    Shared,
    /// Writing and locking.
    Exclusive,
}

/// Keys from `low` to `high`; `None` is without bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// First key in the range.
    pub low: Option<Vec<u8>>,
    /// Last key, and whether it is itself in the range.
    pub high: Option<(Vec<u8>, bool)>,
}

impl KeyRange {
    pub const ALL: KeyRange = KeyRange { low: None, high: None };

    /// One key.
    pub fn of_key(key: &[u8]) -> KeyRange {
        KeyRange { low: Some(key.to_vec()), high: Some((key.to_vec(), true)) }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_ref().is_none_or(|low| low.as_slice() <= key)
            && self.high.as_ref().is_none_or(|(high, inclusive)| {
                if *inclusive { key <= high.as_slice() } else { key < high.as_slice() }
            })
    }
}

const SHARDS: usize = 64;
/// A transaction with more shared key locks, or more range locks, than this in one tree locks the whole tree for reading
/// instead.
const ESCALATE_AT: usize = 4096;
/// Most keys that a transaction may lock exclusively. They are not escalated, since that would have to wait for every other
/// lock in the tree; the limit bounds their memory at some 40 MiB beside the keys.
pub(crate) const EXCLUSIVE_MAX: usize = 1 << 18;
/// Slots of a shard kept for their memory while nobody locks anything in it.
const SLOTS_KEPT: usize = 64;
/// Ends a chain of slots.
const END: u32 = u32::MAX;

/// A locked key. Slots are used again with their memory, so that a lock allocates nothing in the long run.
#[derive(Debug)]
struct Point {
    hash: u64,
    tree: TreeId,
    key: Vec<u8>,
    /// Holders and modes; empty in a free slot.
    holders: Vec<(TxnId, Mode)>,
    /// Next slot whose key has the same hash.
    next: u32,
}

/// Locked keys of one shard. A slot stays where it is while anybody holds its key.
#[derive(Debug, Default)]
struct Points {
    /// First slot of those with a hash.
    by_hash: FixedMap<u64, u32>,
    slots: Vec<Point>,
    free: Vec<u32>,
}

impl Points {
    fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<u32> {
        let mut at = *self.by_hash.get(&hash)?;
        while at != END {
            let point = &self.slots[at as usize];
            if point.tree == tree && point.key == key {
                return Some(at);
            }
            at = point.next;
        }
        None
    }

    fn claim(&mut self, hash: u64, tree: TreeId, key: &[u8]) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let point = Point { hash, tree, key: Vec::new(), holders: Vec::new(), next: END };
            self.slots.push(point);
            (self.slots.len() - 1) as u32
        });
        let next = self.by_hash.insert(hash, at).unwrap_or(END);
        let point = &mut self.slots[at as usize];
        assert!(point.holders.is_empty(), "nobody holds what a free slot was");
        (point.hash, point.tree, point.next) = (hash, tree, next);
        point.key.clear();
        point.key.extend_from_slice(key);
        at
    }

    /// Takes `me` off a slot's holders, and frees the slot with the last of them.
    fn release(&mut self, at: u32, me: TxnId) {
        let point = &mut self.slots[at as usize];
        let before = point.holders.len();
        point.holders.retain(|(t, _)| *t != me);
        assert!(point.holders.len() + 1 == before, "a held lock stands in the table, once");
        if !point.holders.is_empty() {
            return;
        }
        let (hash, next) = (point.hash, point.next);
        let first = self.by_hash.get_mut(&hash).expect("a held key is found by its hash");
        if *first == at && next == END {
            self.by_hash.remove(&hash);
        } else if *first == at {
            *first = next;
        } else {
            let mut before = *first;
            while self.slots[before as usize].next != at {
                before = self.slots[before as usize].next;
            }
            self.slots[before as usize].next = next;
        }
        self.free.push(at);
        if self.by_hash.is_empty() && self.slots.len() > SLOTS_KEPT {
            *self = Points::default();
        }
    }
}

/// Keys whose hash falls on one number.
#[derive(Debug)]
struct Shard {
    /// Holders of its keys: lets a write pass by the lock when there are none.
    count: AtomicUsize,
    points: Mutex<Points>,
}

/// All explicit locks.
#[derive(Debug)]
pub(crate) struct LockTable {
    shards: Vec<Shard>,
    /// How many range locks there are.
    range_count: AtomicUsize,
    ranges: Mutex<FixedMap<TreeId, Vec<(TxnId, KeyRange)>>>,
}

/// The locks one transaction holds.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks {
    /// Shards and slots of keys.
    points: Vec<(u32, u32)>,
    /// How many of them are shared, tree by tree.
    shared: Vec<(TreeId, usize)>,
    /// How many are exclusive.
    exclusive: usize,
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
    /// These have locked it.
    Blocked(Vec<TxnId>),
    /// The transaction holds [`EXCLUSIVE_MAX`] exclusive locks.
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
        }
    }
}

fn hash_of(tree: TreeId, key: &[u8]) -> u64 {
    hash_bytes(u64::from(tree.0), key)
}

impl LockTable {
    /// Locks a key, or names those who forbid it.
    pub fn lock_key(
        &self,
        me: TxnId,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        held: &mut HeldLocks,
    ) -> Result<(), Refused> {
        if mode == Mode::Shared && self.range_covers(me, tree, key) {
            return Ok(());
        }
        let hash = hash_of(tree, key);
        let number = hash as usize % SHARDS;
        let shard = &self.shards[number];
        let mut points = shard.points.lock();
        let mut blockers: Vec<TxnId> = Vec::new();
        let found = points.find(hash, tree, key);
        if let Some(at) = found {
            let forbids = |theirs: Mode| mode == Mode::Exclusive || theirs == Mode::Exclusive;
            let holders = &points.slots[at as usize].holders;
            blockers.extend(holders.iter().filter(|(t, m)| *t != me && forbids(*m)).map(|(t, _)| *t));
        }
        if mode == Mode::Exclusive {
            self.range_blockers(me, tree, key, &mut blockers);
        }
        if !blockers.is_empty() {
            return Err(Refused::Blocked(blockers));
        }
        if mode == Mode::Exclusive && held.exclusive >= EXCLUSIVE_MAX {
            let mine = |at: u32| points.slots[at as usize].holders.contains(&(me, Mode::Exclusive));
            return if found.is_some_and(mine) { Ok(()) } else { Err(Refused::TooMany) };
        }
        let at = found.unwrap_or_else(|| points.claim(hash, tree, key));
        let holders = &mut points.slots[at as usize].holders;
        match holders.iter_mut().find(|(t, _)| *t == me) {
            Some((_, mine)) => {
                if mode == Mode::Exclusive && *mine == Mode::Shared {
                    *mine = mode;
                    *held.shared_in(tree) -= 1;
                    held.exclusive += 1;
                }
                return Ok(());
            }
            None => {
                holders.push((me, mode));
                shard.count.fetch_add(1, Ordering::SeqCst);
                held.points.push((number as u32, at));
            }
        }
        drop(points);
        if mode == Mode::Exclusive {
            held.exclusive += 1;
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

    /// Gives back the key locks of `me` that `which` chooses, by tree, key and mode.
    fn release_points(
        &self,
        me: TxnId,
        held: &mut HeldLocks,
        mut which: impl FnMut(TreeId, &[u8], Mode) -> bool,
    ) {
        held.points.retain(|&(number, at)| {
            let shard = &self.shards[number as usize];
            let mut points = shard.points.lock();
            let point = &points.slots[at as usize];
            let (_, mode) =
                point.holders.iter().find(|(t, _)| *t == me).expect("a held lock is in the table");
            if !which(point.tree, &point.key, *mode) {
                return true;
            }
            points.release(at, me);
            shard.count.fetch_sub(1, Ordering::SeqCst);
            false
        });
    }

    /// The keys that `me` has locked exclusively.
    pub fn exclusive_keys(&self, me: TxnId, held: &HeldLocks) -> Vec<(TreeId, Vec<u8>)> {
        if held.exclusive == 0 {
            return Vec::new();
        }
        let keys = held.points.iter().filter_map(|&(number, at)| {
            let points = self.shards[number as usize].points.lock();
            let point = &points.slots[at as usize];
            point.holders.contains(&(me, Mode::Exclusive)).then(|| (point.tree, point.key.clone()))
        });
        keys.collect()
    }

    /// Gives back all locks but the exclusive ones on `kept`, which is sorted.
    pub fn release_but(&self, me: TxnId, held: &mut HeldLocks, kept: &[(TreeId, Vec<u8>)]) {
        let is_kept = |tree: TreeId, key: &[u8]| {
            kept.binary_search_by(|(t, k)| t.cmp(&tree).then_with(|| k.as_slice().cmp(key))).is_ok()
        };
        self.release_points(me, held, |tree, key, mode| mode == Mode::Shared || !is_kept(tree, key));
        held.shared.clear();
        held.exclusive = held.points.len();
        self.release_ranges(me, held);
    }

    /// Locks a range for reading. Never refused: writers of rows in it are met when the rows are read.
    pub fn lock_range(&self, me: TxnId, tree: TreeId, range: KeyRange, held: &mut HeldLocks) {
        let mut ranges = self.ranges.lock();
        let of_tree = ranges.entry(tree).or_default();
        if of_tree.iter().any(|(t, r)| *t == me && *r == KeyRange::ALL) {
            return;
        }
        // Up before down: a writer that saw zero in between would by-pass the locks of `me`.
        self.range_count.fetch_add(1, Ordering::SeqCst);
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

    /// Names those whose locks forbid `me` to write the key. Called under the leaf's exclusive latch.
    pub fn write_blockers(&self, me: TxnId, tree: TreeId, key: &[u8]) -> Vec<TxnId> {
        let mut blockers = Vec::new();
        let hash = hash_of(tree, key);
        let shard = &self.shards[hash as usize % SHARDS];
        if shard.count.load(Ordering::SeqCst) > 0 {
            let points = shard.points.lock();
            if let Some(at) = points.find(hash, tree, key) {
                let holders = &points.slots[at as usize].holders;
                blockers.extend(holders.iter().filter(|(t, _)| *t != me).map(|(t, _)| *t));
            }
        }
        self.range_blockers(me, tree, key, &mut blockers);
        blockers
    }

    /// Whether anybody has locked the key, or a range around it: then its row must stay where it is.
    pub fn is_locked(&self, tree: TreeId, key: &[u8]) -> bool {
        // No transaction has id zero, so everybody is an "other".
        !self.write_blockers(TxnId(0), tree, key).is_empty()
    }

    /// Gives back everything a transaction holds.
    pub fn release(&self, me: TxnId, held: &mut HeldLocks) {
        for (number, at) in held.points.drain(..) {
            let shard = &self.shards[number as usize];
            shard.points.lock().release(at, me);
            shard.count.fetch_sub(1, Ordering::SeqCst);
        }
        held.shared.clear();
        held.exclusive = 0;
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

    /// How many locks there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        let points: usize = self.shards.iter().map(|shard| shard.count.load(Ordering::SeqCst)).sum();
        points + self.range_count.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(3);

    #[test]
    fn shared_locks_agree_and_exclusive_ones_do_not() {
        let table = LockTable::default();
        let (mut a, mut b) = (HeldLocks::default(), HeldLocks::default());
        let lock = |txn: u64, mode, held: &mut HeldLocks| table.lock_key(TxnId(txn), TREE, b"k", mode, held);
        assert_eq!(lock(1, Mode::Shared, &mut a), Ok(()));
        assert_eq!(lock(2, Mode::Shared, &mut b), Ok(()));
        assert_eq!(
            lock(1, Mode::Exclusive, &mut a),
            Err(Refused::Blocked(vec![TxnId(2)])),
            "an upgrade waits for other readers"
        );
        assert_eq!(table.write_blockers(TxnId(1), TREE, b"k"), [TxnId(2)]);
        table.release(TxnId(2), &mut b);
        assert_eq!(lock(1, Mode::Exclusive, &mut a), Ok(()));
        assert_eq!(lock(2, Mode::Shared, &mut b), Err(Refused::Blocked(vec![TxnId(1)])));
        assert!(table.write_blockers(TxnId(1), TREE, b"k").is_empty());
        assert!(table.write_blockers(TxnId(2), TREE, b"other").is_empty());
        table.release(TxnId(1), &mut a);
        assert_eq!(table.count(), 0);
        assert!(!table.is_locked(TREE, b"k"));
    }

    #[test]
    fn ranges_forbid_writes_inside_them() {
        let table = LockTable::default();
        let mut held = HeldLocks::default();
        let range = KeyRange { low: Some(b"b".to_vec()), high: Some((b"d".to_vec(), false)) };
        table.lock_range(TxnId(1), TREE, range, &mut held);
        for (key, locked) in [("a", false), ("b", true), ("c", true), ("cz", true), ("d", false)] {
            assert_eq!(!table.write_blockers(TxnId(2), TREE, key.as_bytes()).is_empty(), locked, "{key}");
            assert!(table.write_blockers(TxnId(1), TREE, key.as_bytes()).is_empty());
        }
        let mut other = HeldLocks::default();
        let exclusive = table.lock_key(TxnId(2), TREE, b"c", Mode::Exclusive, &mut other);
        assert_eq!(exclusive, Err(Refused::Blocked(vec![TxnId(1)])));
        assert_eq!(table.lock_key(TxnId(2), TREE, b"c", Mode::Shared, &mut other), Ok(()));
        table.release(TxnId(1), &mut held);
        table.release(TxnId(2), &mut other);
        assert_eq!(table.count(), 0);
    }

    /// All key locks once counted, of every tree and exclusive ones too: then one more shared lock locked its whole tree.
    #[test]
    fn shared_locks_are_counted_tree_by_tree_and_without_exclusive_ones() {
        let table = LockTable::default();
        let mut held = HeldLocks::default();
        let mut lock = |tree: u32, number: u32, mode| {
            table.lock_key(TxnId(1), TreeId(tree), &number.to_be_bytes(), mode, &mut held)
        };
        for number in 0..ESCALATE_AT as u32 {
            assert_eq!(lock(1, number, Mode::Exclusive), Ok(()));
            assert_eq!(lock(2, number, Mode::Shared), Ok(()));
            // Locked for reading first, and then for writing.
            assert_eq!(lock(4, number, Mode::Shared), Ok(()));
            assert_eq!(lock(4, number, Mode::Exclusive), Ok(()));
        }
        assert_eq!(lock(3, 0, Mode::Shared), Ok(()));
        assert_eq!(lock(4, u32::MAX, Mode::Shared), Ok(()));
        for tree in 1..5 {
            assert!(table.write_blockers(TxnId(2), TreeId(tree), b"another").is_empty(), "tree {tree}");
        }
        let mut lock = |tree: u32, number: u32, mode| {
            table.lock_key(TxnId(1), TreeId(tree), &number.to_be_bytes(), mode, &mut held)
        };
        assert_eq!(lock(2, u32::MAX, Mode::Shared), Ok(()));
        let locked = |tree| !table.write_blockers(TxnId(2), TreeId(tree), b"another").is_empty();
        assert_eq!([1, 2, 3, 4].map(locked), [false, true, false, false]);
        table.release(TxnId(1), &mut held);
        assert_eq!(table.count(), 0);
    }

    /// There was no end to them: each takes some hundred bytes.
    #[test]
    fn exclusive_locks_end_at_their_limit() {
        let table = LockTable::default();
        let mut held = HeldLocks::default();
        let mut lock =
            |number: u32, mode| table.lock_key(TxnId(1), TREE, &number.to_be_bytes(), mode, &mut held);
        for number in 0..EXCLUSIVE_MAX as u32 {
            assert_eq!(lock(number, Mode::Exclusive), Ok(()));
        }
        assert_eq!(lock(u32::MAX, Mode::Exclusive), Err(Refused::TooMany));
        assert_eq!(lock(7, Mode::Exclusive), Ok(()), "it has that one");
        assert_eq!(lock(u32::MAX, Mode::Shared), Ok(()));
        assert_eq!(lock(u32::MAX, Mode::Exclusive), Err(Refused::TooMany), "an upgrade counts as well");
        table.release(TxnId(1), &mut held);
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn what_is_prepared_keeps_the_exclusive_locks_that_are_named() {
        let table = LockTable::default();
        let mut held = HeldLocks::default();
        for (key, mode) in [(b"a", Mode::Exclusive), (b"b", Mode::Shared), (b"c", Mode::Exclusive)] {
            assert_eq!(table.lock_key(TxnId(1), TREE, key, mode, &mut held), Ok(()));
        }
        table.lock_range(TxnId(1), TREE, KeyRange::of_key(b"d"), &mut held);
        let mut keys = table.exclusive_keys(TxnId(1), &held);
        keys.sort();
        assert_eq!(keys, [(TREE, b"a".to_vec()), (TREE, b"c".to_vec())]);
        keys.remove(0);
        table.release_but(TxnId(1), &mut held, &keys);
        let locked = |key: &[u8]| table.is_locked(TREE, key);
        assert_eq!([b"a", b"b", b"c", b"d"].map(|key| locked(key)), [false, false, true, false]);
        assert_eq!(table.exclusive_keys(TxnId(1), &held), keys);
        table.release(TxnId(1), &mut held);
        assert_eq!(table.count(), 0);
    }

    #[test]
    fn many_key_locks_become_one_lock_on_the_tree() {
        let table = LockTable::default();
        let mut held = HeldLocks::default();
        for i in 0..2 * ESCALATE_AT as u32 {
            table
                .lock_key(TxnId(1), TREE, &i.to_be_bytes(), Mode::Shared, &mut held)
                .expect("nobody else locks");
        }
        assert_eq!(table.count(), 1);
        assert_eq!(table.write_blockers(TxnId(2), TREE, b"anything"), [TxnId(1)]);
        table.release(TxnId(1), &mut held);
        assert_eq!(table.count(), 0);
        assert!(table.write_blockers(TxnId(2), TREE, b"anything").is_empty());
    }
}
