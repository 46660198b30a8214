//! A walk through the trees of a table that moves their pages to the table's layout.
//!
//! Nodes are listed level by level, from the leaves up, by the nodes above them: what lies where it
//! should is not read. So a walk costs what the table has, however large the store is.
//!
//! Why no page is missed but those named below:
//! * what comes into being meanwhile, by a split, an index that is created, a page that gets
//!   another number, is written to the new layout, which trees have before the walk begins;
//! * what was there before, and is still there at the end, was listed
//!   ([`firndb_btree::Tree::nodes_from`]), or is the root, which is looked at last;
//! * a page that is only in memory or in the flash cache is written to the new layout when it comes
//!   to the store.
//!
//! Left until they are written: images that were being written when the trees got the new layout,
//! about a batch a thread; pages that are written as deltas twice while they are moved; damaged
//! ones. Whole pages of large values are as the store's.

use crate::engine::Engine;
use crate::engine::layout_state::{TableWalk, Walked};
use crate::error::Error;
use firndb_base::PageId;
use firndb_btree::{Position, TreeErrorKind};
use firndb_table::TableTrees;
use firndb_tier::TierErrorKind;

/// Pages that are looked at, and moved, together.
const PAGES_TOGETHER: usize = 64;
/// How often a step does so that finds none to be moved.
const LOOKS_A_STEP: usize = 64;

impl Engine {
    /// Moves about a batch of pages of a table. `All` when its last tree is done.
    ///
    /// Errors: those of devices. What cannot be read stays, and reading it reports it.
    pub(crate) fn table_walk_step(&self, table: &TableTrees, walk: &mut TableWalk) -> Result<Walked, Error> {
        for _ in 0..LOOKS_A_STEP {
            match self.table_walk_on(table, walk)? {
                (Walked::Some, 0) => {}
                (walked, _) => return Ok(walked),
            }
        }
        Ok(Walked::Some)
    }

    /// Looks at some pages, and returns how many were moved, or 1 if something else took its time.
    fn table_walk_on(&self, table: &TableTrees, walk: &mut TableWalk) -> Result<(Walked, u64), Error> {
        let Some(&id) = walk.trees.front() else { return Ok((Walked::All, 0)) };
        // Held to the end: it keeps the tree from being cleared meanwhile.
        let Some(tree) = self.catalog.tree_of(&table.name, id) else {
            walk.next_tree();
            return Ok((Walked::Some, 0));
        };
        let mut pages: Vec<PageId> = Vec::new();
        let next = match tree.nodes_from(walk.level, &walk.from, PAGES_TOGETHER, &mut pages) {
            // It is being cleared, or nothing of it can be found.
            Err(error) if error.kind == TreeErrorKind::Condemned || error.concerns_a_page() => {
                walk.next_tree();
                return Ok((Walked::Some, 0));
            }
            next => next?,
        };
        let is_level = walk.is_level || !pages.is_empty();
        let is_above = next.is_none() && !is_level;
        if is_above {
            pages.push(tree.root());
        }
        let moved = match self.store.move_pages(id.0, &pages) {
            Ok(Some(moved)) => moved,
            Ok(None) => return Ok((Walked::Some, 1)),
            Err(error) if error.kind == TierErrorKind::LogFull => return Ok((Walked::NotNow, 0)),
            Err(error) => return Err(error.into()),
        };
        walk.left += moved.left;
        walk.looked_at += pages.len() as u64;
        match next {
            _ if is_above => walk.next_tree(),
            Some(next) => (walk.from, walk.is_level) = (next, is_level),
            None => (walk.level, walk.from, walk.is_level) = (walk.level + 1, Position::Start, false),
        }
        Ok((Walked::Some, moved.moved))
    }
}
