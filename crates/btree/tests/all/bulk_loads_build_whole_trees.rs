//! Bulk loads: any number of entries, any fill, errors on the way.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{NewLeaf, Tree, TreeError, TreeErrorKind, fill_page};

type Entry = Result<(Vec<u8>, Vec<u8>), TreeError>;

fn entries(model: &Model) -> impl Iterator<Item = Entry> + '_ {
    model.iter().map(|(key, value)| Ok((key.clone(), value.clone())))
}

/// Loads with leaves that are logged when several of them are complete.
fn load(tree: &Tree, fill: usize, entries: impl IntoIterator<Item = Entry>) -> Result<u64, TreeError> {
    let mut waiting: Vec<NewLeaf> = Vec::new();
    let write = |leaf: NewLeaf| fill_page(tree.pool(), leaf.page, &leaf.image, CLASS);
    let loaded = tree.bulk_load(CLASS, fill, entries, |leaf| {
        waiting.push(leaf);
        if waiting.len() > 6 { waiting.drain(..).try_for_each(write) } else { Ok(()) }
    })?;
    waiting.into_iter().try_for_each(write)?;
    Ok(loaded)
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
            let loaded = load(&tree, fill, entries(&model)).unwrap();
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
fn fill_leaves_as_requested_and_log_no_entry_but_those_of_written_leaves() {
    let model: Model = (0..20_000u32).map(|n| (n.to_be_bytes().to_vec(), vec![1; 90])).collect();
    let bytes: usize = model.len() * 94;
    let (full, half) = (tree_of(4096, 900), tree_of(4096, 900));
    let before = full.pool().log().end();
    load(&full, 100, entries(&model)).unwrap();
    let logged = full.pool().log().end().since(before);
    let images = full.check().unwrap().leaf_pages * 4096;
    assert!(logged < images * 103 / 100, "{logged} bytes of log for {images} of leaves");
    let (unlogged, before) = (tree_of(4096, 900), full.pool().log().end());
    let mut leaves = 0;
    unlogged
        .bulk_load(CLASS, 100, entries(&model), |leaf| {
            leaves += 1;
            assert_eq!(leaf.image.len(), 4096);
            Ok::<_, TreeError>(())
        })
        .unwrap();
    let logged = unlogged.pool().log().end().since(before);
    assert!(leaves > 450 && logged < bytes as u64 / 25, "{logged} bytes of log for {leaves} leaves");
    // Whose leaves have no content can be cleared.
    unlogged.clear(CLASS).unwrap();
    assert_sound(&unlogged, &Model::new());
    load(&half, 50, entries(&model)).unwrap();
    let (full, half) = (full.check().unwrap(), half.check().unwrap());
    assert!(full.leaf_pages * 4096 < bytes as u64 * 12 / 10, "{full:?}");
    assert!(half.leaf_pages >= full.leaf_pages * 19 / 10);
    assert!(full.inner_pages <= full.leaf_pages / 100 + 2, "{} inner pages", full.inner_pages);
}

#[test]
fn of_unsorted_entries_or_into_a_used_tree_are_refused() {
    let tree = tree_of(512, 100);
    let pair = |key: &[u8]| -> Entry { Ok((key.to_vec(), vec![0; 50])) };
    let refused = load(&tree, 90, [pair(b"b"), pair(b"a")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
    let refused = load(&tree, 90, [pair(b"b"), pair(b"b")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
    assert_sound(&tree, &Model::new());
    put(&tree, b"k", b"v");
    let refused = load(&tree, 90, [pair(b"x")]).unwrap_err();
    assert_eq!(refused.kind, TreeErrorKind::BadArgument);
}

#[test]
fn that_fail_midway_leave_a_tree_that_can_be_cleared() {
    let tree = tree_of(512, 100);
    let failing = (0..2000u32).map(|n| match n {
        1500 => Err(TreeError::new(TreeErrorKind::Failed, "the source failed")),
        _ => Ok((n.to_be_bytes().to_vec(), vec![0; 30])),
    });
    assert_eq!(load(&tree, 90, failing).unwrap_err().message, "the source failed");
    tree.clear(CLASS).unwrap();
    assert_sound(&tree, &Model::new());
}
