//! Looking up many keys, a leaf at a time.
//!
//! The fences of a leaf that is latched say which of the keys are its own, so each leaf is latched
//! once for all of them, however the tree changes between two leaves.

use crate::descent::Target;
use crate::error::TreeError;
use crate::hint;
use crate::node::{MAX_LEVEL, Node, NodeParts};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_buffer::{PageUse, SharedGuard};

/// Pages that are not in memory, in the order of the keys that need them, each once: leaves, or
/// inner nodes whose children are not known yet.
#[derive(Debug, Default)]
pub struct Missing {
    pages: Vec<PageId>,
    /// The inner nodes among them.
    inner: Vec<PageId>,
}

impl Missing {
    pub fn clear(&mut self) {
        self.pages.clear();
        self.inner.clear();
    }

    fn add(&mut self, page: PageId, level: u8) {
        if self.pages.last() != Some(&page) {
            self.pages.push(page);
            if level > 0 {
                self.inner.push(page);
            }
        }
    }
}

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
    /// others are appended to `absent`, and what must be read for them to `missing`.
    pub fn visit_in_memory(
        &self,
        keys: &[&[u8]],
        leaf_use: PageUse,
        absent: &mut Vec<usize>,
        missing: &mut Missing,
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        debug_assert!(keys.is_sorted(), "keys to look up ascend");
        let mut at = 0;
        while at < keys.len() {
            match self.leaf_in_memory(Target::Key(keys[at]), leaf_use)? {
                Ok(leaf) => at = self.visit_own(leaf, keys, at, &mut visit)?,
                Err((page, level)) => {
                    missing.add(page, level);
                    absent.push(at);
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Brings in what is `missing` for `keys`, and what is missing below that: a batch for each
    /// level of the tree. A hint, as [`firndb_buffer::BufferPool::bring_in`] is.
    pub fn bring_in_missing(
        &self,
        keys: &[&[u8]],
        leaf_use: PageUse,
        missing: &mut Missing,
    ) -> Result<(), TreeError> {
        // Another round for each level, and no more: in a small pool nodes may be gone again.
        for _ in 0..=MAX_LEVEL {
            let came = self.pool().bring_in(&missing.pages, leaf_use);
            // Another thread may be reading some of them.
            let wait_for = |page: &PageId| self.pool().shared(*page).is_ok();
            if came.is_none() || missing.inner.is_empty() || !missing.inner.iter().all(wait_for) {
                break;
            }
            missing.clear();
            for key in keys {
                if let Err((page, level)) = self.leaf_in_memory(Target::Key(key), leaf_use)? {
                    missing.add(page, level);
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
