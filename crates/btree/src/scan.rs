//! Visiting entries in key order, a leaf at a time.
//!
//! A scan stands on keys, never on pages. Fences make that exact: a leaf holds the keys at or above
//! its low fence and below its high fence. So going forward past a leaf means going to `At(high)`,
//! the least key the leaf could not hold, and going backward past it means going to `Past(low)`,
//! everything below the low fence. A leaf may have no entry in the direction asked for, or none at
//! all: the visit then shows nothing and still returns where to continue.

use crate::descent::Target;
use crate::error::TreeError;
use crate::hint;
use crate::node::{MAX_LEVEL, Node, NodeParts};
use crate::scratch;
use crate::tree::Tree;
use firndb_base::codec::Malformed;
use firndb_buffer::{PageUse, SharedGuard};

impl Position {
    /// The leaf in which a scan in `direction` continues.
    pub(crate) fn target(&self, direction: Direction) -> Target<'_> {
        match (self, direction) {
            (Position::Start, Direction::Forward) => Target::First,
            (Position::Start, Direction::Backward) => Target::Last,
            (Position::At(key), _) | (Position::Past(key), Direction::Forward) => Target::Key(key),
            (Position::Past(key), Direction::Backward) => Target::Below(key),
        }
    }

    /// The slots of a leaf that lie ahead: going forward from the first number up to the second,
    /// going backward from the second down to the first.
    pub(crate) fn ahead(&self, node: &Node<'_>, direction: Direction) -> Result<(usize, usize), Malformed> {
        let key = match self {
            Position::Start => return Ok((0, node.count())),
            Position::At(key) | Position::Past(key) => node.search(key)?,
        };
        let inclusive = matches!(self, Position::At(_));
        Ok(match (direction, key) {
            (Direction::Forward, Ok(slot)) => (slot + usize::from(!inclusive), node.count()),
            (Direction::Forward, Err(slot)) => (slot, node.count()),
            (Direction::Backward, Ok(slot)) => (0, slot + usize::from(inclusive)),
            (Direction::Backward, Err(slot)) => (0, slot),
        })
    }

    /// As [`Position::ahead`], where the position's key may be that of slot `near`.
    fn ahead_near(
        &self,
        node: &Node<'_>,
        direction: Direction,
        near: usize,
    ) -> Result<(usize, usize), Malformed> {
        if let Position::Past(key) = self
            && let Ok((stored, _)) = node.entry(near)
            && key.strip_prefix(node.prefix()).is_some_and(|rest| rest == stored)
        {
            return Ok(match direction {
                Direction::Forward => (near + 1, node.count()),
                Direction::Backward => (0, near),
            });
        }
        self.ahead(node, direction)
    }

    /// As [`Position::after`], making sure that this is ahead: on damaged trees, a leaf that is not
    /// where its parent says would make a scan loop for ever.
    pub(crate) fn onward(
        &self,
        node: &Node<'_>,
        direction: Direction,
    ) -> Result<Option<Position>, Malformed> {
        let mut next = self.clone();
        Ok(next.go_past(node, direction)?.then_some(next))
    }

    /// Becomes where a scan continues after a leaf; false after the last. It must be ahead, as for
    /// [`Position::onward`].
    fn go_past(&mut self, node: &Node<'_>, direction: Direction) -> Result<bool, Malformed> {
        let fence = match direction {
            Direction::Forward => node.high(),
            Direction::Backward => Some(node.low()).filter(|low| !low.is_empty()),
        };
        let Some(fence) = fence else { return Ok(false) };
        let is_ahead = match (&*self, direction) {
            (Position::Start, _) => true,
            (Position::At(from) | Position::Past(from), Direction::Forward) => fence > from.as_slice(),
            (Position::At(from), Direction::Backward) => fence <= from.as_slice(),
            (Position::Past(from), Direction::Backward) => fence < from.as_slice(),
        };
        if !is_ahead {
            return Err(Malformed { what: "it is not where its parent says" });
        }
        let key = self.reuse(&[fence]);
        *self = match direction {
            Direction::Forward => Position::At(key),
            Direction::Backward => Position::Past(key),
        };
        Ok(true)
    }

    /// A key of these parts, in the memory of this position's.
    fn reuse(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = match std::mem::replace(self, Position::Start) {
            Position::Start => Vec::new(),
            Position::At(key) | Position::Past(key) => key,
        };
        key.clear();
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    /// Where a scan continues after a leaf; `None` after the last.
    pub(crate) fn after(node: &Node<'_>, direction: Direction) -> Option<Position> {
        match direction {
            Direction::Forward => node.high().map(|high| Position::At(high.to_vec())),
            Direction::Backward if node.low().is_empty() => None,
            Direction::Backward => Some(Position::Past(node.low().to_vec())),
        }
    }
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Where a scan stands between two calls: keys only, no latch, no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the first key going forward, after the last going backward.
    Start,
    /// At the key itself if it is there, else at the next one in the scan's direction.
    At(Vec<u8>),
    /// Past the key in the scan's direction.
    Past(Vec<u8>),
}

