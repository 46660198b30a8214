//! Nodes get lower page numbers, and no call that goes on beside it notices.

use crate::common::hooked_tier::{HookedTier, hooked_tree, reopened};
use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{PageId, TreeId};
use firndb_btree::{Direction, Position, Tree, TreeError};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Appended, LogClass, LogError, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier, TierError, TierErrorKind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// A tier that hands out the lowest free number, one that was free just now included.
struct LowestFirst {
    inner: MemoryTier,
    taken: Mutex<BTreeSet<PageId>>,
    /// Not handed out, though free.
    kept: Mutex<BTreeSet<PageId>>,
}

impl PageTier for LowestFirst {
    firndb_tier::forward_tier!(inner: page_size, read_batch, write_batch, make_batch_space, prepare, sync);
    firndb_tier::forward_tier!(inner: version_of, oldest_needed_lsn, statistics, whereabouts);
    fn reserve(&self, _: LogClass) -> Result<PageId, TierError> {
        let (mut taken, kept) = (self.taken.lock(), self.kept.lock());
        let is_free = |page: &PageId| !taken.contains(page) && !kept.contains(page);
        let page = (1..).map(PageId).find(is_free).expect("numbers have no end");
        taken.insert(page);
        Ok(page)
    }
    fn unreserve(&self, page: PageId) {
        assert!(self.taken.lock().remove(&page));
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        let freed = change.free.to_vec();
        let appended = self.inner.publish(change, append)?;
        let mut taken = self.taken.lock();
        freed.iter().for_each(|page| assert!(taken.remove(page)));
        Ok(appended)
    }
}

impl LowestFirst {
    /// Keeps numbers from being handed out until they are given back.
    fn keep(&self, pages: std::ops::RangeInclusive<u64>) {
        self.kept.lock().extend(pages.map(PageId));
    }
    fn give_back(&self, pages: std::ops::RangeInclusive<u64>) {
        pages.for_each(|page| _ = self.kept.lock().remove(&PageId(page)));
    }
}

fn low_tree(page_size: usize, frames: usize) -> (Arc<LowestFirst>, Tree) {
    let (taken, kept) = (Mutex::default(), Mutex::default());
    let tier = Arc::new(LowestFirst { inner: MemoryTier::new(page_size), taken, kept });
    let log = firndb_log::testing::memory_log_with(256 << 20);
    let options = PoolOptions { budget_bytes: frames * (page_size + 512) + (1 << 16) };
    let pool = Arc::new(BufferPool::new(Arc::clone(&tier) as _, log, options).expect("a pool"));
    (tier, Tree::create(pool, TreeId(7), CLASS, b"").expect("a tree"))
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn pages(tree: &Tree) -> Vec<PageId> {
    tree.check().expect("readable").into_result().expect("sound").pages
}

#[test]
fn all_but_the_root_go_below_the_limit_and_nothing_else_changes() {
    for page_size in [512, 4096] {
        let (tier, tree) = low_tree(page_size, 2000);
        let (mut rng, mut model) = (Rng::new(page_size as u64), Model::new());
        tier.keep(2..=5000);
        for _ in 0..6000 {
            let key = random_key(&mut rng, page_size, 5000);
            let value = random_value(&mut rng, page_size, &key);
            put(&tree, &key, &value);
            model.insert(key, value);
        }
        let before = pages(&tree);
        assert!(before.iter().filter(|page| page.0 > 5000).count() == before.len() - 1);
        let short = relocate(&tree, 5000, 3);
        assert!(short.is_short && short.moved == 0, "{short:?}");
        tier.give_back(2..=5000);
        let done = relocate(&tree, 5000, 3);
        assert_eq!((done.moved, done.left.len()), (before.len() as u64 - 1, 0));
        assert!(!done.is_short && pages(&tree).iter().all(|page| page.0 < 5000));
        assert_equal(&tree, &model);
        assert_eq!(relocate(&tree, 5000, 3).moved, 0, "nothing is left to be moved");
        // Those of the first that are not low enough: the next limit needs fewer numbers.
        let limit = before.len() as u64 / 2;
        tier.keep(1..=limit);
        tier.give_back(limit / 2..=limit / 2);
        assert!(relocate(&tree, limit, 3).is_short, "one number was free");
        assert_equal(&tree, &model);
    }
}

/// A copy of the root, and the hints of a thread, lead to a number that is free by now, or another
/// leaf of the same tree: its level and its tree are right, and only that the page was given up can
/// tell.
#[test]
fn a_thread_that_knew_the_old_page_finds_the_key_all_the_same() {
    for (changed, again) in (0..60).step_by(7).flat_map(|key| [(key, false), (key, true)]) {
        let (tier, tree) = low_tree(512, 300);
        tier.keep(2..=100);
        (0..60).for_each(|number| put(&tree, &key(number), &[1; 60]));
        // This thread remembers root and leaf.
        put(&tree, &key(changed), &[2; 60]);
        assert_eq!(get(&tree, &key(changed)), Some(vec![2; 60]));
        let mut old = Vec::new();
        tree.leaves(&[&key(changed)], &mut old).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                tier.give_back(2..=40);
                assert!(relocate(&tree, 41, 2).moved > 8);
                // The old numbers become those of other leaves.
                tier.keep(if again { 2..=100 } else { 2..=200 });
                (1000..1060).for_each(|number| put(&tree, &key(number), &[9; 60]));
            });
        });
        // (Not to be asked of the tree now, which would make this thread forget.)
        let is_taken = tier.taken.lock().contains(&old[0]);
        assert!(old[0].0 > 100 && is_taken == again, "{old:?}");
        put(&tree, &key(changed), &[3; 60]);
        assert_eq!(get(&tree, &key(changed)), Some(vec![3; 60]));
        (0..60).for_each(|number| assert!(get(&tree, &key(number)).is_some(), "key {number}"));
        assert_eq!(scan(&tree, Position::Start, Direction::Forward).len(), 120);
        tree.check().unwrap().into_result().unwrap();
    }
}

