//! Which leaves will be wanted, from the nodes above them.
//!
//! Pages of leaves are hints: by the time they are used, a leaf may have been split, merged or
//! freed. They serve to bring leaves in before they are needed; what is right comes from keys and
//! fences when a leaf is visited. So nothing here latches or reads a leaf, and a level-1 node is
//! latched only while its children are listed.
//!
//! Level-1 nodes that are not in memory are read. Where a level-2 node shows that several will be
//! needed, they are read together.

use crate::descent::{Target, child_at};
use crate::error::TreeError;
use crate::node::Node;
use crate::scan::{Direction, Position};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;

/// Level-1 nodes read together, at most.
const TOGETHER_MAX: usize = 64;
/// Leaves that a level-1 node is taken to have when nodes that a scan will reach are read together:
/// few, since separators are short.
const LEAVES_MIN: usize = 64;

impl Tree {
    /// Appends to `out` the pages of the leaves that would hold `keys`, which ascend: in key order,
    /// each once.
    pub fn leaves(&self, keys: &[&[u8]], out: &mut Vec<PageId>) -> Result<(), TreeError> {
        self.nodes_of(keys, 0, |leaf, _| {
            out.push(leaf);
            Ok(())
        })
    }

    /// As [`Tree::leaves`], each with the leaf behind it, if both have one parent.
    pub fn leaves_with_next(
        &self,
        keys: &[&[u8]],
        out: &mut Vec<(PageId, Option<PageId>)>,
    ) -> Result<(), TreeError> {
        self.nodes_of(keys, 0, |leaf, place| {
            let next = match place {
                Some((node, parent, index)) if index < node.count() => {
                    Some(child_at(parent, node, index + 1)?)
                }
                _ => None,
            };
            out.push((leaf, next));
            Ok(())
        })
    }

    /// Appends to `out` the pages of the level-1 nodes on the way to `keys`, as [`Tree::leaves`]
    /// does the leaves: for reading them before they are needed. None if the tree is not so high.
    pub fn parents(&self, keys: &[&[u8]], out: &mut Vec<PageId>) -> Result<(), TreeError> {
        self.nodes_of(keys, 1, |node, _| {
            out.push(node);
            Ok(())
        })
    }