/// Whether a visit continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    Continue,
    /// No more; the scan's next position is past this entry.
    Stop,
    /// No more, and the scan stays where the visit began.
    GiveUp,
}

/// One entry of a leaf, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key's beginning, which all keys of the leaf have.
    pub prefix: &'a [u8],
    /// The rest of the key, and the value behind it.
    pub stored: &'a [u8],
    /// Bytes of that rest.
    pub suffix_len: usize,
}

impl<'a> Entry<'a> {
    /// The rest of the key.
    #[inline]
    #[must_use]
    pub fn suffix(&self) -> &'a [u8] {
        &self.stored[..self.suffix_len]
    }
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        &self.stored[self.suffix_len..]
    }
}

/// How far a scan goes, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    pub direction: Direction,
    /// Going forward the first key that is not visited, going backward the last one that is.
    pub to: Option<&'a [u8]>,
    /// What leaves are used for.
    pub leaf_use: PageUse,
}

impl Course<'_> {
    /// Of the slots of a leaf that lie ahead, those before the end.
    fn cut(&self, node: &Node<'_>, (low, high): (usize, usize)) -> Result<(usize, usize), Malformed> {
        let Some(to) = self.to else { return Ok((low, high)) };
        Ok(match self.direction {
            Direction::Forward if node.high().is_some_and(|fence| fence <= to) => (low, high),
            Direction::Forward => (low, high.min(node.child_index_below(to)?)),
            Direction::Backward if to <= node.low() => (low, high),
            Direction::Backward => (low.max(node.child_index_below(to)?), high),
        })
    }
}

