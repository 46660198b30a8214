//! A check that finds nothing shows nothing unless it finds what was broken on purpose.

use crate::common::*;
use firndb_base::PageId;
use firndb_btree::{Change, Tree, TreeError, TreeErrorKind};
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
                damaged(tree.estimate(None, Some(key)).map(drop));
                assert!(!tree.check().unwrap().damage.is_empty());
            },
        );
    }
    tree.check().unwrap().into_result().unwrap();
}
