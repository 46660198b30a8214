//! Removing what the layer above declares garbage: by sweeps, and before a leaf would be split.

use crate::common::*;
use firndb_btree::{Change, Tree, TreeError};

#[test]
fn by_a_sweep_over_all_leaves() {
    let tree = tree_of(512, 200);
    let mut model = Model::new();
    for number in 0..2000u32 {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![(number % 3) as u8; 20]);
        put(&tree, &key, &value);
        model.insert(key, value);
    }
    let before = tree.check().unwrap().leaf_pages;
    let swept = sweep_all(&tree, |value| value[0] != 1);
    model.retain(|_, value| value[0] == 1);
    assert_eq!(swept, 2000 - model.len());
    assert_equal(&tree, &model);
    let after = tree.check().unwrap().leaf_pages;
    assert!(after * 2 <= before, "{before} leaves became {after}: small ones are merged");
}

/// Sweeps a tree leaf by leaf, merging what becomes small behind itself. Returns how many entries
/// went.
fn sweep_all(tree: &Tree, garbage: impl Fn(&[u8]) -> bool) -> usize {
    let (mut next, mut swept) = (Some(Vec::new()), 0);
    let mut before: Option<Vec<u8>> = None;
    while let Some(key) = next {
        let leaf = tree.sweep_leaf(&key, CLASS, |_, value| garbage(value)).unwrap();
        swept += leaf.removed;
        if let Some(small) = before.take() {
            tree.merge_opportunely(&small, CLASS);
        }
        before = leaf.small.then_some(leaf.low);
        next = leaf.high;
    }
    if let Some(small) = before {
        tree.merge_opportunely(&small, CLASS);
    }
    swept
}

#[test]
fn until_nothing_but_the_root_is_left() {
    let tree = tree_of(512, 200);
    (0..3000u32).for_each(|number| put(&tree, &number.to_be_bytes(), &[7; 20]));
    assert!(tree.check().unwrap().leaf_pages > 100);
    assert_eq!(sweep_all(&tree, |_| true), 3000);
    let report = tree.check().unwrap().into_result().unwrap();
    assert_eq!((report.entries, report.pages.len()), (0, 1));
}

#[test]
fn of_one_leaf_whole_and_of_no_other() {
    let tree = tree_of(512, 50);
    (0..40u8).for_each(|n| put(&tree, &[n], &[n; 30]));
    let look = tree.sweep_leaf(&[20], CLASS, |_, _| false).unwrap();
    assert_eq!(look.removed, 0);
    let (low, high) = (look.low[0], look.high.as_ref().expect("it is not the last")[0]);
    assert!(low > 0 && low <= 20 && high > 20);
    let swept = tree.sweep_leaf(&[20], CLASS, |key, _| key[0] % 2 == 0).unwrap();
    assert_eq!(swept.removed, (low..high).filter(|n| n % 2 == 0).count());
    assert_eq!((swept.low, swept.high), (look.low, look.high));
    assert_eq!(tree.check().unwrap().entries, 40 - swept.removed as u64);
}

#[test]
fn before_a_leaf_is_split_for_lack_of_space() {
    let tree = tree_of(4096, 50);
    // One row changed over and over, its old versions left behind as garbage.
    for number in 0..2000u32 {
        tree.modify_with(
            &number.to_be_bytes(),
            CLASS,
            |_, change, _| {
                *change = Change::Put(vec![0; 50]);
                Ok::<_, TreeError>(())
            },
            |key, _| u32::from_be_bytes(key.try_into().unwrap()) % 100 != 0,
        )
        .unwrap();
    }
    let report = tree.check().unwrap().into_result().unwrap();
    assert_eq!(report.leaf_pages, 1, "a split was never needed");
    assert!((20..90).contains(&report.entries), "{} entries", report.entries);
}

#[test]
fn but_never_the_entry_that_is_being_changed() {
    let tree = tree_of(512, 50);
    (0..8u8).for_each(|n| put(&tree, &[n], &[n; 30]));
    let grow = |_: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| {
        *change = Change::Put(vec![9; 77]);
        Ok::<_, TreeError>(())
    };
    let mut offered = Vec::new();
    for n in 0..8u8 {
        tree.modify_with(&[n], CLASS, grow, |key, _| {
            offered.push((n, key[0]));
            false
        })
        .unwrap();
    }
    assert!(!offered.is_empty() && offered.iter().all(|(changed, offered)| changed != offered));
}
