//! Entries that name pages of their own, also when what they name is damaged.

use crate::common::*;
use firndb_base::PageId;
use firndb_btree::{Change, Judgement, Tree, TreeError, TreeErrorKind};

fn free(tree: &Tree, key: &[u8], page: PageId) -> Result<(), TreeError> {
    tree.modify_freeing(key, CLASS, |_, change, _| {
        *change = Change::Remove;
        Ok::<_, TreeError>(((), Some(page)))
    })
}

#[test]
fn an_entry_that_names_its_own_leaf_or_the_root_is_damage() {
    for entries in [1u32, 500] {
        let tree = tree_of(512, 200);
        (0..entries).for_each(|number| put(&tree, &number.to_be_bytes(), &[1; 20]));
        let before = tree.check().unwrap();
        let key = 0u32.to_be_bytes();
        // One of these is the leaf of the key, and one is the root.
        let mut leaves = Vec::new();
        tree.leaves(&[&key], &mut leaves).unwrap();
        for page in [leaves[0], tree.root()] {
            assert_eq!(free(&tree, &key, page).unwrap_err().kind, TreeErrorKind::Damaged);
            let swept = tree.sweep_naming(&key, CLASS, |found, _| match found == key {
                true => Judgement::Remove(Some(page)),
                false => Judgement::Keep,
            });
            assert_eq!(swept.unwrap_err().kind, TreeErrorKind::Damaged);
        }
        assert_eq!(get(&tree, &key), Some(vec![1; 20]));
        assert_eq!(tree.check().unwrap().entries, before.entries);
    }
}
