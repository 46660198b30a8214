//! Merging a small node with a neighbour, and lowering the root.
//!
//! Merges are opportune: the entry's removal that made the node small is complete without them. One
//! that finds its neighbours too full is left for the next removal there; one that meets an error
//! is noted (`unmerged.rs`), since no other removal may ever come. As with splits, each is an
//! atomic group of its own.

use crate::descent::{Located, Target, child_at};
use crate::error::TreeError;
use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::split::merged_len;
use crate::node::{Node, Shape, prefix_between};
use crate::op;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::ExclusiveGuard;
use firndb_log::LogClass;

/// A node is small when its entries use less than this part of the page…
const SMALL: (usize, usize) = (1, 3);
/// …and merged when what comes of it fills no more than this part: a page that is nearly full would
/// soon be split again.
const MERGED_MAX: (usize, usize) = (7, 8);

fn part_of(page_size: usize, (share, of): (usize, usize)) -> usize {
    page_size * share / of
}

fn is_small(node: &Node<'_>) -> bool {
    node.used() < part_of(node.page_size(), SMALL)
}

fn wants_merge(left: &Node<'_>, right: &Node<'_>) -> bool {
    if !is_small(left) && !is_small(right) {
        return false;
    }
    let len = merged_len(left, right);
    // A node without entries is merged wherever its fence fits.
    len <= part_of(left.page_size(), MERGED_MAX)
        || (len <= left.page_size() && (left.count() == 0 || right.count() == 0))
}

/// What came of a try to merge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// The parent lost a child.
    Merged,
    /// Nothing was to be merged.
    Kept,
    /// The level is the root's, or above it.
    AtRoot,
}

/// What one structure change came to.
enum Merge {
    Tried(Tried),
    /// The root pulled its only child in, and is a level lower.
    Lowered,
}

impl Tree {
    /// Whether a node is worth a merge.
    pub(crate) fn is_small_node(&self, node: &Node<'_>, page: PageId) -> bool {
        page != self.root() && is_small(node)
    }

    /// Whether a leaf just made smaller should be merged. Not at each removal: a small leaf between
    /// full ones would have its neighbours read again and again.
    pub(crate) fn is_underfull(&self, leaf: &ExclusiveGuard<'_>) -> Result<bool, TreeError> {
        if leaf.page() == self.root() {
            return Ok(false);
        }
        let node = self.node(leaf.page(), leaf, Some(0))?;
        Ok(is_small(&node) && (node.count() < 4 || node.count().is_multiple_of(4)))
    }

    /// Merges the leaf that holds `key` with a neighbour, and the nodes above it as they become
    /// small. What meets an error is noted, to be tried again.
    pub fn merge_opportunely(&self, key: &[u8], class: LogClass) {
        let mut level = 0;
        loop {
            match self.try_merge(key, level, class) {
                Ok(Tried::Merged) => level += 1,
                Ok(Tried::Kept | Tried::AtRoot) => return,
                // Not the caller's error: its own change is done.
                Err(_) => return self.note_unmerged(key),
            }
        }
    }

    /// Merges the nodes on the way to `key`, of every level, that are small: what a merge that met
    /// an error has left.
    pub fn merge_small(&self, key: &[u8], class: LogClass) -> Result<(), TreeError> {
        let mut level = 0;
        while self.try_merge(key, level, class)? != Tried::AtRoot {
            level += 1;
        }
        Ok(())
    }

    /// Checks, with shared latches only, whether a merge is likely to succeed; the neighbours, if
    /// they must be read, are read by an attempt that has stopped, without blocking other threads
    /// at the parent. Returns the page that would be freed; none for the root, which is only
    /// lowered.
    fn merge_promises(&self, stock: &Stock<'_>, key: &[u8], level: u8) -> Result<Option<Vec<PageId>>, Stop> {
        let Some(parent) = self.inner_shared(Target::Key(key), level + 1)? else {
            return Ok(Some(Vec::new()));
        };
        let node = self.node(parent.page(), &parent, Some(level + 1))?;
        let index = Target::Key(key).index_in(parent.page(), &node)?;
        let child = |index| child_at(parent.page(), &node, index);
        for index in [index, index.wrapping_sub(1)] {
            if index >= node.count() {
                continue;
            }
            let (left_page, right_page) = (child(index)?, child(index + 1)?);
            if left_page == right_page {
                return Ok(Some(Vec::new()));
            }
            let (left, right) = (stock.latch_shared(left_page)?, stock.latch_shared(right_page)?);
            if wants_merge(
                &self.node(left_page, &left, Some(level))?,
                &self.node(right_page, &right, Some(level))?,
            ) {
                return Ok(Some(vec![right_page]));
            }
        }
        Ok(None)
    }

    /// Merges the node of `level` on the way to `key` with a neighbour, if they fit.
    fn try_merge(&self, key: &[u8], mut level: u8, class: LogClass) -> Result<Tried, TreeError> {
        loop {
            let promised =
                Stock::new(self.pool(), class).run(|stock| self.merge_promises(stock, key, level))?;
            let Some(freed) = promised else { return Ok(Tried::Kept) };
            let stock = Stock::new(self.pool(), class).expecting(Lack::Map(freed));
            match stock.run(|stock| self.merge_once(stock, key, level))? {
                Merge::Tried(tried) => return Ok(tried),
                // What it holds now may be an only child again.
                Merge::Lowered => level -= 1,
            }
        }
    }

