//! Descents from the root, by latch coupling.
//!
//! Latch order: parents before children, and among children of one parent left before right; the
//! tier's and the log's locks come after all latches. A child is latched before its parent is
//! released, so a descent cannot miss a split or merge: a thread that changes which keys a node
//! holds has its parent latched exclusively. Inner nodes are latched shared and only the node to be
//! changed (with its parent, for a structure change) exclusively. The level is part of what is
//! checked on the way, so a damaged page cannot send a descent in circles.

use crate::error::TreeError;
use crate::hint;
use crate::node::{MAX_LEVEL, Node, NodeParts};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::{ExclusiveGuard, PageUse, SharedGuard};

/// Which child to go to.
#[derive(Clone, Copy)]
pub(crate) enum Target<'k> {
    /// The one that holds the key.
    Key(&'k [u8]),
    /// The one that holds the greatest keys below this one.
    Below(&'k [u8]),
    First,
    Last,
}

impl Target<'_> {
    /// Index of the child to go to.
    pub(crate) fn index(self, node: &Node<'_>) -> Result<usize, Malformed> {
        match self {
            Target::Key(key) => node.child_index(key),
            Target::Below(key) => node.child_index_below(key),
            Target::First => Ok(0),
            Target::Last => Ok(node.count()),
        }
    }
    /// Index of the child to go to from the node in `page`.
    pub(crate) fn index_in(self, page: PageId, node: &Node<'_>) -> Result<usize, TreeError> {
        self.index(node).map_err(|error| TreeError::damaged(page, error))
    }
    /// The child to go to from the node in `page`, which is latched.
    #[inline]
    pub(crate) fn child(self, page: PageId, node: &Node<'_>) -> Result<PageId, TreeError> {
        child_at(page, node, self.index_in(page, node)?)
    }
}

/// Child `index` of the node in `page`, which is latched: never that page itself, whose latch the
/// thread would wait for.
#[inline]
pub(crate) fn child_at(page: PageId, node: &Node<'_>, index: usize) -> Result<PageId, TreeError> {
    let child = node.child(index).and_then(|child| match child == page {
        true => Err(Malformed { what: "a node that is its own child" }),
        false => Ok(child),
    });
    child.map_err(|error| TreeError::damaged(page, error))
}

