//! Looking up many keys, a leaf at a time.
//!
//! The fences of a leaf that is latched say which of the keys are its own, so each leaf is latched
//! once for all of them, however the tree changes between two leaves.

use crate::descent::Target;
use crate::error::TreeError;
use crate::hint;
use crate::node::Node;
use crate::tree::Tree;

impl Tree {
    /// Looks up `keys`, which ascend and may repeat, and shows each one's place in `keys` and its
    /// value to `visit`, in that order, under the shared latch of its leaf. `visit` must not block
    /// on anything that a latch holder may wait for.
    ///
    /// Leaves that are not in memory are read one after the other: see [`Tree::leaves`]. After an
    /// error, keys before some place have been visited.
    pub fn visit_many(
        &self,
        keys: &[&[u8]],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        debug_assert!(keys.is_sorted(), "keys to look up ascend");
        let mut at = 0;
        while at < keys.len() {
            let (leaf, parts) = self.leaf_shared(Target::Key(keys[at]))?;
            let damaged = |error| TreeError::damaged(leaf.page(), error);
            let node = Node::at(&leaf, parts);
            hint::remember(self, leaf.optimistic());
            // The first one is looked up here in any case, so that each leaf leads on.
            loop {
                let value = match node.search(keys[at]).map_err(damaged)? {
                    Ok(slot) => Some(node.value(slot).map_err(damaged)?),
                    Err(_) => None,
                };
                visit(at, value);
                at += 1;
                if keys.get(at).is_none_or(|key| !node.is_below_high(key)) {
                    break;
                }
            }
        }
        Ok(())
    }
}
