//! Removing what the floor above calls garbage: by sweeps, and before a leaf would be split.

mod common;

use common::*;
use firn_btree::{Change, Position, TreeError};

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
    let (mut next, mut swept) = (Some(Position::Start), 0);
    while let Some(position) = next {
        let (count, after) = tree.sweep_leaf(&position, CLASS, |_, value| value[0] != 1).unwrap();
        swept += count;
        next = after;
    }
    model.retain(|_, value| value[0] == 1);
    assert_eq!(swept, 2000 - model.len());
    assert_equal(&tree, &model);
    let after = tree.check().unwrap().leaf_pages;
    assert!(after * 2 <= before, "{before} leaves became {after}: small ones are merged");
}

#[test]
fn from_where_the_sweep_starts_only() {
    let tree = tree_of(4096, 50);
    (0..20u8).for_each(|n| put(&tree, &[n], b"x"));
    let (swept, next) = tree.sweep_leaf(&Position::At(vec![15]), CLASS, |_, _| true).unwrap();
    assert_eq!((swept, next), (5, None));
    let (swept, _) = tree.sweep_leaf(&Position::Past(vec![10]), CLASS, |key, _| key[0] % 2 == 0).unwrap();
    assert_eq!(swept, 2);
    assert_eq!(tree.check().unwrap().entries, 13);
}

#[test]
fn before_a_leaf_is_split_for_lack_of_room() {
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
