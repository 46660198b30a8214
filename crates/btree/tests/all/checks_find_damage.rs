//! A check that finds nothing shows nothing unless it finds what was broken on purpose.

use crate::common::*;
use firndb_base::PageId;
use firndb_btree::{Change, Direction, Position, Tree, TreeError, TreeErrorKind, Visit};
use firndb_buffer::Changed;
use firndb_log::{Kind, Record};

/// Changes a page behind the tree's back, and back again after `look`.
fn with_broken(tree: &Tree, page: PageId, breaks: impl FnOnce(&mut [u8]), look: impl FnOnce()) {
    let write = |change: &mut dyn FnMut(&mut [u8])| {
        let intent = tree.pool().exclusive(page).unwrap().intend();
        let lsn = tree.pool().log().try_append(CLASS, Record { kind: Kind(0x3f), body: b"" }).unwrap().first;
        drop(intent.apply(lsn, |bytes| {
            change(bytes);
            Changed::Most
        }));
    };
    let before = tree.pool().shared(page).unwrap().to_vec();
    let mut breaks = Some(breaks);
    write(&mut |bytes| breaks.take().expect("once")(bytes));
    look();
    write(&mut |bytes| bytes.copy_from_slice(&before));
}

fn three_levels() -> Tree {
    let tree = tree_of(512, 500);
    (0..3000u32).for_each(|n| put(&tree, format!("{n:08}").as_bytes(), &n.to_le_bytes()));
    assert!(tree.check().unwrap().into_result().unwrap().height >= 3);
    tree
}

