//! The locked keys of one shard.

use super::{ENTRIES_KEPT, Mode};
use firndb_base::hash::FixedMap;
use firndb_base::{TreeId, TxnId};

/// A locked key. Entries are reused with their memory, so that a lock allocates nothing in the long
/// run.
#[derive(Debug)]
pub(super) struct Point {
    hash: u64,
    pub tree: TreeId,
    pub key: Vec<u8>,
    /// Holders and modes; empty in a free entry.
    pub holders: Vec<(TxnId, Mode)>,
    /// Next entry whose key has the same hash.
    next: Option<u32>,
}

/// Locked keys of one shard. An entry stays where it is while any transaction holds its key.
#[derive(Debug, Default)]
pub(super) struct Points {
    /// First entry with a hash.
    by_hash: FixedMap<u64, u32>,
    pub entries: Vec<Point>,
    free: Vec<u32>,
}

impl Points {
    pub fn find(&self, hash: u64, tree: TreeId, key: &[u8]) -> Option<u32> {
        let mut next = self.by_hash.get(&hash).copied();
        while let Some(at) = next {
            let point = &self.entries[at as usize];
            if point.tree == tree && point.key == key {
                return Some(at);
            }
            next = point.next;
        }
        None
    }

    pub fn claim(&mut self, hash: u64, tree: TreeId, key: &[u8]) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            let point = Point { hash, tree, key: Vec::new(), holders: Vec::new(), next: None };
            self.entries.push(point);
            (self.entries.len() - 1) as u32
        });
        let next = self.by_hash.insert(hash, at);
        let point = &mut self.entries[at as usize];
        assert!(point.holders.is_empty(), "a free entry has no holders");
        (point.hash, point.tree, point.next) = (hash, tree, next);
        point.key.clear();
        point.key.extend_from_slice(key);
        at
    }

    /// Removes `me` from an entry's holders, and frees the entry with the last of them.
    pub fn release(&mut self, at: u32, me: TxnId) {
        let point = &mut self.entries[at as usize];
        let before = point.holders.len();
        point.holders.retain(|(t, _)| *t != me);
        assert!(point.holders.len() + 1 == before, "a held lock stands in the table, once");
        if !point.holders.is_empty() {
            return;
        }
        let (hash, next) = (point.hash, point.next);
        let first = self.by_hash.get_mut(&hash).expect("a held key is found by its hash");
        if *first != at {
            let mut before = *first;
            while self.entries[before as usize].next != Some(at) {
                before = self.entries[before as usize].next.expect("an entry is in its hash's chain");
            }
            self.entries[before as usize].next = next;
        } else if let Some(next) = next {
            *first = next;
        } else {
            self.by_hash.remove(&hash);
        }
        self.free.push(at);
        if self.by_hash.is_empty() && self.entries.len() > ENTRIES_KEPT {
            *self = Points::default();
        }
    }

    /// Asserts invariants 1 to 3 of a shard with this `count`.
    pub fn check(&self, count: usize) {
        let holders = |at: u32| &self.entries[at as usize].holders;
        assert!(self.free.iter().all(|at| holders(*at).is_empty()), "a free entry has no holders");
        let (mut chained, mut held) = (0, 0);
        for (hash, first) in &self.by_hash {
            let mut next = Some(*first);
            while let Some(at) = next {
                let point = &self.entries[at as usize];
                assert!(point.hash == *hash && !point.holders.is_empty(), "a held key is found by its hash");
                assert!(
                    point.holders.windows(2).all(|pair| !pair[0].1.excludes(pair[1].1)),
                    "all hold it in one mode, and an exclusive holder is the only one"
                );
                for (n, (txn, _)) in point.holders.iter().enumerate() {
                    assert!(point.holders[..n].iter().all(|(t, _)| t != txn), "{txn} holds a key once");
                }
                chained += 1;
                held += point.holders.len();
                assert!(chained <= self.entries.len(), "a chain of entries ends");
                next = point.next;
            }
        }
        assert_eq!(chained + self.free.len(), self.entries.len(), "each entry is free or held");
        assert_eq!(count, held, "holders are counted");
    }
}
