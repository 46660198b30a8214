//! Looking up many keys, a leaf at a time.
//!
//! The fences of a leaf that is latched say which of the keys are its own, so each leaf is latched
//! once for all of them, however the tree changes between two leaves.

use crate::descent::Target;
use crate::error::TreeError;
use crate::hint;
use crate::node::{Node, NodeParts};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_buffer::{PageUse, SharedGuard};

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
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        self.visit_many_for(keys, PageUse::Working, visit)
    }

    /// As [`Tree::visit_many`], for a use of the leaves that may be a long list's.
    pub fn visit_many_for(
        &self,
        keys: &[&[u8]],
        leaf_use: PageUse,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        debug_assert!(keys.is_sorted(), "keys to look up ascend");
        let mut at = 0;
        while at < keys.len() {
            let leaf = self.leaf_shared_for(Target::Key(keys[at]), leaf_use)?;
            at = self.visit_own(leaf, keys, at, &mut visit)?;
        }
        Ok(())
    }

    /// As [`Tree::visit_many_for`], of the keys whose leaves are in memory: the places of the
    /// others are appended to `absent`, and the pages of their leaves to `pages`, each once.
    pub fn visit_in_memory(
        &self,
        keys: &[&[u8]],
        leaf_use: PageUse,
        absent: &mut Vec<usize>,
        pages: &mut Vec<PageId>,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        debug_assert!(keys.is_sorted(), "keys to look up ascend");
        let mut at = 0;
        while at < keys.len() {
            match self.leaf_in_memory(Target::Key(keys[at]), leaf_use)? {
                Ok(leaf) => at = self.visit_own(leaf, keys, at, &mut visit)?,
                Err(page) => {
                    if pages.last() != Some(&page) {
                        pages.push(page);
                    }
                    absent.push(at);
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Visits the keys from `at` on that belong to the leaf; returns the place of the first one
    /// that does not.
    fn visit_own(
        &self,
        (leaf, parts): (SharedGuard<'_>, NodeParts),
        keys: &[&[u8]],
        mut at: usize,
        visit: &mut impl FnMut(usize, Option<&[u8]>),
    ) -> Result<usize, TreeError> {
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
                return Ok(at);
            }
        }
    }
}