#[test]
fn in_any_field_of_any_node() {
    let tree = three_levels();
    // Everything in the header but the hints (3, 16, 17) and, in the first slot, its four fields.
    let header = [0, 1, 2, 4, 6, 8, 10, 12, 14, 18, 20];
    for page in tree.check().unwrap().pages.into_iter().step_by(7) {
        let fences = {
            let bytes = tree.pool().shared(page).unwrap();
            usize::from(bytes[8]) + usize::from(bytes[10])
        };
        let slot = [0, 2, 4, 6].map(|at| 32 + fences + at);
        for at in header.into_iter().chain(32..32 + fences).chain(slot) {
            with_broken(
                &tree,
                page,
                |bytes| bytes[at] ^= 1,
                || {
                    let report = tree.check().unwrap();
                    assert!(!report.damage.is_empty(), "a changed byte {at} of {page:?} was not found");
                    // A root of a wrong level makes its children look wrong.
                    let named = page == tree.root()
                        || report.damage.iter().any(|sentence| sentence.contains(&format!("{page:?}:")));
                    assert!(named, "{:?}", report.damage);
                },
            );
        }
    }
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn in_pointers_to_other_nodes_and_to_nowhere() {
    let tree = three_levels();
    let first_child =
        |page: PageId| u64::from_le_bytes(tree.pool().shared(page).unwrap()[24..32].try_into().unwrap());
    let inner = PageId(first_child(tree.root()));
    for pointer in [tree.root().0, inner.0, first_child(inner) + 1, 1 << 40, 0] {
        with_broken(
            &tree,
            inner,
            |bytes| bytes[24..32].copy_from_slice(&pointer.to_le_bytes()),
            || {
                let report = tree.check().unwrap();
                assert!(!report.damage.is_empty(), "a pointer to page {pointer} was not found");
                // What does not hang on the broken pointer is walked all the same.
                assert!(report.entries > 2800, "{}", report.entries);
                assert!(get(&tree, b"00002999").is_some());
            },
        );
    }
    tree.check().unwrap().into_result().unwrap();
}

#[test]
fn a_node_that_is_its_own_child_is_damage_to_every_call_and_none_waits_for_its_own_latch() {
    let tree = three_levels();
    let first_child =
        |page: PageId| u64::from_le_bytes(tree.pool().shared(page).unwrap()[24..32].try_into().unwrap());
    let inner = PageId(first_child(tree.root()));
    for page in [tree.root(), inner] {
        with_broken(
            &tree,
            page,
            |bytes| bytes[24..32].copy_from_slice(&page.0.to_le_bytes()),
            || {
                let key = b"00000000".as_slice();
                let damaged = |outcome: Result<(), TreeError>| {
                    assert_eq!(outcome.expect_err("it is damaged").kind, TreeErrorKind::Damaged);
                };
                let changed = tree.modify(key, CLASS, |_, change, _| {
                    *change = Change::Remove;
                    Ok::<_, TreeError>(())
                });
                damaged(changed.map(drop));
                damaged(tree.merge_small(key, CLASS));
                damaged(tree.sweep_leaf(key, CLASS, |_, _| true).map(drop));
                damaged(tree.estimate(None, Some(key), None).map(drop));
                damaged(tree.get(key, |_| ()));
                damaged(tree.visit_many(&[key], |_, _| ()));
                damaged(tree.leaves(&[key], &mut Vec::new()));
                let scan = |direction, max| {
                    tree.next_leaves(&Position::Start, None, direction, max, &mut Vec::new()).map(drop)
                };
                damaged(scan(Direction::Forward, 1));
                // The other end of the tree is sound.
                scan(Direction::Backward, 1).unwrap();
                damaged(scan(Direction::Backward, usize::MAX));
                assert!(!tree.check().unwrap().damage.is_empty());
            },
        );
    }
    tree.check().unwrap().into_result().unwrap();
}

/// A child pointer that leads up, aside, down too far or nowhere ends every call that follows it in
/// an error, whether what it names is in memory or not, and no walk over many leaves goes on for
/// ever.
#[test]
fn pointers_to_wrong_nodes_end_every_call() {
    for frames in [3000, 24] {
        let tree = tree_of(512, frames);
        (0..20_000u32).for_each(|n| put(&tree, format!("{n:08}").as_bytes(), &n.to_le_bytes()));
        assert_eq!(tree.check().unwrap().into_result().unwrap().height, 4);
        let first_child =
            |page: PageId| u64::from_le_bytes(tree.pool().shared(page).unwrap()[24..32].try_into().unwrap());
        let upper = PageId(first_child(tree.root()));
        let lower = PageId(first_child(upper));
        for pointer in [tree.root().0, upper.0, first_child(lower), 1 << 40, 0] {
            with_broken(
                &tree,
                upper,
                |bytes| bytes[24..32].copy_from_slice(&pointer.to_le_bytes()),
                || every_call_ends(&tree, b"00000000"),
            );
        }
        // The same level, another range of keys: only fences tell.
        let second = tree.pool().shared(tree.root()).unwrap()[..].to_vec();
        let slot = 32 + usize::from(second[8]) + usize::from(second[10]);
        let half = |at: usize| usize::from(u16::from_le_bytes([second[at], second[at + 1]]));
        let at = half(slot) + half(slot + 2);
        let second: [u8; 8] = second[at..at + 8].try_into().unwrap();
        with_broken(
            &tree,
            tree.root(),
            |bytes| bytes[24..32].copy_from_slice(&second),
            || {
                for level in 0..3 {
                    let (mut next, mut calls) = (Some(Position::Start), 0);
                    while let Some(from) = next {
                        next = tree.nodes_from(level, &from, 7, &mut Vec::new()).unwrap_or_default();
                        calls += 1;
                        assert!(calls < 3000, "it goes round");
                    }
                }
                for direction in [Direction::Forward, Direction::Backward] {
                    let (mut next, mut leaves) = (Some(Position::Start), Vec::new());
                    while let Some(from) = next {
                        let more = tree.next_leaves(&from, None, direction, 7, &mut leaves);
                        next = more.unwrap_or_default();
                        assert!(leaves.len() < 3000, "it goes round");
                    }
                }
                assert!(!tree.check().unwrap().damage.is_empty());
            },
        );
        tree.check().unwrap().into_result().unwrap();
    }
}

/// Every call that must pass a damaged node reports that.
fn every_call_ends(tree: &Tree, key: &[u8]) {
    let damaged = |outcome: Result<(), TreeError>| {
        assert_eq!(outcome.expect_err("it is damaged").kind, TreeErrorKind::Damaged);
    };
    damaged(tree.get(key, |_| ()));
    damaged(tree.visit_many(&[key, b"00019999"], |_, _| ()));
    damaged(tree.leaves(&[key], &mut Vec::new()));
    let forward = Direction::Forward;
    damaged(tree.next_leaves(&Position::Start, None, forward, 1, &mut Vec::new()).map(drop));
    damaged(tree.visit_leaf(&Position::Start, forward, |_, _| Visit::Continue).map(drop));
    let changed = tree.modify(key, CLASS, |_, _, _| Ok::<_, TreeError>(()));
    damaged(changed.map(drop));
    damaged(tree.merge_small(key, CLASS));
    damaged(tree.sweep_leaf(key, CLASS, |_, _| true).map(drop));
    damaged(tree.estimate(None, Some(key), None).map(drop));
    assert!(!tree.check().unwrap().damage.is_empty());
    assert!(get(tree, b"00019999").is_some(), "what does not hang on it is there");
}
