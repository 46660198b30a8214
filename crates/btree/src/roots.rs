//! Copies of roots, one for each tree that a thread uses: a descent that has one goes straight to a
//! child of the root. The root is on the way to everything, and latching it would write to a word
//! that all threads share.
//!
//! Why a child found so is the right one: it is latched, and *then* the root's frame says that the
//! root has not changed, nor left, since it was copied. A thread that changes which child holds
//! what has the root and those children latched exclusively. If it was done before the child was
//! latched here, the frame tells, since the child's latch was handed over; if not, it has yet to
//! wait for this latch. So it is as if root and child had been coupled.
//!
//! The latch is only tried. An old copy may name a page that is something else by now: one that
//! this thread holds, or whose holder waits for a latch that this thread has. If it is not free,
//! the descent begins at the root, where it may wait.

use crate::descent::Target;
use crate::node::{Node, NodeParts};
use crate::tree::Tree;
use firndb_base::{PageId, TreeId};
use firndb_buffer::{OptimisticRef, SharedGuard};
use std::cell::RefCell;

/// Copies that a thread has; trees whose ids are equal modulo this number take turns.
const KEPT: usize = 16;
/// Larger pages are not copied.
const COPIED_MAX: usize = 16 << 10;

/// A root that is no leaf.
struct RootCopy {
    pool: u64,
    tree: TreeId,
    seen: OptimisticRef,
    parts: NodeParts,
    bytes: Vec<u8>,
}

impl RootCopy {
    fn is_of(&self, tree: &Tree) -> bool {
        self.tree == tree.id() && self.pool == tree.pool().serial()
    }
}

thread_local! {
    static COPIES: [RefCell<Option<RootCopy>>; KEPT] = const { [const { RefCell::new(None) }; KEPT] };
}

impl Tree {
    /// The child of the root that `target` names, latched by `latch`, which is given its page and
    /// level and waits for nothing. `None` if there is no copy, or none that is right, or the child
    /// cannot be latched so.
    #[inline]
    pub(crate) fn below_root<G>(
        &self,
        target: Target<'_>,
        latch: impl FnOnce(PageId, u8) -> Option<G>,
    ) -> Option<(G, PageId, u8)> {
        let found = COPIES.try_with(|copies| {
            let mut place = copies[self.id().0 as usize % KEPT].borrow_mut();
            let copy = place.as_ref()?;
            if !copy.is_of(self) {
                return None;
            }
            let node = Node::at(&copy.bytes, copy.parts);
            // Damage is reported by those who have the root itself.
            let (child, level) = (target.child(self.root(), &node).ok()?, node.level() - 1);
            let latched = latch(child, level)?;
            if self.pool().is_unchanged(copy.seen) {
                return Some((latched, child, level));
            }
            *place = None;
            None
        });
        // There are none any more while the thread ends.
        found.ok().flatten()
    }

    /// Copies the root, which is latched and no leaf.
    #[cold]
    pub(crate) fn keep_root(&self, root: &SharedGuard<'_>, node: &Node<'_>) {
        if root.len() > COPIED_MAX {
            return;
        }
        _ = COPIES.try_with(|copies| {
            let mut place = copies[self.id().0 as usize % KEPT].borrow_mut();
            let seen = root.optimistic();
            if place.as_ref().is_some_and(|copy| copy.is_of(self) && copy.seen == seen) {
                // It was the child that could not be latched.
                return;
            }
            let mut bytes = place.take().map_or_else(Vec::new, |old| old.bytes);
            bytes.clear();
            bytes.extend_from_slice(root);
            let (pool, parts) = (self.pool().serial(), node.parts());
            *place = Some(RootCopy { pool, tree: self.id(), seen, parts, bytes });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::error::TreeError;
    use firndb_base::sync::Arc;
    use firndb_buffer::{BufferPool, PageUse, PoolOptions};
    use firndb_log::LogClass;

    fn pool() -> Arc<BufferPool> {
        let tier = Arc::new(firndb_tier::testing::MemoryTier::new(1024));
        let options = PoolOptions { budget_bytes: 1 << 20 };
        Arc::new(BufferPool::new(tier, firndb_log::testing::memory_log(), options).expect("a pool"))
    }

    fn put(tree: &Tree, keys: std::ops::Range<u32>) {
        for key in keys {
            let insert = |_: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| {
                *change = Change::Put(vec![7; 100]);
                Ok::<_, TreeError>(())
            };
            tree.modify(&key.to_be_bytes(), LogClass::Normal, insert).expect("inserted");
        }
    }

    /// The page of the leaf that holds `key`, by the copy of the root if that is right.
    fn leaf_by_copy(tree: &Tree, key: u32) -> Option<PageId> {
        let key = key.to_be_bytes();
        let latch = |page, _| tree.pool().try_shared_in_memory_for(page, PageUse::Working);
        tree.below_root(Target::Key(&key), latch).map(|(_, page, _)| page)
    }

    fn has(tree: &Tree, key: u32) -> bool {
        tree.get(&key.to_be_bytes(), |value| value.is_some()).expect("read")
    }

    #[test]
    fn a_copy_leads_to_the_leaf_until_the_root_changes() {
        let tree = Tree::create(pool(), TreeId(16), LogClass::System, &[]).expect("a tree");
        put(&tree, 0..8);
        assert!(has(&tree, 3));
        assert_eq!(leaf_by_copy(&tree, 3), None, "the root is a leaf");
        put(&tree, 8..30);
        assert!(has(&tree, 3) && has(&tree, 29));
        let (first, last) = (leaf_by_copy(&tree, 3), leaf_by_copy(&tree, 29));
        assert!(first.is_some() && last.is_some() && first != last);
        // By another thread, so that this one's copy stays as it is.
        std::thread::scope(|scope| _ = scope.spawn(|| put(&tree, 30..60)));
        assert_eq!(leaf_by_copy(&tree, 3), None, "the last leaf was split");
        assert!(has(&tree, 3));
        assert_eq!(leaf_by_copy(&tree, 3), first);
    }

    /// A thread may hold the page that an old copy names: it was freed, and taken for something
    /// else. It would wait for itself for ever.
    #[test]
    fn a_page_that_the_thread_holds_is_not_waited_for() {
        let tree = Tree::create(pool(), TreeId(16), LogClass::System, &[]).expect("a tree");
        put(&tree, 0..30);
        assert!(has(&tree, 29));
        let page = leaf_by_copy(&tree, 29).expect("the root was copied");
        let gone = |_: Option<&[u8]>, change: &mut Change, _: &mut Vec<u8>| {
            *change = Change::Remove;
            Ok::<_, TreeError>(())
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for key in (1..30u32).rev() {
                    tree.modify(&key.to_be_bytes(), LogClass::Normal, gone).expect("removed");
                }
            });
        });
        assert!(tree.pool().shared_in_memory(page).is_none(), "its leaf was merged");
        let held = tree.pool().create(page).expect("a frame");
        assert!(has(&tree, 0) && !has(&tree, 29));
        drop(held);
    }
}