/// A node of a wanted level, latched exclusively together with its parent.
pub(crate) enum Located<'p> {
    /// The root itself has the level.
    Root(ExclusiveGuard<'p>),
    /// The parent, and which of its children is meant; the child is not latched.
    Child(ExclusiveGuard<'p>, usize),
    /// The tree is not so high.
    Above,
}

impl Tree {
    /// Reads a page as a node of this tree at `level` (at any, if `None`).
    #[inline(always)]
    pub(crate) fn node<'n>(
        &self,
        page: PageId,
        bytes: &'n [u8],
        level: Option<u8>,
    ) -> Result<Node<'n>, TreeError> {
        let node = Node::new(bytes).map_err(|error| TreeError::damaged(page, error))?;
        if node.tree() != self.id() || level.is_some_and(|level| level != node.level()) {
            return Err(self.misplaced(page, &node, level));
        }
        if node.is_condemned() {
            return Err(TreeError::condemned(self.id()));
        }
        Ok(node)
    }

    #[cold]
    fn misplaced(&self, page: PageId, node: &Node<'_>, level: Option<u8>) -> TreeError {
        let wanted = level.map_or(String::new(), |level| format!(" at level {level}"));
        TreeError::new(
            crate::error::TreeErrorKind::Damaged,
            format!(
                "{page:?} should be a node of {:?}{wanted}, but is one of {:?} at level {}: the page or a pointer to it is damaged; run a check",
                self.id(),
                node.tree(),
                node.level()
            ),
        )
    }

    /// The leaf that `target` names, latched shared, and where its parts lie.
    #[inline]
    pub(crate) fn leaf_shared(&self, target: Target<'_>) -> Result<(SharedGuard<'_>, NodeParts), TreeError> {
        let pool = self.pool();
        let (mut page, mut guard) = (self.root(), pool.shared(self.root())?);
        let mut expected = None;
        loop {
            let node = self.node(page, &guard, expected)?;
            if node.is_leaf() {
                let parts = node.parts();
                return Ok((guard, parts));
            }
            expected = Some(node.level() - 1);
            page = target.child(page, &node)?;
            let next = pool.shared(page)?;
            guard = next;
        }
    }

    /// The node of `level` on the way to `target`, latched shared; `None` if the tree is not so
    /// high.
    pub(crate) fn inner_shared(
        &self,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<SharedGuard<'_>>, TreeError> {
        self.inner_shared_with(target, level, |_, _| Ok(Vec::new()))
    }

    /// As [`Tree::inner_shared`]. If the node has to be read, its parent is shown to `beside`,
    /// which names the children to be read with it.
    pub(crate) fn inner_shared_with(
        &self,
        target: Target<'_>,
        level: u8,
        mut beside: impl FnMut(&Node<'_>, PageId) -> Result<Vec<PageId>, TreeError>,
    ) -> Result<Option<SharedGuard<'_>>, TreeError> {
        let pool = self.pool();
        let mut guard = pool.shared(self.root())?;
        let mut expected = None;
        loop {
            let node = self.node(guard.page(), &guard, expected)?;
            if node.level() <= level {
                return Ok((node.level() == level).then_some(guard));
            }
            expected = Some(node.level() - 1);
            let child = target.child(guard.page(), &node)?;
            if node.level() == level + 1 {
                pool.bring_in(&beside(&node, guard.page())?, PageUse::Working);
            }
            let next = pool.shared(child)?;
            guard = next;
        }
    }

    /// The leaf that `target` names, latched exclusively, and where its parts lie.
    pub(crate) fn leaf_exclusive(
        &self,
        target: Target<'_>,
    ) -> Result<(ExclusiveGuard<'_>, NodeParts), TreeError> {
        let pool = self.pool();
        'root: loop {
            let (mut page, mut guard) = (self.root(), pool.shared(self.root())?);
            let mut expected = None;
            loop {
                let node = self.node(page, &guard, expected)?;
                if node.is_leaf() {
                    // Only the root can be: latches are not upgraded, so check again once it is
                    // exclusive.
                    drop(guard);
                    let guard = pool.exclusive(page)?;
                    let node = self.node(page, &guard, None)?;
                    if !node.is_leaf() {
                        continue 'root;
                    }
                    let parts = node.parts();
                    return Ok((guard, parts));
                }
                let level = node.level() - 1;
                page = target.child(page, &node)?;
                if level == 0 {
                    let leaf = pool.exclusive(page)?;
                    let parts = self.node(page, &leaf, Some(0))?.parts();
                    return Ok((leaf, parts));
                }
                let next = pool.shared(page)?;
                guard = next;
                expected = Some(level);
            }
        }
    }

    /// As [`Tree::leaf_exclusive`] for a key, trying first the leaf that this thread was at last.
    pub(crate) fn leaf_for_change(&self, key: &[u8]) -> Result<(ExclusiveGuard<'_>, NodeParts), TreeError> {
        if let Some(found) = self.hinted_leaf(key) {
            return Ok(found);
        }
        self.leaf_exclusive(Target::Key(key))
    }

    /// The leaf that this thread was at last, if `key` belongs there.
    ///
    /// A latched page that is a leaf of this tree with fences around the key *is* the key's leaf,
    /// however it was found: fences of leaves never overlap, they change only under the leaf's
    /// exclusive latch, and the frame of a page that is freed is forgotten under that latch too. It
    /// is the first latch taken, so the order of latches is kept.
    fn hinted_leaf(&self, key: &[u8]) -> Option<(ExclusiveGuard<'_>, NodeParts)> {
        let leaf = self.pool().exclusive_seen(hint::recall(self)?)?;
        let node = Node::new(&leaf).ok()?;
        let fits = node.tree() == self.id()
            && node.is_leaf()
            && !node.is_condemned()
            && node.low() <= key
            && node.high().is_none_or(|high| key < high);
        let parts = node.parts();
        fits.then_some((leaf, parts))
    }

    /// The parent of the node of `level` that `target` names, latched exclusively.
    pub(crate) fn locate(&self, target: Target<'_>, level: u8) -> Result<Located<'_>, TreeError> {
        assert!(level <= MAX_LEVEL, "no node is above level {MAX_LEVEL}");
        let pool = self.pool();
        loop {
            let mut guard = pool.shared(self.root())?;
            let height = self.node(guard.page(), &guard, None)?.level();
            if height < level {
                return Ok(Located::Above);
            }
            if height <= level + 1 {
                drop(guard);
                let guard = pool.exclusive(self.root())?;
                let node = self.node(guard.page(), &guard, None)?;
                if node.level() == level {
                    return Ok(Located::Root(guard));
                }
                if node.level() == level + 1 {
                    let index = target.index_in(self.root(), &node)?;
                    return Ok(Located::Child(guard, index));
                }
                continue;
            }
            let mut at = height;
            loop {
                let child = target.child(guard.page(), &self.node(guard.page(), &guard, Some(at))?)?;
                at -= 1;
                if at == level + 1 {
                    let parent = pool.exclusive(child)?;
                    let index = target.index_in(child, &self.node(child, &parent, Some(at))?)?;
                    return Ok(Located::Child(parent, index));
                }
                let next = pool.shared(child)?;
                guard = next;
            }
        }
    }
}