    fn merge_once<'p>(&'p self, stock: &mut Stock<'p>, key: &[u8], level: u8) -> Result<Merge, Stop> {
        let (parent, index) = match self.locate(Target::Key(key), level)? {
            Located::Above => return Ok(Merge::Tried(Tried::AtRoot)),
            Located::Root(root) => return self.lower(stock, root),
            Located::Child(parent, index) => (parent, index),
        };
        let count = self.node(parent.page(), &parent, Some(level + 1))?.count();
        // With the right neighbour first, then with the left one: always latched left before right.
        let mut pair = match index < count {
            true => self.small_pair(stock, &parent, index, level)?,
            false => None,
        };
        if pair.is_none() && index > 0 {
            pair = self.small_pair(stock, &parent, index - 1, level)?;
        }
        match pair {
            None => Ok(Merge::Tried(Tried::Kept)),
            Some((left, right, slot)) => {
                self.merge(stock, parent, left, right, slot)?;
                Ok(Merge::Tried(Tried::Merged))
            }
        }
    }

    /// Latches children `index` and `index + 1`, if one is small and they fit one page.
    #[allow(clippy::type_complexity)]
    fn small_pair<'p>(
        &'p self,
        stock: &Stock<'p>,
        parent: &ExclusiveGuard<'p>,
        index: usize,
        level: u8,
    ) -> Result<Option<(ExclusiveGuard<'p>, ExclusiveGuard<'p>, usize)>, Stop> {
        let node = self.node(parent.page(), parent, Some(level + 1))?;
        let child = |index| child_at(parent.page(), &node, index);
        let (left_page, right_page) = (child(index)?, child(index + 1)?);
        if left_page == right_page {
            let error = Malformed { what: "one child in two places" };
            return Err(TreeError::damaged(parent.page(), error).into());
        }
        let left = stock.latch(left_page)?;
        let right = stock.latch(right_page)?;
        let (left_node, right_node) =
            (self.node(left_page, &left, Some(level))?, self.node(right_page, &right, Some(level))?);
        let wanted = wants_merge(&left_node, &right_node);
        Ok(wanted.then_some((left, right, index)))
    }

    /// Moves all of `right` into `left` and frees its page. `slot` is the separator between them.
    fn merge<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        parent: ExclusiveGuard<'p>,
        left: ExclusiveGuard<'p>,
        right: ExclusiveGuard<'p>,
        slot: usize,
    ) -> Result<(), Stop> {
        let (left_node, right_node) =
            (self.node(left.page(), &left, None)?, self.node(right.page(), &right, None)?);
        let damaged = |error| TreeError::damaged(right.page(), error);
        if left_node.high() != Some(right_node.low()) {
            let error = Malformed { what: "a low fence that is not the left neighbour's high fence" };
            return Err(damaged(error).into());
        }
        let (low, high) = (left_node.low(), right_node.high().map(<[u8]>::to_vec));
        let prefix_len = prefix_between(low, high.as_deref());
        let mut list = EntryList::default();
        if !right_node.is_leaf() {
            // The separator comes down, with the right node's first child to its right.
            let first_child: PageId = right_node.child(0).map_err(damaged)?;
            let Some(separator) = right_node.low().get(prefix_len..) else {
                return Err(damaged(Malformed { what: "fences out of order" }).into());
            };
            list.push(&[], separator, &first_child.0.to_le_bytes());
        }
        list.extend(&right_node, 0..right_node.count(), prefix_len).map_err(damaged)?;
        let mut group = Group::new(stock);
        let left_draft = Draft::new(&left, |body| op::absorb(body, high.as_deref(), &list));
        let parent_draft = Draft::new(&parent, |body| op::remove_child(body, slot));
        group.change(left, left_draft);
        group.change(parent, parent_draft);
        group.free(right);
        group.commit(stock)
    }

    /// Pulls the contents of an only child into the root.
    fn lower<'p>(&'p self, stock: &mut Stock<'p>, root: ExclusiveGuard<'p>) -> Result<Merge, Stop> {
        let node = self.node(root.page(), &root, None)?;
        if node.is_leaf() || node.count() > 0 {
            return Ok(Merge::Tried(Tried::AtRoot));
        }
        let child_page = child_at(root.page(), &node, 0)?;
        let level = node.level() - 1;
        let child = stock.latch(child_page)?;
        let child_node = self.node(child_page, &child, Some(level))?;
        let damaged = |error| TreeError::damaged(child_page, error);
        if !child_node.low().is_empty() || child_node.high().is_some() {
            return Err(damaged(Malformed { what: "an only child that does not hold all keys" }).into());
        }
        let list = EntryList::of(&child_node, 0..child_node.count(), 0).map_err(damaged)?;
        let first_child = if level > 0 { child_node.child(0).map_err(damaged)?.0 } else { 0 };
        let shape = Shape { level, first_child, ..node.shape() };
        let mut group = Group::new(stock);
        let draft = Draft::new(&root, |body| op::format(body, &shape, &list));
        group.change(root, draft);
        group.free(child);
        group.commit(stock)?;
        Ok(Merge::Lowered)
    }
}
