//! Calls of every kind beside splits, merges and clears, in pools so small that pages come and go
//! all the time: each thread finds its own keys as it left them.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{Change, Direction, Position, Tree, TreeError, TreeErrorKind, Visit};
use firndb_buffer::PageUse;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

fn key(number: u64, me: u8) -> Vec<u8> {
    [&number.to_be_bytes()[5..], &[me]].concat()
}

/// Looks up random keys of a thread at once, those there and others.
fn look_up_many(tree: &Tree, model: &Model, rng: &mut Rng, me: u8) {
    let mut keys: Vec<_> = (0..rng.below(40)).map(|_| key(rng.below(600) * 31, me)).collect();
    keys.sort_unstable();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    if rng.one_in(2) {
        let mut leaves = Vec::new();
        tree.leaves(&keys, &mut leaves).unwrap();
        assert_eq!(leaves.is_empty(), keys.is_empty());
        assert!(leaves.len() <= keys.len());
        tree.pool().bring_in(&leaves, PageUse::Working);
    }
    let mut next = 0;
    tree.visit_many(&keys, |at, value| {
        assert_eq!(at, next);
        assert_eq!(value, model.get(keys[at]).map(Vec::as_slice));
        next += 1;
    })
    .unwrap();
    assert_eq!(next, keys.len());
}

/// Scans a random range with leaves brought in ahead, and compares a thread's own keys in it.
fn scan_range(tree: &Tree, model: &Model, rng: &mut Rng, me: u8) {
    let (low, high) = (rng.below(600) * 31, rng.below(600) * 31);
    let (low, high) = (key(low.min(high), 0), key(low.max(high), 0));
    let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
    let (from, to) = match direction {
        Direction::Forward => (&low, &high),
        Direction::Backward => (&high, &low),
    };
    let from = Position::Past(from.clone());
    let (mut ahead, mut next, mut found) = (Some(from.clone()), Some(from), Vec::new());
    while let Some(position) = next {
        if let Some(from) = ahead.take() {
            let mut leaves = Vec::new();
            let max = 1 + rng.below(8) as usize;
            ahead = tree.next_leaves(&from, Some(to), direction, max, &mut leaves).unwrap();
            assert!(leaves.len() <= max && (ahead.is_none() || leaves.len() == max));
            tree.pool().bring_in(&leaves, PageUse::Once);
        }
        next = tree
            .visit_leaf_for(&position, direction, PageUse::Once, |key, value| {
                if key.last() == Some(&me) && low.as_slice() <= key && key < high.as_slice() {
                    found.push((key.to_vec(), value.to_vec()));
                }
                Visit::Continue
            })
            .unwrap();
        next = next.filter(|next| match (next, direction) {
            (Position::At(key), Direction::Forward) => key < to,
            (Position::Past(key), Direction::Backward) => key > to,
            _ => unreachable!("a scan goes on at a fence"),
        });
    }
    if direction == Direction::Backward {
        found.reverse();
    }
    let expected = model.range(low..high).map(|(key, value)| (key.clone(), value.clone()));
    assert!(expected.eq(found));
}

#[test]
fn each_thread_finds_its_own_keys() {
    for frames in [24, 60, 400] {
        let tree = tree_of(512, frames);
        thread::scope(|scope| {
            for me in 1..4u8 {
                let tree = &tree;
                scope.spawn(move || {
                    let (mut rng, mut model) = (Rng::new(u64::from(me)), Model::new());
                    for round in 0..4 {
                        for step in 0..800 {
                            let key = key(rng.below(600) * 31, me);
                            // By turns the tree grows and shrinks.
                            if rng.below(10) < if round % 2 == 0 { 8 } else { 2 } {
                                let value = vec![me; rng.below(60) as usize];
                                put(tree, &key, &value);
                                model.insert(key, value);
                            } else {
                                assert_eq!(remove(tree, &key), model.remove(&key).is_some());
                            }
                            match step % 16 {
                                3 => look_up_many(tree, &model, &mut rng, me),
                                11 => scan_range(tree, &model, &mut rng, me),
                                _ => {}
                            }
                        }
                        let report = tree.check().unwrap();
                        assert_eq!(report.damage, Vec::<String>::new());
                    }
                });
            }
        });
        tree.check().unwrap().into_result().unwrap();
    }
}

/// A tree that is cleared refuses its calls from some moment on, and is empty at last: no call
/// meets anything else, though pages are freed that it is about to read.
#[test]
fn clearing_is_all_that_a_call_beside_it_meets() {
    for round in 0..12u64 {
        let tree = tree_of(512, [24, 40, 400][round as usize % 3]);
        (0..600).for_each(|number| put(&tree, &key(number, 1), &[1; 30]));
        let (begun, done) = (Barrier::new(4), AtomicBool::new(false));
        thread::scope(|scope| {
            for thread in 0..3 {
                let (tree, begun, done) = (&tree, &begun, &done);
                scope.spawn(move || {
                    let mut rng = Rng::new(7 * round + thread);
                    call_beside_clear(tree, &mut rng).expect("not cleared yet");
                    begun.wait();
                    while !done.load(Relaxed) {
                        if let Err(error) = call_beside_clear(tree, &mut rng) {
                            assert_eq!(error.kind, TreeErrorKind::Condemned, "{error}");
                        }
                    }
                });
            }
            begun.wait();
            let mut steps = 0;
            while tree.clear_step(CLASS).unwrap() {
                let refused = tree.get(&key(7, 1), |_| ()).expect_err("it is being cleared");
                assert_eq!(refused.kind, TreeErrorKind::Condemned);
                steps += 1;
            }
            assert!(steps > 3);
            done.store(true, Relaxed);
        });
        assert_sound(&tree, &Model::new());
    }
}

fn call_beside_clear(tree: &Tree, rng: &mut Rng) -> Result<(), TreeError> {
    let right = |value: Option<&[u8]>| assert!(value.is_none_or(|value| value == [1; 30]));
    let number = rng.below(600);
    let keys: Vec<_> = (number..number + 40).map(|number| key(number, 1)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut leaves = Vec::new();
    match rng.below(6) {
        0 => tree.get(keys[0], right),
        1 => tree.visit_many(&keys, |_, value| right(value)),
        2 => {
            tree.leaves(&keys, &mut leaves)?;
            tree.pool().bring_in(&leaves, PageUse::Working);
            tree.visit_many(&keys, |_, value| right(value))
        }
        3 => {
            let from = Position::At(keys[0].to_vec());
            tree.next_leaves(&from, None, Direction::Backward, 9, &mut leaves).map(drop)
        }
        4 => {
            let from = Position::At(keys[0].to_vec());
            let show = |_: &[u8], value: &[u8]| {
                right(Some(value));
                Visit::Continue
            };
            tree.visit_leaf_for(&from, Direction::Forward, PageUse::Once, show).map(drop)
        }
        _ => tree
            .modify(keys[0], CLASS, |old, change, _| {
                right(old);
                if old.is_some() {
                    *change = Change::Put(vec![1; 30]);
                }
                Ok::<_, TreeError>(())
            })
            .map(drop),
    }
}
