//! `visit_many` beside a map.

use crate::common::hooked_tier::{hooked_tree, reopened};
use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{Direction, Missing, Position, Tree, Visit};
use firndb_buffer::PageUse;

#[test]
fn as_one_by_one() {
    let mut rng = Rng::new(3);
    for size in [0, 5, 200, 2500] {
        let (tree, mut model) = (tree_of(512, 40), Model::new());
        for _ in 0..size {
            let key = random_key(&mut rng, 512, 2 * size);
            let value = random_value(&mut rng, 512, &key);
            put(&tree, &key, &value);
            model.insert(key, value);
        }
        for _ in 0..60 {
            let mut keys: Vec<_> =
                (0..rng.below(100)).map(|_| random_key(&mut rng, 512, 2 * size + 1)).collect();
            keys.sort_unstable();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut next = 0;
            tree.visit_many(&keys, |at, value| {
                assert_eq!(at, next, "each key once, in order");
                assert_eq!(value, model.get(keys[at]).map(Vec::as_slice), "{:?}", keys[at]);
                next += 1;
            })
            .unwrap();
            assert_eq!(next, keys.len());
        }
    }
}

#[test]
fn with_one_latch_a_leaf() {
    let tree = tree_of(512, 400);
    (0..1000u32).for_each(|number| put(&tree, &number.to_be_bytes(), &[1; 20]));
    let report = tree.check().unwrap().into_result().unwrap();
    let keys: Vec<_> = (0..1000u32).map(u32::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let hits = || tree.pool().statistics().hits;
    let (before, mut seen) = (hits(), 0);
    tree.visit_many(&keys, |_, value| seen += usize::from(value == Some(&[1; 20]))).unwrap();
    assert_eq!(seen, 1000);
    assert_eq!(hits() - before, report.leaf_pages * u64::from(report.height), "a descent for each leaf");
}

/// Calls that pass every leaf of a tree four times as large as the pool.
#[test]
fn what_passes_every_leaf_once_leaves_the_working_set_in_memory() {
    let tree = tree_of(512, 120);
    let keys: Vec<_> = (0..6000u32).map(u32::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    keys.iter().for_each(|key| put(&tree, key, &[1; 20]));
    // Written by now, so that no frame is lost to what waits for a cleaner.
    tree.pool().write_older_than(tree.pool().log().end()).unwrap();
    let (leaves, working) = (tree.check().unwrap().leaf_pages, &keys[2000..2400]);
    assert!(leaves > 4 * 100, "{leaves} leaves");
    let misses = || tree.pool().statistics().misses;
    type Pass = fn(&Tree);
    let passes: [(&str, Pass); 3] = [
        ("a scan", |tree| {
            let mut next = Some(Position::Start);
            while let Some(from) = next {
                let visit = |_: &[u8], _: &[u8]| Visit::Continue;
                next = tree.visit_leaf_for(&from, Direction::Forward, PageUse::Once, visit).unwrap();
            }
        }),
        ("a check", |tree| drop(tree.check().unwrap().into_result().unwrap())),
        ("a sample", |tree| {
            assert!(tree.sample_leaves(5000, &mut Rng::new(1), |_| true).unwrap().is_whole);
        }),
    ];
    for (name, pass) in passes {
        (0..3).for_each(|_| tree.visit_many(working, |_, _| ()).unwrap());
        let before = misses();
        pass(&tree);
        assert!(misses() - before > leaves / 2, "{name}: most leaves are not in memory");
        let before = misses();
        tree.visit_many(working, |_, value| assert_eq!(value, Some(&[1; 20][..]))).unwrap();
        assert_eq!(misses() - before, 0, "{name} pushed nothing out");
    }
}

/// In a tree of which nothing but the root is in memory.
#[test]
fn what_is_missing_comes_in_a_batch_for_each_level() {
    let (tier, tree) = hooked_tree(512, 400);
    (0..20_000u32).for_each(|number| put(&tree, &number.to_be_bytes(), &[1; 20]));
    tree.pool().write_older_than(tree.pool().log().end()).unwrap();
    let tree = reopened(&tier, &tree, 1000);
    let keys: Vec<_> = (0..100u32).map(|number| (200 * number).to_be_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let (mut absent, mut missing) = (Vec::new(), Missing::default());
    tree.visit_in_memory(&keys, PageUse::Working, &mut absent, &mut missing, |_, _| unreachable!()).unwrap();
    assert_eq!(absent.len(), keys.len());
    tree.bring_in_missing(&keys, PageUse::Working, &mut missing).unwrap();
    let read = tree.pool().statistics();
    assert!(read.misses > 110, "leaves and the nodes above them: {read:?}");
    assert!(read.reads_at_once_sum > 20 * read.misses, "read together: {read:?}");
    let mut seen = 0;
    absent.clear();
    missing.clear();
    let count = |_: usize, value: Option<&[u8]>| seen += usize::from(value == Some(&[1; 20][..]));
    tree.visit_in_memory(&keys, PageUse::Working, &mut absent, &mut missing, count).unwrap();
    assert_eq!((seen, absent.len()), (keys.len(), 0));
    assert_eq!(tree.pool().statistics().misses, read.misses, "nothing is left to read");
}
