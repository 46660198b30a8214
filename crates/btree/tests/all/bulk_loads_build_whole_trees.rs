//! Bulk loads: any number of entries, any fill, errors on the way.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{TreeError, TreeErrorKind};

type Entry = Result<(Vec<u8>, Vec<u8>), TreeError>;

fn entries(model: &Model) -> impl Iterator<Item = Entry> + '_ {
    model.iter().map(|(key, value)| Ok((key.clone(), value.clone())))
}

#[test]
fn of_random_entries_at_every_fill_and_size() {
    for (seed, page_size) in [(1, 512), (2, 512), (3, 4096), (4, 65536)] {
        for (count, fill) in [(0, 90), (1, 90), (7, 10), (300, 50), (3000, 70), (3000, 100)] {
            let (tree, mut rng, mut model) = (tree_of(page_size, 300), Rng::new(seed), Model::new());
            for _ in 0..count {
                let key = random_key(&mut rng, page_size, 100_000);
                let value = random_value(&mut rng, page_size, &key);
                model.insert(key, value);
            }
            let loaded = tree.bulk_load(CLASS, fill, entries(&model)).unwrap();
            assert_eq!(loaded, model.len() as u64);
            assert_equal(&tree, &model);
            // And it is a tree like any other.
            for _ in 0..200 {
                let key = random_key(&mut rng, page_size, 100_000);
                put(&tree, &key, b"later");
                model.insert(key, b"later".to_vec());
            }
            assert_equal(&tree, &model);
        }
    }
}

#[test]
fn fill_leaves_as_requested_and_log_entries_once() {
    let model: Model = (0..20_000u32).map(|n| (n.to_be_bytes().to_vec(), vec![1; 90])).collect();
    let bytes: usize = model.len() * 94;
    let (full, half) = (tree_of(4096, 900), tree_of(4096, 900));
    let before = full.pool().log().end();
    full.bulk_load(CLASS, 100, entries(&model)).unwrap();
    let logged = full.pool().log().end().since(before);
    assert!(logged < bytes as u64 * 11 / 10, "{logged} bytes of log for {bytes}");
    half.bulk_load(CLASS, 50, entries(&model)).unwrap();
    let (full, half) = (full.check().unwrap(), half.check().unwrap());
    assert!(full.leaf_pages * 4096 < bytes as u64 * 12 / 10, "{full:?}");
    assert!(half.leaf_pages >= full.leaf_pages * 19 / 10);
    assert!(full.inner_pages <= full.leaf_pages / 100 + 2, "{} inner pages", full.inner_pages);
}

#[test]
fn of_unsorted_entries_or_into_a_used_tree_are_refused() {
    let tree = tree_of(512, 100);
    let pair = |key: &[u8]| -> Entry { Ok((key.to_vec(), vec![0; 50])) };
    let refused = tree.bulk_load(CLASS, 90, [pair(b"b"), pair(b"a")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
    let refused = tree.bulk_load(CLASS, 90, [pair(b"b"), pair(b"b")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
    assert_sound(&tree, &Model::new());
    put(&tree, b"k", b"v");
    let refused = tree.bulk_load(CLASS, 90, [pair(b"x")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
}

#[test]
fn that_fail_midway_leave_a_sound_tree_that_can_be_cleared() {
    let tree = tree_of(512, 100);
    let failing = (0..2000u32).map(|n| match n {
        1500 => Err(TreeError::new(TreeErrorKind::Failed, "the source failed")),
        _ => Ok((n.to_be_bytes().to_vec(), vec![0; 30])),
    });
    assert_eq!(tree.bulk_load(CLASS, 90, failing).unwrap_err().message, "the source failed");
    let report = tree.check().unwrap().into_result().unwrap();
    assert!(report.entries > 1400);
    tree.clear(CLASS).unwrap();
    assert_sound(&tree, &Model::new());
}
