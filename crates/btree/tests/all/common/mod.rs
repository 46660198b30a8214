//! What the tree's tests share: a tree on a log and a tier in memory, and a model beside it.

pub mod hooked_tier;

use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{PageId, TreeId};
use firndb_btree::{Change, Direction, Position, Relocated, Tree, TreeError, Visit};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Log, LogClass};
use firndb_tier::testing::MemoryTier;
use std::collections::BTreeMap;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;
pub const CLASS: LogClass = LogClass::Normal;

pub fn pool_on(log: Arc<Log>, page_size: usize, frames: usize) -> Arc<BufferPool> {
    let tier = Arc::new(MemoryTier::new(page_size));
    let options = PoolOptions { budget_bytes: frames * (page_size + 512) + (1 << 16) };
    Arc::new(BufferPool::new(tier, log, options).expect("a pool"))
}

pub fn tree_of(page_size: usize, frames: usize) -> Tree {
    let log = firndb_log::testing::memory_log_with(256 << 20);
    Tree::create(pool_on(log, page_size, frames), TreeId(7), CLASS, b"").expect("a tree")
}

pub fn put(tree: &Tree, key: &[u8], value: &[u8]) {
    tree.modify(key, CLASS, |_, change, _| {
        *change = Change::Put(value.to_vec());
        Ok::<_, TreeError>(())
    })
    .expect("space for everything");
}

pub fn remove(tree: &Tree, key: &[u8]) -> bool {
    tree.modify(key, CLASS, |value, change, _| {
        if value.is_some() {
            *change = Change::Remove;
        }
        Ok::<_, TreeError>(value.is_some())
    })
    .expect("removal needs no space")
    .0
}

/// Puts a value of up to 60 bytes, `puts` times of ten, or removes the key, in the tree and in the
/// model.
pub fn put_or_remove(tree: &Tree, model: &mut Model, rng: &mut Rng, key: Vec<u8>, (byte, puts): (u8, u64)) {
    if rng.below(10) < puts {
        let value = vec![byte; rng.below(60) as usize];
        put(tree, &key, &value);
        model.insert(key, value);
    } else {
        assert_eq!(remove(tree, &key), model.remove(&key).is_some());
    }
}

pub fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.get(key, |value| value.map(<[u8]>::to_vec)).expect("readable")
}

pub fn scan(tree: &Tree, from: Position, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut found, mut next) = (Vec::new(), Some(from));
    while let Some(position) = next {
        next = tree
            .visit_leaf(&position, direction, |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                Visit::Continue
            })
            .expect("readable");
    }
    found
}

/// A scan that stops at each entry and starts again from the position it was given.
pub fn scan_stopping(tree: &Tree, from: Position, direction: Direction) -> Vec<Vec<u8>> {
    let (mut found, mut next) = (Vec::new(), Some(from));
    while let Some(position) = next {
        next = tree
            .visit_leaf(&position, direction, |key, _| {
                found.push(key.to_vec());
                Visit::Stop
            })
            .expect("readable");
    }
    found
}

/// Moves all nodes from `limit` on, a few at a time; returns what was done.
pub fn relocate(tree: &Tree, limit: u64, most: usize) -> Relocated {
    let mut all = Relocated::default();
    for level in 0.. {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let done = tree.relocate_children(level, &from, PageId(limit), most, CLASS);
            let Some(done) = done.expect("log and space") else { return all };
            all.moved += done.moved;
            all.left.extend(done.left);
            all.is_short |= done.is_short;
            next = done.next;
        }
    }
    unreachable!("a tree has an end")
}

pub fn assert_sound(tree: &Tree, model: &Model) {
    let report = tree.check().expect("readable");
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.entries, model.len() as u64);
    let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!(report.entry_bytes, bytes as u64);
    assert_eq!(report.pages.len() as u64, report.inner_pages + report.leaf_pages);
    let allocated = tree.pool().tier().statistics().pages_allocated;
    assert_eq!(allocated, report.pages.len() as u64, "no page is lost");
}

pub fn assert_equal(tree: &Tree, model: &Model) {
    assert_sound(tree, model);
    let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(scan(tree, Position::Start, Direction::Forward), all);
    let mut reversed = scan(tree, Position::Start, Direction::Backward);
    reversed.reverse();
    assert_eq!(reversed, all);
}

/// Keys of several shapes: short and dense, long common prefixes, up to the limit, empty.
pub fn random_key(rng: &mut Rng, page_size: usize, spread: u64) -> Vec<u8> {
    let max = Tree::max_key_len(page_size);
    let number = rng.below(spread);
    let mut key = match rng.below(8) {
        0..4 => number.to_be_bytes()[4..].to_vec(),
        4 => format!("a long prefix that all of these share/{number:05}").into_bytes(),
        5 => vec![number as u8; (number as usize * 7) % (max + 1)],
        6 => [&b"tail"[..], &[0; 40][..(number as usize) % 40]].concat(),
        _ => number.to_string().into_bytes(),
    };
    key.truncate(max);
    key
}

pub fn random_value(rng: &mut Rng, page_size: usize, key: &[u8]) -> Vec<u8> {
    let max = Tree::max_entry_len(page_size) - key.len();
    let len = if rng.one_in(8) { rng.below(max as u64 + 1) } else { rng.below((max as u64 / 4).max(2)) };
    vec![rng.next_u64() as u8; len as usize]
}