/// One scan, which sees each key once and all of `stays`.
fn scan_once(tree: &Tree, direction: Direction, stays: &[Vec<u8>]) {
    let mut seen: Vec<Vec<u8>> =
        scan(tree, Position::Start, direction).into_iter().map(|(key, _)| key).collect();
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "each key once and in order");
    seen.retain(|key| key.last() == Some(&0));
    assert_eq!(seen, stays);
}

/// Numbers become free a slice at a time, each below the one before.
const SLICES: u64 = 400;
const SLICE: u64 = 10;

#[test]
fn beside_threads_that_read_write_and_scan() {
    let (tier, tree) = low_tree(512, 400);
    tier.keep(2..=SLICES * SLICE);
    let (done, slices) = (AtomicBool::new(false), AtomicU64::new(SLICES - 1));
    let stays: Vec<Vec<u8>> = (0..300u32).map(|n| [&n.to_be_bytes()[..], &[0]].concat()).collect();
    stays.iter().for_each(|key| put(&tree, key, b"stays"));
    thread::scope(|scope| {
        for direction in [Direction::Forward, Direction::Backward] {
            let (tree, done, stays) = (&tree, &done, &stays);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    scan_once(tree, direction, stays);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Relaxed) {
                stays.iter().for_each(|key| assert_eq!(get(&tree, key).as_deref(), Some(&b"stays"[..])));
                let keys: Vec<&[u8]> = stays.iter().map(|key| &key[..]).collect();
                tree.visit_many(&keys, |_, value| assert_eq!(value, Some(&b"stays"[..]))).unwrap();
            }
        });
        let movers: Vec<_> = (0..2u64)
            .map(|me| {
                let (tree, tier, done, slices) = (&tree, &tier, &done, &slices);
                scope.spawn(move || {
                    let (mut rng, mut moved) = (Rng::new(40 + me), 0);
                    while !done.load(Relaxed) {
                        let slice = slices.fetch_sub(1, Relaxed);
                        if slice == 0 {
                            break;
                        }
                        tier.give_back(SLICE * slice..=SLICE * (slice + 1) - 1);
                        moved += relocate(tree, SLICE * (slice + 1), rng.between(1, 5) as usize).moved;
                    }
                    moved
                })
            })
            .collect();
        let writers: Vec<_> = (1..3u8)
            .map(|me| {
                let tree = &tree;
                scope.spawn(move || {
                    let (mut rng, mut model) = (Rng::new(me.into()), Model::new());
                    for round in 0..24 {
                        for _ in 0..300 {
                            let key = [&(rng.below(300) as u32).to_be_bytes()[..], &[me]].concat();
                            let puts = if round % 2 == 0 { 8 } else { 1 };
                            put_or_remove(tree, &mut model, &mut rng, key, (me, puts));
                        }
                        for (key, value) in &model {
                            assert_eq!(get(tree, key).as_ref(), Some(value));
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("its rows are as it left them"));
        done.store(true, Relaxed);
        let moved: u64 = movers.into_iter().map(|mover| mover.join().expect("no panic")).sum();
        assert!(moved > 200, "{moved} nodes were moved");
    });
    tree.check().unwrap().into_result().unwrap();
}

/// A tree on a tier that shows its reads, whose nodes all have numbers above `HIGH`. From here on
/// numbers are low.
fn high_tree(keys: u32) -> (Arc<HookedTier>, Tree) {
    let (tier, tree) = hooked_tree(512, 1000);
    tier.hand_out_after(HIGH);
    (0..keys).for_each(|number| put(&tree, &key(number), &[1; 20]));
    let tree = reopened(&tier, &tree, 1000);
    tier.hand_out_after(PageId(10));
    (tier, tree)
}

const HIGH: PageId = PageId(10_000);

/// A thread waits for the read of a leaf; meanwhile that gets another number.
#[test]
fn a_read_of_the_old_page_that_ends_late_leads_nowhere() {
    let (tier, tree) = high_tree(900);
    let mut leaf = Vec::new();
    tree.leaves(&[&key(500)], &mut leaf).unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let (begun, wanted) = (std::sync::Mutex::new(begun), leaf[0]);
    tier.on_read(move |read| {
        if read == wanted && begun.lock().unwrap().send(()).is_ok() {
            thread::sleep(std::time::Duration::from_millis(30));
        }
        Ok(())
    });
    thread::scope(|scope| {
        let reader = scope.spawn(|| (495..505).for_each(|n| assert!(get(&tree, &key(n)).is_some())));
        begins.recv().unwrap();
        // It waits for the read, and then has the page to itself.
        assert!(relocate(&tree, HIGH.0, 4).moved > 50);
        reader.join().unwrap();
    });
    tier.read_as_usual();
    let mut now = Vec::new();
    tree.leaves(&[&key(500)], &mut now).unwrap();
    assert!(leaf[0] > HIGH && now[0] < HIGH, "{leaf:?} {now:?}");
    assert_eq!(scan(&tree, Position::Start, Direction::Forward).len(), 900);
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn a_node_that_cannot_be_read_stays_and_the_others_are_moved() {
    for level in [0, 1] {
        let (tier, tree) = high_tree(2000);
        let mut found = Vec::new();
        match level {
            0 => tree.leaves(&[&key(700)], &mut found).unwrap(),
            _ => tree.parents(&[&key(700)], &mut found).unwrap(),
        }
        let all = pages(&tree).len() as u64;
        let (broken, tree) = (found[0], reopened(&tier, &tree, 1000));
        tier.on_read(move |read| match read == broken {
            true => Err(TierError::new(TierErrorKind::Damaged, "a page that rotted")),
            false => Ok(()),
        });
        let done = relocate(&tree, HIGH.0, 7);
        assert!(!done.left.is_empty() && done.left.iter().all(TreeError::concerns_a_page), "{done:?}");
        match level {
            0 => assert_eq!((done.moved, done.left.len()), (all - 2, 1)),
            // What hangs from it is not seen.
            _ => assert!((all - 60..all - 5).contains(&done.moved), "{} of {all}", done.moved),
        }
        tier.read_as_usual();
        // Once it can be read again, nothing is missing, and it is moved, too.
        assert_eq!(scan(&tree, Position::Start, Direction::Forward).len(), 2000);
        assert_eq!(relocate(&tree, HIGH.0, 7).moved + done.moved + 1, all);
        assert!(pages(&tree).iter().all(|page| *page < HIGH));
    }
}