/// Runs `work` with a visitor of entries that puts their keys together for `visit`.
fn with_whole_keys<R>(
    mut visit: impl FnMut(&[u8], &[u8]) -> Visit,
    work: impl FnOnce(&mut dyn FnMut(Entry<'_>) -> Visit) -> R,
) -> R {
    scratch::with(|scratch| {
        let key = &mut scratch.key;
        work(&mut |entry| {
            key.clear();
            key.extend_from_slice(entry.prefix);
            key.extend_from_slice(entry.suffix());
            visit(key, entry.value())
        })
    })
}

impl Tree {
    /// Shows the entries of one leaf, from `from` in `direction`, to `visit` under the leaf's
    /// shared latch, until the leaf ends or `visit` stops. Returns where to continue; `None` at the
    /// tree's end.
    ///
    /// There may be no entry ahead in the leaf: then nothing is visited, and the scan continues all
    /// the same. `visit` must not block on anything that a latch holder may wait for.
    pub fn visit_leaf(
        &self,
        from: &Position,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<Option<Position>, TreeError> {
        self.visit_leaf_for(from, direction, PageUse::Working, visit)
    }

    /// As [`Tree::visit_leaf`], for a use of the leaf that may be a long scan's.
    pub fn visit_leaf_for(
        &self,
        from: &Position,
        direction: Direction,
        leaf_use: PageUse,
        visit: impl FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<Option<Position>, TreeError> {
        let mut at = from.clone();
        let course = Course { direction, to: None, leaf_use };
        let more = with_whole_keys(visit, |visit| self.visit_leaf_on(&mut at, course, visit))?;
        Ok(more.then_some(at))
    }

    /// As [`Tree::visit_leaf`], for a scan that stands at `at`, and is moved on in its place; false
    /// at the scan's end. `at` is as before after an error.
    #[inline]
    pub fn visit_leaf_on(
        &self,
        at: &mut Position,
        course: Course<'_>,
        visit: impl FnMut(Entry<'_>) -> Visit,
    ) -> Result<bool, TreeError> {
        let (leaf, near) = match self.same_leaf(at, course.direction) {
            Some((leaf, slot)) => (leaf, Some(slot)),
            None => (self.leaf_shared_for(at.target(course.direction), course.leaf_use)?, None),
        };
        self.visit_latched(leaf, near, at, course, visit)
    }

    /// As [`Tree::visit_leaf`], if no node but the root has to be read for it; else `None` as well,
    /// and nothing is visited. For looking ahead.
    pub fn peek_leaf(
        &self,
        from: &Position,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<Option<Position>, TreeError> {
        let Ok(leaf) = self.leaf_in_memory(from.target(direction), PageUse::Working)? else {
            return Ok(None);
        };
        let mut at = from.clone();
        let course = Course { direction, to: None, leaf_use: PageUse::Working };
        let more = with_whole_keys(visit, |visit| self.visit_latched(leaf, None, &mut at, course, visit))?;
        Ok(more.then_some(at))
    }

    /// Visits entries of a leaf. The scan may stand at slot `near`.
    #[inline]
    fn visit_latched(
        &self,
        (leaf, parts): (SharedGuard<'_>, NodeParts),
        near: Option<usize>,
        at: &mut Position,
        course: Course<'_>,
        mut visit: impl FnMut(Entry<'_>) -> Visit,
    ) -> Result<bool, TreeError> {
        let damaged = |error| TreeError::damaged(leaf.page(), error);
        let node = Node::at(&leaf, parts);
        let ahead = match near {
            Some(near) => at.ahead_near(&node, course.direction, near),
            None => at.ahead(&node, course.direction),
        };
        let ahead = ahead.map_err(damaged)?;
        let (low, high) = course.cut(&node, ahead).map_err(damaged)?;
        let prefix = node.prefix();
        let mut left = high.saturating_sub(low);
        while left > 0 {
            let slot = match course.direction {
                Direction::Forward => high - left,
                Direction::Backward => low + left - 1,
            };
            let (stored, suffix_len) = node.stored(slot).map_err(damaged)?;
            let entry = Entry { prefix, stored, suffix_len };
            match visit(entry) {
                Visit::Continue => left -= 1,
                Visit::Stop => {
                    hint::remember_at(self, leaf.optimistic(), slot);
                    *at = Position::Past(at.reuse(&[prefix, entry.suffix()]));
                    return Ok(!at.is_past(course.to, course.direction));
                }
                Visit::GiveUp => return Ok(true),
            }
        }
        let is_cut = (low, high) != ahead;
        let more = !is_cut && at.go_past(&node, course.direction).map_err(damaged)?;
        Ok(more && !at.is_past(course.to, course.direction))
    }

    /// The leaf in which this thread stopped a visit last, if it has not changed since and is where
    /// the scan continues. It is the first latch taken; that the fences enclose the key makes it
    /// the key's leaf, as in [`Tree::leaf_for_change`]. Also returns the slot at which it stopped.
    fn same_leaf(
        &self,
        from: &Position,
        direction: Direction,
    ) -> Option<((SharedGuard<'_>, NodeParts), usize)> {
        let Position::Past(key) = from else { return None };
        let (leaf, slot) = hint::recall_at(self)?;
        let leaf = self.pool().shared_if_unchanged(leaf)?;
        let node = Node::new(&leaf).ok()?;
        let (key, low, high) = (key.as_slice(), node.low(), node.high());
        let encloses = match direction {
            Direction::Forward => low <= key && high.is_none_or(|high| key < high),
            Direction::Backward => low < key && high.is_none_or(|high| key <= high),
        };
        let fits = encloses && node.tree() == self.id() && node.is_leaf() && !node.is_condemned();
        let parts = node.parts();
        fits.then_some(((leaf, parts), slot))
    }

    /// Where a scan continues forward past the leaf that `from` is in, if that leaf cannot be read:
    /// its ancestors say where. Past more than the leaf, if the node above it cannot be read
    /// either. `None` if nothing lies behind it.
    ///
    /// Errors: if not even the root can be read.
    pub fn past_leaf(&self, from: &Position) -> Result<Option<Position>, TreeError> {
        self.past_child(from.target(Direction::Forward), 1)
    }

    /// As [`Tree::past_leaf`], past the child that the node of `level` has on the way to `target`.
    pub(crate) fn past_child(
        &self,
        target: Target<'_>,
        mut level: u8,
    ) -> Result<Option<Position>, TreeError> {
        loop {
            match self.inner_shared(target, level) {
                Ok(Some(parent)) => {
                    let damaged = |error| TreeError::damaged(parent.page(), error);
                    let node = self.node(parent.page(), &parent, Some(level))?;
                    let index = target.index_in(parent.page(), &node)?;
                    if index == node.count() {
                        return Ok(Position::after(&node, Direction::Forward));
                    }
                    let mut separator = Vec::new();
                    node.full_key(index, &mut separator).map_err(damaged)?;
                    return Ok(Some(Position::At(separator)));
                }
                // The leaf is the root.
                Ok(None) => return Ok(None),
                Err(error) if level >= MAX_LEVEL => return Err(error),
                Err(_) => level += 1,
            }
        }
    }
}
