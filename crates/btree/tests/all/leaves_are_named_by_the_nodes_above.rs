//! `leaves` and `next_leaves` beside what the leaves themselves say: their fences.

use crate::common::*;
use firndb_base::PageId;
use firndb_base::rng::Rng;
use firndb_btree::{Direction, Position, Tree, Visit};
use std::collections::BTreeSet;

/// A leaf: its page, and the keys that it may hold.
struct Leaf {
    page: PageId,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Leaf {
    fn may_hold(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// All leaves, in key order, and how many other pages the tree has.
fn leaves_of(tree: &Tree) -> (Vec<Leaf>, u64) {
    let report = tree.check().unwrap().into_result().unwrap();
    let inner = report.inner_pages;
    (nodes_of(tree, 0), inner)
}

/// All nodes of a level, in key order.
fn nodes_of(tree: &Tree, level: u8) -> Vec<Leaf> {
    let report = tree.check().unwrap().into_result().unwrap();
    let mut leaves = Vec::new();
    for page in report.pages {
        let bytes = tree.pool().shared(page).unwrap();
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        if bytes[1] == level {
            let (low, high) = (32..32 + half(8), 32 + half(8)..32 + half(8) + half(10));
            let high = (bytes[2] & 1 == 0).then(|| bytes[high].to_vec());
            leaves.push(Leaf { page, low: bytes[low].to_vec(), high });
        }
    }
    leaves.sort_unstable_by(|one, other| one.low.cmp(&other.low));
    leaves
}

fn tree_with(keys: u64, frames: usize, seed: u64) -> Tree {
    let (tree, mut rng) = (tree_of(512, frames), Rng::new(seed));
    for _ in 0..keys {
        let key = random_key(&mut rng, 512, 4 * keys);
        let value = random_value(&mut rng, 512, &key);
        put(&tree, &key, &value);
    }
    tree
}

fn random_keys(rng: &mut Rng, spread: u64) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (0..rng.below(60)).map(|_| random_key(rng, 512, spread)).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn of_given_keys() {
    let mut rng = Rng::new(1);
    // From a root that is a leaf to four levels.
    for (seed, keys) in [0, 3, 30, 300, 3000].into_iter().enumerate() {
        let tree = tree_with(keys, 60, seed as u64);
        let (leaves, _) = leaves_of(&tree);
        for _ in 0..50 {
            let keys = random_keys(&mut rng, 4 * keys + 1);
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut expected: Vec<PageId> = keys
                .iter()
                .map(|key| leaves.iter().find(|leaf| leaf.may_hold(key)).expect("fences leave no gap").page)
                .collect();
            expected.dedup();
            let mut found = vec![PageId(99_999)];
            tree.leaves(&keys, &mut found).unwrap();
            assert_eq!(found[0], PageId(99_999), "they are appended");
            assert_eq!(found[1..], expected);
        }
    }
}

#[test]
fn each_with_the_leaf_behind_it_under_one_parent() {
    let (mut rng, mut last_of_a_parent) = (Rng::new(4), 0);
    for (seed, keys) in [0, 3, 30, 300, 3000].into_iter().enumerate() {
        let tree = tree_with(keys, 60, seed as u64);
        let (leaves, parents) = (leaves_of(&tree).0, nodes_of(&tree, 1));
        let parent_of = |leaf: &Leaf| parents.iter().position(|node| node.may_hold(&leaf.low));
        for _ in 0..50 {
            let keys = random_keys(&mut rng, 4 * keys + 1);
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let (mut own, mut found) = (Vec::new(), Vec::new());
            tree.leaves(&keys, &mut own).unwrap();
            tree.leaves_with_next(&keys, &mut found).unwrap();
            let expected = own.into_iter().map(|page| {
                let at = leaves.iter().position(|leaf| leaf.page == page).unwrap();
                let next = leaves.get(at + 1);
                let sibling = next.filter(|next| parent_of(next) == parent_of(&leaves[at]));
                last_of_a_parent += usize::from(next.is_some() && sibling.is_none());
                (page, sibling.map(|next| next.page))
            });
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
    assert!(last_of_a_parent > 50, "{last_of_a_parent}");
}

#[test]
fn of_a_scan() {
    let mut rng = Rng::new(2);
    for (seed, keys) in [0, 3, 30, 300, 3000].into_iter().enumerate() {
        let tree = tree_with(keys, 60, seed as u64);
        let (leaves, _) = leaves_of(&tree);
        for _ in 0..100 {
            let mut key = || random_key(&mut rng, 512, 4 * keys + 1);
            let from = match key() {
                key if key.first().is_some_and(|byte| byte % 7 == 0) => Position::Start,
                key if key.len() % 2 == 0 => Position::At(key),
                key => Position::Past(key),
            };
            // Fences are what a border most easily goes wrong at.
            let to = match rng.below(4) {
                0 => None,
                1 => leaves[rng.below(leaves.len() as u64) as usize].high.clone(),
                2 => Some(leaves[rng.below(leaves.len() as u64) as usize].low.clone()),
                _ => Some(random_key(&mut rng, 512, 4 * keys + 1)),
            };
            for direction in [Direction::Forward, Direction::Backward] {
                let expected = expected_of(&leaves, &from, to.as_deref(), direction);
                let (mut found, mut next) = (Vec::new(), Some(from.clone()));
                while let Some(position) = next {
                    let (before, max) = (found.len(), 1 + rng.below(40) as usize);
                    next = tree.next_leaves(&position, to.as_deref(), direction, max, &mut found).unwrap();
                    assert!(found.len() - before == max || (next.is_none() && found.len() - before < max));
                }
                assert_eq!(found, expected, "from {from:?} to {to:?} {direction:?}");
                let none = tree.next_leaves(&from, to.as_deref(), direction, 0, &mut found).unwrap();
                assert_eq!(none, (!expected.is_empty()).then(|| from.clone()));
                assert_eq!(found, expected, "none were asked for");
            }
        }
    }
}

/// The pages that a scan visits, by the leaves' own fences.
fn expected_of(leaves: &[Leaf], from: &Position, to: Option<&[u8]>, direction: Direction) -> Vec<PageId> {
    let forward = direction == Direction::Forward;
    let begins = |leaf: &Leaf| match from {
        Position::Start => true,
        Position::Past(key) if !forward => leaf.low < *key || (leaf.low.is_empty() && key.is_empty()),
        Position::At(key) | Position::Past(key) => match forward {
            true => leaf.high.as_ref().is_none_or(|high| key < high),
            false => leaf.low <= *key,
        },
    };
    let ends = |leaf: &Leaf| match to {
        None => true,
        Some(to) if forward => leaf.low.as_slice() < to || (leaf.low.is_empty() && to.is_empty()),
        Some(to) => leaf.high.as_deref().is_none_or(|high| high > to),
    };
    let is_empty = match (from, to) {
        (Position::At(from), Some(to)) if !forward => from.as_slice() < to,
        (Position::At(from) | Position::Past(from), Some(to)) => {
            (from.as_slice() >= to) == forward || from == to
        }
        _ => false,
    };
    if is_empty {
        return Vec::new();
    }
    let pages = leaves.iter().filter(|leaf| begins(leaf) && ends(leaf)).map(|leaf| leaf.page);
    if forward { pages.collect() } else { pages.rev().collect() }
}

/// The nodes above the leaves, and the entries of a leaf only if nothing has to be read for them.
#[test]
fn what_comes_next_is_known_before_it_is_read() {
    let mut rng = Rng::new(3);
    for (seed, keys) in [0, 30, 3000].into_iter().enumerate() {
        let tree = tree_with(keys, 60, seed as u64);
        let parents = nodes_of(&tree, 1);
        for _ in 0..50 {
            let keys = random_keys(&mut rng, 4 * keys + 1);
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let parent_of =
                |key: &&[u8]| parents.iter().find(|node| node.may_hold(key)).map(|node| node.page);
            // A root has no parent: it is read in any case.
            let mut expected: Vec<PageId> = keys.iter().filter_map(parent_of).collect();
            expected.dedup();
            expected.retain(|page| *page != tree.root());
            let mut found = Vec::new();
            tree.parents(&keys, &mut found).unwrap();
            assert_eq!(found, expected);
            let Some(key) = keys.first() else { continue };
            for direction in [Direction::Forward, Direction::Backward] {
                let (from, max) = (Position::At(key.to_vec()), 1 + rng.below(5) as usize);
                let expected = expected_of(&parents, &from, None, direction);
                let expected = expected.iter().filter(|page| **page != tree.root()).take(max);
                found.clear();
                tree.next_parents(&from, None, direction, max, &mut found).unwrap();
                assert!(found.iter().eq(expected), "{found:?}");
                let (mut shown, mut visited) = (Vec::new(), Vec::new());
                let note = |to: &mut Vec<Vec<u8>>, key: &[u8]| {
                    to.push(key.to_vec());
                    Visit::Continue
                };
                let reads = tree.pool().tier().statistics().pages_read;
                let next = tree.peek_leaf(&from, direction, |key, _| note(&mut shown, key)).unwrap();
                let read = tree.pool().tier().statistics().pages_read - reads;
                assert!(read <= 1, "no page but the root is read");
                let reads = reads + read;
                let after = tree.visit_leaf(&from, direction, |key, _| note(&mut visited, key)).unwrap();
                match tree.pool().tier().statistics().pages_read == reads {
                    true => assert_eq!((next, shown), (after, visited)),
                    false => assert_eq!((next, shown), (None, Vec::new())),
                }
            }
        }
    }
}

/// Pages of nodes are listed a few at a time, and keys come and go between two calls: what is a
/// node of the level before the first and after the last was listed, unless it is the root.
#[test]
fn every_node_that_stays_is_found_beside_splits_and_merges() {
    let (mut stayed, mut changed) = ([0; 3], 0);
    for seed in 0..24 {
        let tree = tree_with(3000, 60, seed);
        let mut rng = Rng::new(seed);
        for level in 0..3 {
            let pages = || nodes_of(&tree, level).into_iter().map(|node| node.page).collect::<BTreeSet<_>>();
            let (before, mut found, mut next) = (pages(), Vec::new(), Some(Position::Start));
            let puts = rng.below(10);
            while let Some(from) = next {
                let (listed, max) = (found.len(), 1 + rng.below(12) as usize);
                next = tree.nodes_from(level, &from, max, &mut found).unwrap();
                assert!(found.len() - listed <= max);
                for _ in 0..rng.below(120) {
                    let key = random_key(&mut rng, 512, 12_000);
                    match rng.below(10) < puts {
                        true => put(&tree, &key, &random_value(&mut rng, 512, &key)),
                        false => _ = remove(&tree, &key),
                    }
                }
            }
            let (after, found) = (pages(), found.into_iter().collect::<BTreeSet<_>>());
            for page in before.intersection(&after).filter(|page| **page != tree.root()) {
                assert!(found.contains(page), "seed {seed}, level {level}: {page:?}");
                stayed[usize::from(level)] += 1;
            }
            changed += before.symmetric_difference(&after).count();
        }
    }
    assert!(stayed.iter().all(|nodes| *nodes > 20) && changed > 2000, "{stayed:?}, {changed}");
}

#[test]
fn without_reading_a_leaf() {
    let tree = tree_with(6000, 40, 7);
    let (leaves, inner) = leaves_of(&tree);
    assert!(leaves.len() > 400 && inner > 20, "{} leaves", leaves.len());
    let keys: Vec<&[u8]> = leaves.iter().map(|leaf| leaf.low.as_slice()).collect();
    let read = || tree.pool().tier().statistics().pages_read;
    let (before, mut found) = (read(), Vec::new());
    tree.leaves(&keys, &mut found).unwrap();
    let end = tree.next_leaves(&Position::Start, None, Direction::Forward, usize::MAX, &mut found).unwrap();
    assert_eq!(end, None);
    let pages: Vec<PageId> = leaves.iter().map(|leaf| leaf.page).collect();
    assert_eq!(found, [pages.clone(), pages].concat());
    assert!(read() - before <= 2 * inner, "{} pages read, {inner} are no leaves", read() - before);
}
