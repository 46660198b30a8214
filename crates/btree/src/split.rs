//! Splitting a full node, and growing the root.
//!
//! A split is an atomic group of its own, done and released before the change that needed it is
//! tried again. It holds two latches, the parent's and the node's. If the parent lacks space for
//! the separator, both are released and the parent is split first: each step leaves a whole tree
//! behind, and none holds the path from the root exclusively.

use crate::descent::{Located, Target, child_at};
use crate::error::{TreeError, TreeErrorKind};
use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::split::{SplitPoint, choose};
use crate::node::{MAX_LEVEL, Node, SLOT_LEN, Shape, prefix_between};
use crate::op;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::ExclusiveGuard;
use firndb_log::LogClass;

/// What a try at a split came to.
enum Split {
    /// There is space now, or may be: check again.
    Done,
    /// The parent lacks space for a separator of this many bytes, slot included.
    ParentFull(usize),
}

impl Tree {
    /// Splits the node of `level` that holds `key`, unless it has `need` free bytes.
    pub(crate) fn split(&self, key: &[u8], level: u8, need: usize, class: LogClass) -> Result<(), TreeError> {
        if level > MAX_LEVEL {
            return Err(TreeError::new(
                TreeErrorKind::Damaged,
                format!("{:?} has more levels than any tree can: run a check", self.id()),
            ));
        }
        loop {
            let stock = Stock::new(self.pool(), class).expecting(Lack::NewPages(1));
            match stock.run(|stock| self.try_split(stock, key, level, need))? {
                Split::Done => return Ok(()),
                Split::ParentFull(parent_need) => self.split(key, level + 1, parent_need, class)?,
            }
        }
    }

    fn try_split<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        key: &[u8],
        level: u8,
        need: usize,
    ) -> Result<Split, Stop> {
        let (parent, index) = match self.locate(Target::Key(key), level)? {
            Located::Above => return Ok(Split::Done),
            Located::Root(root) => return self.grow(stock, root, need).map(|()| Split::Done),
            Located::Child(parent, index) => (parent, index),
        };
        let parent_node = self.node(parent.page(), &parent, Some(level + 1))?;
        let child = child_at(parent.page(), &parent_node, index)?;
        let guard = stock.latch(child)?;
        let node = self.node(child, &guard, Some(level))?;
        if node.free() >= need {
            return Ok(Split::Done);
        }
        let damaged = |error| TreeError::damaged(child, error);
        let point = choose(&node).map_err(damaged)?;
        let Some(stored) = point.separator.strip_prefix(parent_node.prefix()) else {
            return Err(damaged(Malformed { what: "a child outside its parent's fences" }).into());
        };
        let parent_need = SLOT_LEN + stored.len() + 8;
        if parent_node.free() < parent_need {
            return Ok(Split::ParentFull(parent_need));
        }
        let right = stock.take()?;
        let mut group = Group::new(stock);
        let right_page = right.page();
        let (shape, list) = right_half(&node, &point).map_err(damaged)?;
        let right_draft = right.draft(&[], |body| op::format(body, &shape, &list));
        let left_draft = Draft::new(&guard, |body| op::trim(body, point.slot, Some(&point.separator)));
        let parent_draft = Draft::new(&parent, |body| op::insert_child(body, index, stored, right_page));
        group.fill(right, right_draft);
        group.change(guard, left_draft);
        group.change(parent, parent_draft);
        group.commit(stock)?;
        Ok(Split::Done)
    }

    /// Moves the root's entries into two new children, unless it has `need` free bytes. The root's
    /// page stays: what points to a tree is never changed.
    fn grow<'p>(&'p self, stock: &mut Stock<'p>, root: ExclusiveGuard<'p>, need: usize) -> Result<(), Stop> {
        let damaged = |error| TreeError::damaged(root.page(), error);
        let node = self.node(root.page(), &root, None)?;
        if node.free() >= need {
            return Ok(());
        }
        let point = choose(&node).map_err(damaged)?;
        let shape = node.shape();
        let (left, right) = stock.take_two()?;
        let mut group = Group::new(stock);
        let (left_page, right_page) = (left.page(), right.page());
        let left_shape = Shape { high: Some(&point.separator), ..shape };
        let prefix_len = prefix_between(left_shape.low, left_shape.high);
        let left_list = EntryList::of(&node, 0..point.slot, prefix_len).map_err(damaged)?;
        let (right_shape, right_list) = right_half(&node, &point).map_err(damaged)?;
        let left_draft = left.draft(&[], |body| op::format(body, &left_shape, &left_list));
        let right_draft = right.draft(&[], |body| op::format(body, &right_shape, &right_list));
        let above = two_children(&shape, left_page, &point.separator, right_page);
        let above_shape =
            Shape { level: shape.level + 1, first_child: left_page.0, low: &[], high: None, ..shape };
        let root_draft = Draft::new(&root, |body| op::format(body, &above_shape, &above));
        group.fill(left, left_draft);
        group.fill(right, right_draft);
        group.change(root, root_draft);
        group.commit(stock)
    }
}

/// Entries of a root with two children. `shape` is the one it had before.
pub(crate) fn two_children(shape: &Shape<'_>, left: PageId, separator: &[u8], right: PageId) -> EntryList {
    debug_assert!(shape.low.is_empty() && shape.high.is_none(), "a root holds all keys");
    debug_assert!(left != right);
    let mut list = EntryList::default();
    list.push(&[], separator, &right.0.to_le_bytes());
    list
}

/// The new node to the right of a split.
fn right_half<'s>(node: &Node<'s>, point: &'s SplitPoint) -> Result<(Shape<'s>, EntryList), Malformed> {
    let shape = node.shape();
    let (from, first_child) = match node.is_leaf() {
        true => (point.slot, PageId(0)),
        false => (point.slot + 1, node.child(point.slot + 1)?),
    };
    let shape = Shape { low: &point.separator, first_child: first_child.0, ..shape };
    let list = EntryList::of(node, from..node.count(), prefix_between(shape.low, shape.high))?;
    Ok((shape, list))
}
