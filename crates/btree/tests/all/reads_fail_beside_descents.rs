//! The n-th read of a call fails: the call returns that error, or did without the page; no state is
//! left behind, and the same call succeeds afterwards.

use crate::common::hooked_tier::{hooked_tree, reopened};
use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_btree::{Change, Direction, Position, Tree, TreeError, TreeErrorKind, Visit};
use firndb_tier::{TierError, TierErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const KEYS: u32 = 900;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn visit_from(tree: &Tree, from: &Position, direction: Direction) -> Result<(), TreeError> {
    let next = tree.visit_leaf(from, direction, |_, value| {
        assert_eq!(value, [1; 20]);
        Visit::Continue
    })?;
    assert!(next.is_some());
    Ok(())
}

type Call = fn(&Tree) -> Result<(), TreeError>;

/// Calls that need different pages, and say whether what they returned is right.
fn calls() -> Vec<(&'static str, Call)> {
    vec![
        ("get", |tree| tree.get(&key(500), |value| assert_eq!(value, Some(&[1; 20][..])))),
        ("visit_many", |tree| {
            let keys: Vec<_> = (0..KEYS).step_by(40).map(key).collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
            tree.visit_many(&keys, |_, value| assert_eq!(value, Some(&[1; 20][..])))
        }),
        ("leaves", |tree| {
            let (keys, mut leaves) = ((0..KEYS).map(key).collect::<Vec<_>>(), Vec::new());
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
            tree.leaves(&keys, &mut leaves)?;
            assert!(leaves.len() > 60);
            Ok(())
        }),
        ("next_leaves", |tree| {
            let (from, mut leaves) = (Position::At(key(700).to_vec()), Vec::new());
            let next = tree.next_leaves(&from, None, Direction::Backward, 40, &mut leaves)?;
            assert!(next.is_some() && leaves.len() == 40);
            Ok(())
        }),
        ("a scan forward", |tree| visit_from(tree, &Position::Start, Direction::Forward)),
        ("a scan backward", |tree| visit_from(tree, &Position::Start, Direction::Backward)),
        ("modify", |tree| {
            tree.modify(&key(300), CLASS, |value, change, _| {
                assert_eq!(value, Some(&[1; 20][..]));
                *change = Change::Put(vec![1; 20]);
                Ok::<_, TreeError>(())
            })
            .map(drop)
        }),
        ("sweep", |tree| tree.sweep_leaf(&key(300), CLASS, |_, _| false).map(drop)),
        ("estimate", |tree| tree.estimate(Some(&key(100)), Some(&key(800)), None).map(drop)),
        ("merge", |tree| tree.merge_small(&key(600), CLASS)),
    ]
}

#[test]
fn with_an_error_of_that_call_alone() {
    let (tier, tree) = hooked_tree(512, 500);
    (0..KEYS).for_each(|number| put(&tree, &key(number), &[1; 20]));
    assert_eq!(tree.check().unwrap().into_result().unwrap().height, 3);
    for (name, call) in calls() {
        for nth in 1.. {
            // All pages must be read, in the second turn into few frames.
            let cold = reopened(&tier, &tree, if nth % 2 == 0 { 30 } else { 500 });
            let reads = Arc::new(AtomicU64::new(0));
            tier.on_read({
                let reads = Arc::clone(&reads);
                move |_| match reads.fetch_add(1, Relaxed) + 1 == nth {
                    true => Err(TierError::new(TierErrorKind::Unreadable, "the test says so")),
                    false => Ok(()),
                }
            });
            let outcome = call(&cold);
            tier.read_as_usual();
            if reads.load(Relaxed) < nth {
                assert_eq!(outcome, Ok(()), "{name}: no read failed");
                assert!(nth > 3, "{name} reads the nodes on its way");
                break;
            }
            if let Err(error) = outcome {
                assert_eq!(error.kind, TreeErrorKind::Unreadable, "{name}, read {nth}: {error}");
            }
            assert_eq!(call(&cold), Ok(()), "{name}, after read {nth} failed");
        }
    }
    tree.check().unwrap().into_result().unwrap();
}

/// Reads that fail now and then, beside changes of the structure and pages that come and go.
#[test]
fn however_often_beside_other_threads() {
    let (tier, tree) = hooked_tree(512, 60);
    let reads = AtomicU64::new(0);
    tier.on_read(move |_| match reads.fetch_add(1, Relaxed) % 50 == 49 {
        true => Err(TierError::new(TierErrorKind::Unreadable, "the test says so")),
        false => Ok(()),
    });
    std::thread::scope(|scope| {
        for me in 0..3u8 {
            let tree = &tree;
            scope.spawn(move || work_beside_failing_reads(tree, me));
        }
    });
    tier.read_as_usual();
    tree.check().unwrap().into_result().unwrap();
}

fn work_beside_failing_reads(tree: &Tree, me: u8) {
    let (mut rng, mut model) = (Rng::new(u64::from(me)), Model::new());
    let mut failed = 0;
    for _ in 0..3000 {
        let key = [&key(rng.below(900) as u32)[..], &[me]].concat();
        let value = (!rng.one_in(3)).then(|| vec![me; rng.below(60) as usize]);
        let changed = tree.modify(&key, CLASS, |old, change, _| {
            match &value {
                Some(value) => *change = Change::Put(value.clone()),
                None if old.is_some() => *change = Change::Remove,
                None => {}
            }
            Ok::<_, TreeError>(())
        });
        match (changed, value) {
            (Ok(_), Some(value)) => drop(model.insert(key, value)),
            (Ok(_), None) => drop(model.remove(&key)),
            // Nothing has changed then.
            (Err(error), _) => {
                assert_eq!(error.kind, TreeErrorKind::Unreadable, "{error}");
                failed += 1;
            }
        }
        let keys: Vec<&[u8]> = model.keys().filter(|_| rng.one_in(20)).map(Vec::as_slice).collect();
        let looked_up = tree.visit_many(&keys, |at, value| {
            assert_eq!(value, model.get(keys[at]).map(Vec::as_slice));
        });
        if let Err(error) = looked_up {
            assert_eq!(error.kind, TreeErrorKind::Unreadable, "{error}");
            failed += 1;
        }
    }
    assert!(failed > 20, "{failed} calls met a read that failed");
}
