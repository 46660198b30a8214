//! Random operations on a tree and on a `BTreeMap` return the same results, whatever the page size.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{Change, Direction, Position, Tree, TreeError};
use std::ops::Bound;

/// One random operation on both; asserts that the results agree.
fn step(tree: &Tree, model: &mut Model, rng: &mut Rng, spread: u64, removals: u64) {
    let page_size = tree.pool().page_size();
    let key = random_key(rng, page_size, spread);
    match rng.below(10 + removals) {
        0..6 => {
            let value = random_value(rng, page_size, &key);
            put(tree, &key, &value);
            model.insert(key, value);
        }
        6 => assert_eq!(get(tree, &key), model.get(&key).cloned()),
        7 => {
            if let Some(value) = model.get_mut(&key).filter(|value| !value.is_empty()) {
                let at = rng.below(value.len() as u64) as usize;
                value[at] ^= 0x55;
                let patch = (at, vec![value[at]]);
                tree.modify(&key, CLASS, |_, change, attachment| {
                    attachment.extend_from_slice(b"before-image");
                    *change = Change::Patch([patch.clone()].into_iter().collect());
                    Ok::<_, TreeError>(())
                })
                .expect("in place");
            }
        }
        8 => {
            let from =
                [Position::At(key.clone()), Position::Past(key.clone())][rng.below(2) as usize].clone();
            let past = matches!(from, Position::Past(_));
            let bound = if past { Bound::Excluded(key) } else { Bound::Included(key) };
            if rng.one_in(2) {
                let expected: Vec<_> =
                    model.range((bound, Bound::Unbounded)).take(30).map(|e| e.0.clone()).collect();
                let found = scan(tree, from, Direction::Forward);
                let found: Vec<_> = found.into_iter().take(30).map(|e| e.0).collect();
                assert_eq!(found, expected);
            } else {
                let expected: Vec<_> =
                    model.range((Bound::Unbounded, bound)).rev().take(30).map(|e| e.0.clone()).collect();
                let found = scan(tree, from, Direction::Backward);
                let found: Vec<_> = found.into_iter().take(30).map(|e| e.0).collect();
                assert_eq!(found, expected);
            }
        }
        _ => assert_eq!(remove(tree, &key), model.remove(&key).is_some()),
    }
}

fn run(seed: u64, page_size: usize, frames: usize, steps: usize) {
    let tree = tree_of(page_size, frames);
    let (mut model, mut rng) = (Model::new(), Rng::new(seed));
    for round in 0..4 {
        // Growing and shrinking in turn, so that splits and merges both have their day.
        let removals = if round % 2 == 0 { 2 } else { 30 };
        for _ in 0..steps / 4 {
            step(&tree, &mut model, &mut rng, 400, removals);
        }
        assert_equal(&tree, &model);
    }
    for key in model.keys().cloned().collect::<Vec<_>>() {
        assert!(remove(&tree, &key));
    }
    model.clear();
    assert_equal(&tree, &model);
}

#[test]
fn on_pages_of_512_bytes() {
    (0..6).for_each(|seed| run(seed, 512, 400, 4000));
}

#[test]
fn on_pages_of_4_kib() {
    (10..13).for_each(|seed| run(seed, 4096, 400, 4000));
}

#[test]
fn on_pages_of_64_kib() {
    run(20, 65536, 100, 3000);
}

#[test]
fn on_every_page_size_between() {
    for shift in [10, 11, 13, 14, 15] {
        run(30 + shift, 1 << shift, 200, 1200);
    }
}

#[test]
#[ignore = "takes a quarter of a minute alone"]
fn for_many_seeds() {
    for seed in 1000..1400 {
        run(seed, 512 << (seed % 4), 30 + (seed as usize % 7) * 40, 6000);
    }
}

#[test]
fn with_a_pool_far_smaller_than_the_tree() {
    run(40, 512, 40, 3000);
}

#[test]
fn scans_that_stop_at_each_entry_find_every_entry_once() {
    let tree = tree_of(512, 400);
    let (mut model, mut rng) = (Model::new(), Rng::new(50));
    for _ in 0..600 {
        let key = random_key(&mut rng, 512, 500);
        put(&tree, &key, b"v");
        model.insert(key, b"v".to_vec());
    }
    let all: Vec<_> = model.keys().cloned().collect();
    assert_eq!(scan_stopping(&tree, Position::Start, Direction::Forward), all);
    let mut reversed = scan_stopping(&tree, Position::Start, Direction::Backward);
    reversed.reverse();
    assert_eq!(reversed, all);
}

#[test]
fn trees_grow_deep_on_tiny_pages_and_shrink_to_a_leaf_again() {
    let tree = tree_of(512, 4000);
    let mut model = Model::new();
    for number in 0..3000u32 {
        // Long keys that differ at their end: few separators fit an inner node.
        let key = [&[b'k'; 58][..], &(number.wrapping_mul(2_654_435_761)).to_be_bytes()].concat();
        put(&tree, &key, &number.to_le_bytes());
        model.insert(key, number.to_le_bytes().to_vec());
    }
    let report = tree.check().unwrap();
    assert!(report.height >= 4, "a height of {} shows little", report.height);
    assert_equal(&tree, &model);
    let root = tree.root();
    for key in model.keys() {
        remove(&tree, key);
    }
    let report = tree.check().unwrap().into_result().unwrap();
    assert_eq!((report.height, report.entries, report.pages), (1, 0, vec![root]));
}
