//! Copies of roots, one for each tree that a thread uses: a descent that has one goes straight to a
//! child of the root. The root is on the way to everything, and latching it would write to a word
//! that all threads share.
//!
//! Why a child found so is the right one: it is latched, and *then* the root's frame says that the
//! root has not changed, nor left, since it was copied. A thread that changes which child holds
//! what has the root and those children latched exclusively. If it was done before the child was
//! latched here, the frame tells, since the child's latch was handed over; if not, it has yet to
//! wait for this latch. So it is as if root and child had been coupled.

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

thread_local! {
    static COPIES: [RefCell<Option<RootCopy>>; KEPT] = const { [const { RefCell::new(None) }; KEPT] };
}

impl Tree {
    /// The child of the root that `target` names, latched by `latch`, which is given its page and
    /// level and waits for no device. `None` if there is no copy, or none that is right, or the
    /// child cannot be latched so. The caller holds no latch of the tree.
    #[inline]
    pub(crate) fn below_root<G>(
        &self,
        target: Target<'_>,
        latch: impl FnOnce(PageId, u8) -> Option<G>,
    ) -> Option<(G, PageId, u8)> {
        let found = COPIES.try_with(|copies| {
            let mut place = copies[self.id().0 as usize % KEPT].borrow_mut();
            let copy = place.as_ref()?;
            if copy.tree != self.id() || copy.pool != self.pool().serial() {
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
            let mut bytes = place.take().map_or_else(Vec::new, |old| old.bytes);
            bytes.clear();
            bytes.extend_from_slice(root);
            let (pool, seen, parts) = (self.pool().serial(), root.optimistic(), node.parts());
            *place = Some(RootCopy { pool, tree: self.id(), seen, parts, bytes });
        });
    }
}
