//! Threads on the same and on different keys, with splits and merges going on all the time.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{Change, Direction, Position, TreeError, Visit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

#[test]
fn each_thread_finds_its_own_keys_as_it_left_them() {
    let tree = tree_of(512, 300);
    thread::scope(|scope| {
        for me in 0..4u64 {
            let tree = &tree;
            scope.spawn(move || {
                let (mut rng, mut model) = (Rng::new(me), Model::new());
                for round in 0..6 {
                    for _ in 0..700 {
                        // Keys of all threads lie side by side in the same leaves.
                        let key = [&(rng.below(400) * 77).to_be_bytes()[5..], &[me as u8]].concat();
                        let puts = if round % 2 == 0 { 8 } else { 2 };
                        put_or_remove(tree, &mut model, &mut rng, key, (me as u8, puts));
                    }
                    for (key, value) in &model {
                        assert_eq!(get(tree, key).as_ref(), Some(value));
                    }
                    let mine: Vec<_> = scan(tree, Position::Start, Direction::Forward)
                        .into_iter()
                        .filter(|(key, _)| key.last() == Some(&(me as u8)))
                        .collect();
                    assert!(mine.iter().map(|(key, value)| (key, value)).eq(model.iter()));
                }
            });
        }
    });
    tree.check().unwrap().into_result().unwrap();
}

/// Few steps, for Miri, which searches for races and weak orders rather than for rare schedules.
#[test]
fn in_small() {
    let (tree, steps) = (tree_of(512, 40), if cfg!(miri) { 12 } else { 200 });
    thread::scope(|scope| {
        for me in 0..3u64 {
            let tree = &tree;
            scope.spawn(move || {
                let (mut rng, mut model) = (Rng::new(200 + me), Model::new());
                for _ in 0..steps {
                    let key = [&rng.below(20).to_be_bytes()[5..], &[me as u8]].concat();
                    if rng.one_in(4) {
                        assert_eq!(remove(tree, &key), model.remove(&key).is_some());
                    } else {
                        put(tree, &key, &[me as u8; 90]);
                        model.insert(key.clone(), vec![me as u8; 90]);
                    }
                    assert_eq!(get(tree, &key).as_ref(), model.get(&key));
                }
                let mine = scan(tree, Position::Start, Direction::Forward)
                    .into_iter()
                    .filter(|(key, _)| key.last() == Some(&(me as u8)));
                assert!(mine.eq(model));
            });
        }
    });
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn increments_of_shared_counters_are_not_lost() {
    let (tree, total) = (tree_of(512, 300), AtomicU64::new(0));
    thread::scope(|scope| {
        for me in 0..4u64 {
            let (tree, total) = (&tree, &total);
            scope.spawn(move || {
                let mut rng = Rng::new(100 + me);
                for _ in 0..4000 {
                    let key = (rng.below(300) * 131).to_be_bytes();
                    tree.modify(&key, CLASS, |value, change, _| {
                        let count = value.map_or(0, |v| u64::from_le_bytes(v[..8].try_into().unwrap())) + 1;
                        let mut grown = count.to_le_bytes().to_vec();
                        grown.resize(8 + (count as usize * 5) % 50, 1);
                        *change = Change::Put(grown);
                        Ok::<_, TreeError>(())
                    })
                    .unwrap();
                    total.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let all = scan(&tree, Position::Start, Direction::Forward);
    let sum: u64 = all.iter().map(|(_, v)| u64::from_le_bytes(v[..8].try_into().unwrap())).sum();
    assert_eq!(sum, total.into_inner());
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn scans_and_checks_beside_splits_and_merges_see_every_key_that_stays() {
    let (tree, done) = (tree_of(512, 300), AtomicBool::new(false));
    // Keys ending in 0 stay; those ending in 1 come and go.
    let stays: Vec<Vec<u8>> = (0..300u32).map(|n| [&n.to_be_bytes()[..], &[0]].concat()).collect();
    stays.iter().for_each(|key| put(&tree, key, b"stays"));
    thread::scope(|scope| {
        for direction in [Direction::Forward, Direction::Backward] {
            let (tree, done, stays) = (&tree, &done, &stays);
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    let (mut seen, mut next) = (Vec::new(), Some(Position::Start));
                    while let Some(position) = next {
                        next = tree
                            .visit_leaf(&position, direction, |key, _| {
                                seen.push(key.to_vec());
                                Visit::Continue
                            })
                            .unwrap();
                    }
                    if direction == Direction::Backward {
                        seen.reverse();
                    }
                    assert!(seen.is_sorted_by(|a, b| a < b), "each key once and in order");
                    seen.retain(|key| key.last() == Some(&0));
                    assert_eq!(&seen, stays);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Relaxed) {
                assert_eq!(tree.check().unwrap().damage, Vec::<String>::new());
            }
        });
        let mut rng = Rng::new(5);
        for round in 0..30 {
            for _ in 0..400 {
                let key = [&(rng.below(300) as u32).to_be_bytes()[..], &[(round % 7) + 1]].concat();
                if round % 2 == 0 {
                    put(&tree, &key, &[7; 60]);
                } else {
                    let swept = tree.sweep_leaf(&key, CLASS, |key, _| key.last() != Some(&0)).unwrap();
                    if swept.small {
                        tree.merge_small(&swept.low, CLASS).unwrap();
                    }
                }
            }
        }
        done.store(true, Relaxed);
    });
    tree.check().unwrap().into_result().unwrap();
}