    /// [`Tree::leaves`], of the nodes of a level: `show` gets each, with its parent, the parent's
    /// page, and its number there; without, if it is the root.
    fn nodes_of(
        &self,
        keys: &[&[u8]],
        level: u8,
        mut show: impl FnMut(PageId, Option<(&Node<'_>, PageId, usize)>) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        debug_assert!(keys.is_sorted(), "keys to find nodes for ascend");
        let (mut at, mut last) = (0, None);
        while at < keys.len() {
            let rest = &keys[at..];
            let above =
                |node: &Node<'_>, page| list(node, page, &children_of_keys(node, page, rest, TOGETHER_MAX)?);
            let Some(parent) = self.inner_shared_with(Target::Key(rest[0]), level + 1, above)? else {
                return if level == 0 { show(self.root(), None) } else { Ok(()) };
            };
            let page = parent.page();
            let node = self.node(page, &parent, Some(level + 1))?;
            // The first key leads on even if a damaged node does not hold it.
            let own = rest[1..].partition_point(|key| node.is_below_high(key)) + 1;
            for index in children_of_keys(&node, page, &rest[..own], usize::MAX)? {
                let child = child_at(page, &node, index)?;
                if last != Some(child) {
                    show(child, Some((&node, page, index)))?;
                    last = Some(child);
                }
            }
            at += own;
        }
        Ok(())
    }

    /// Appends to `out` the pages of the next leaves, at most `max`, that a scan from `from` in
    /// `direction` will visit, in its order, and returns where the leaf after them begins; `None`
    /// if the scan ends with them.
    ///
    /// `to` ends the scan: going forward it is the first key not wanted, going backward the last
    /// one wanted.
    pub fn next_leaves(
        &self,
        from: &Position,
        to: Option<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<PageId>,
    ) -> Result<Option<Position>, TreeError> {
        self.next_nodes((from, to, direction), 0, max, out)
    }

    /// Appends to `out` the pages of the level-1 nodes, at most `max`, that list the leaves of a
    /// scan, as [`Tree::next_leaves`] does those: for reading them before they are needed. None if
    /// the tree is not so high.
    pub fn next_parents(
        &self,
        from: &Position,
        to: Option<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<PageId>,
    ) -> Result<(), TreeError> {
        self.next_nodes((from, to, direction), 1, max, out).map(drop)
    }

    /// Appends to `out` the pages of the nodes of `level` from `from` on, at most `max`, in key
    /// order, and returns where the one after them begins; `None` if there is none. None are found
    /// where no node of that level has a parent, but for a leaf that is the root. What lies below a
    /// node that cannot be read is passed over.
    ///
    /// Called from each position to the next, this finds every page that is a node of that level
    /// from before the first call to the end of the last, whatever splits and merges there are: a
    /// node from `from` on holds keys from there on as long as there is one, since it gives away
    /// those of one end or all of them, with its page.
    pub fn nodes_from(
        &self,
        level: u8,
        from: &Position,
        max: usize,
        out: &mut Vec<PageId>,
    ) -> Result<Option<Position>, TreeError> {
        let direction = Direction::Forward;
        let next = match self.next_nodes((from, None, direction), level, max, out) {
            Err(error) if error.concerns_a_page() => {
                self.past_child(from.target(direction), level.saturating_add(2))
            }
            outcome => outcome,
        }?;
        // A damaged node may lead back.
        Ok(next.filter(|next| from.is_before(next)))
    }

    /// [`Tree::next_leaves`], of the nodes of a level.
    fn next_nodes(
        &self,
        (from, to, direction): (&Position, Option<&[u8]>, Direction),
        level: u8,
        max: usize,
        out: &mut Vec<PageId>,
    ) -> Result<Option<Position>, TreeError> {
        let (mut left, mut from) = (max, from.clone());
        while left > 0 && !from.is_past(to, direction) {
            let target = from.target(direction);
            let above = |node: &Node<'_>, page| {
                let nodes = (1 + left / LEAVES_MIN).min(TOGETHER_MAX);
                let ahead = ahead(node, target, to, direction, nodes);
                list(node, page, &ahead.map_err(|error| TreeError::damaged(page, error))?)
            };
            let Some(parent) = self.inner_shared_with(target, level + 1, above)? else {
                if level == 0 {
                    out.push(self.root());
                }
                return Ok(None);
            };
            let page = parent.page();
            let damaged = |error| TreeError::damaged(page, error);
            let node = self.node(page, &parent, Some(level + 1))?;
            let children = ahead(&node, target, to, direction, left).map_err(damaged)?;
            out.extend(list(&node, page, &children)?);
            left -= children.len();
            // Its own child at least, unless a damaged node is not where its parent says.
            let Some(&last) = children.last() else { return Ok(None) };
            match from.beyond_child(&node, last, direction).map_err(damaged)? {
                Some(next) => from = next,
                None => return Ok(None),
            }
        }
        Ok((!from.is_past(to, direction)).then_some(from))
    }
}

/// The numbers of the children of the node in `page` that would hold those of `keys`, which ascend,
/// that are its own: each once, at most `max`.
fn children_of_keys(
    node: &Node<'_>,
    page: PageId,
    keys: &[&[u8]],
    max: usize,
) -> Result<Vec<usize>, TreeError> {
    let mut children: Vec<usize> = Vec::new();
    for key in keys.iter().take_while(|key| node.is_below_high(key)) {
        let index = Target::Key(key).index_in(page, node)?;
        if children.last() != Some(&index) {
            if children.len() == max {
                break;
            }
            children.push(index);
        }
    }
    Ok(children)
}

/// The children, at most `max`, that a scan to `to` visits from `target` on, in its order.
fn ahead(
    node: &Node<'_>,
    target: Target<'_>,
    to: Option<&[u8]>,
    direction: Direction,
    max: usize,
) -> Result<Vec<usize>, Malformed> {
    let first = target.index(node)?;
    Ok(match direction {
        Direction::Forward => {
            let last = to.map_or(Ok(node.count()), |to| node.child_index_below(to))?;
            (first..=last).take(max).collect()
        }
        Direction::Backward => {
            let last = to.map_or(Ok(0), |to| node.child_index(to))?;
            (last..=first).rev().take(max).collect()
        }
    })
}

/// The pages of some children of the node in `page`.
fn list(node: &Node<'_>, page: PageId, children: &[usize]) -> Result<Vec<PageId>, TreeError> {
    children.iter().map(|&index| child_at(page, node, index)).collect()
}

impl Position {
    /// Where a scan that stands here continues after child `index` of a node.
    fn beyond_child(
        &self,
        node: &Node<'_>,
        index: usize,
        direction: Direction,
    ) -> Result<Option<Position>, Malformed> {
        let separator = match direction {
            Direction::Forward if index < node.count() => index,
            Direction::Backward if index > 0 => index - 1,
            _ => return self.onward(node, direction),
        };
        let mut key = Vec::new();
        node.full_key(separator, &mut key)?;
        Ok(Some(match direction {
            Direction::Forward => Position::At(key),
            Direction::Backward => Position::Past(key),
        }))
    }

    /// Whether a scan forward that stands here comes to `other` later.
    fn is_before(&self, other: &Position) -> bool {
        match (self, other) {
            (_, Position::Start) => false,
            (Position::Start, _) => true,
            (Position::At(key) | Position::Past(key), Position::At(other) | Position::Past(other)) => {
                key < other
            }
        }
    }

    /// Whether a scan to `to` that stands here has no key ahead.
    pub(crate) fn is_past(&self, to: Option<&[u8]>, direction: Direction) -> bool {
        let Some(to) = to else { return false };
        match (self, direction) {
            (Position::Start, _) => false,
            (Position::At(key) | Position::Past(key), Direction::Forward) => key.as_slice() >= to,
            (Position::At(key), Direction::Backward) => key.as_slice() < to,
            (Position::Past(key), Direction::Backward) => key.as_slice() <= to,
        }
    }
}
