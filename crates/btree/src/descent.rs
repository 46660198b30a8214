//! Descents from the root, by latch coupling.
//!
//! Latch order: parents before children, and among children of one parent left before right; the
//! tier's and the log's locks come after all latches. A child in memory is latched before its
//! parent is released, so a descent cannot miss a split or merge: a thread that changes which keys
//! a node holds has its parent latched exclusively. Inner nodes are latched shared and only the
//! node to be changed (with its parent, for a structure change) exclusively. The level is part of
//! what is checked on the way, so a damaged page cannot send a descent in circles. The root is
//! mostly read from a copy (`roots.rs`).
//!
//! No latch is held over a read: a child that is not in memory is read and latched with the parent
//! released, and counts only if the parent, latched again for a moment, has not changed
//! (`read_child`); else the descent starts again. One that was overtaken by changes
//! [`Restarts::MAX`] times keeps the parent latched while it reads.

use crate::error::TreeError;
use crate::hint;
use crate::node::{MAX_LEVEL, Node, NodeParts};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::{ExclusiveGuard, Fixed, InMemory, PageUse, SharedGuard};

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
    /// The child to go to from the node in `page`, which is latched. A descent came to it, so a key
    /// lies between its fences.
    #[inline]
    pub(crate) fn child(self, page: PageId, node: &Node<'_>) -> Result<PageId, TreeError> {
        let index = match self {
            Target::Key(key) => node.child_index_within(key),
            _ => self.index(node),
        };
        child_at(page, node, index.map_err(|error| TreeError::damaged(page, error))?)
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

/// How often a descent started again because a node changed while its child was read.
#[derive(Default)]
pub(crate) struct Restarts(u32);

impl Restarts {
    /// From then on the parent stays latched while the child is read, so that the descent ends.
    const MAX: u32 = 8;

    fn is_last(&self) -> bool {
        self.0 >= Restarts::MAX
    }
    fn count(&mut self) {
        self.0 += 1;
    }
}

/// A leaf, latched shared, and where its parts lie.
pub(crate) type LatchedLeaf<'p> = (SharedGuard<'p>, NodeParts);

/// A child of the root, on the way to a leaf that is to be latched exclusively.
enum Below<'p> {
    Leaf(ExclusiveGuard<'p>),
    Inner(SharedGuard<'p>),
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
        self.leaf_shared_for(target, PageUse::Working)
    }

    /// As [`Tree::leaf_shared`], for a use of the leaf that may be a scan's.
    #[inline]
    pub(crate) fn leaf_shared_for(
        &self,
        target: Target<'_>,
        leaf_use: PageUse,
    ) -> Result<(SharedGuard<'_>, NodeParts), TreeError> {
        let pool = self.pool();
        let mut restarts = Restarts::default();
        let use_at = |level| if level == 0 { leaf_use } else { PageUse::Working };
        let mut begun =
            self.below_root(target, |child, level| pool.try_shared_in_memory_for(child, use_at(level)));
        'root: loop {
            let (mut guard, mut page, mut expected) = self.begin(begun.take())?;
            loop {
                let node = self.node(page, &guard, expected)?;
                if node.is_leaf() {
                    let parts = node.parts();
                    return Ok((guard, parts));
                }
                if expected.is_none() {
                    self.keep_root(&guard, &node);
                }
                let level = node.level() - 1;
                page = target.child(page, &node)?;
                let page_use = use_at(level);
                let next = self.child_shared(guard, page, page_use, &mut restarts)?;
                let Some(next) = next else { continue 'root };
                guard = next;
                expected = Some(level);
            }
        }
    }

    /// Where a descent goes on that has `begun` below the root, or the root itself: the node,
    /// latched shared, its page, and its level, if that is known.
    #[inline]
    fn begin<'p>(
        &'p self,
        begun: Option<(SharedGuard<'p>, PageId, u8)>,
    ) -> Result<(SharedGuard<'p>, PageId, Option<u8>), TreeError> {
        match begun {
            Some((guard, page, level)) => Ok((guard, page, Some(level))),
            None => Ok((self.pool().shared(self.root())?, self.root(), None)),
        }
    }

    /// As [`Tree::leaf_shared_for`], without reading anything but the root: the uppermost node on
    /// the way that is not in memory, and its level.
    #[inline]
    pub(crate) fn leaf_in_memory(
        &self,
        target: Target<'_>,
        leaf_use: PageUse,
    ) -> Result<Result<LatchedLeaf<'_>, (PageId, u8)>, TreeError> {
        let pool = self.pool();
        let use_at = |level| if level == 0 { leaf_use } else { PageUse::Working };
        let begun =
            self.below_root(target, |child, level| pool.try_shared_in_memory_for(child, use_at(level)));
        let (mut guard, mut page, mut expected) = self.begin(begun)?;
        loop {
            let node = self.node(page, &guard, expected)?;
            if node.is_leaf() {
                let parts = node.parts();
                return Ok(Ok((guard, parts)));
            }
            if expected.is_none() {
                self.keep_root(&guard, &node);
            }
            let level = node.level() - 1;
            page = target.child(page, &node)?;
            let page_use = use_at(level);
            guard = match pool.shared_in_memory_for(page, page_use) {
                Some(next) => next,
                None => return Ok(Err((page, level))),
            };
            expected = Some(level);
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
        let mut restarts = Restarts::default();
        'root: loop {
            let mut guard = pool.shared(self.root())?;
            let mut expected = None;
            loop {
                let node = self.node(guard.page(), &guard, expected)?;
                if node.level() <= level {
                    return Ok((node.level() == level).then_some(guard));
                }
                expected = Some(node.level() - 1);
                let child = target.child(guard.page(), &node)?;
                if let Some(next) = pool.shared_in_memory(child) {
                    guard = next;
                    continue;
                }
                let together = match node.level() == level + 1 {
                    true => beside(&node, guard.page())?,
                    false => Vec::new(),
                };
                let next = self.read_child(guard, &mut restarts, || {
                    if together.len() > 1 {
                        pool.bring_in(&together, PageUse::Working);
                    }
                    pool.shared(child)
                })?;
                let Some(next) = next else { continue 'root };
                guard = next;
            }
        }
    }

    /// Latches `child` of the node that is latched as `parent`, shared. `None` if it had to be
    /// read and the parent has changed meanwhile: the descent starts again.
    #[inline]
    pub(crate) fn child_shared<'p>(
        &'p self,
        parent: SharedGuard<'p>,
        child: PageId,
        child_use: PageUse,
        restarts: &mut Restarts,
    ) -> Result<Option<SharedGuard<'p>>, TreeError> {
        match self.pool().shared_in_memory_for(child, child_use) {
            Some(next) => Ok(Some(next)),
            None => self.read_child(parent, restarts, || self.pool().shared_for(child, child_use)),
        }
    }

    /// Latches, by `latch`, a child that is not in memory of the node that is latched as `parent`;
    /// `None` if the parent has changed meanwhile.
    ///
    /// No latch is held while the child is read. Afterwards the parent is latched for a moment, if
    /// that needs no waiting, since the child is latched before it. So there is a moment when both
    /// are latched, and then the parent still is what named the child: as if they had been coupled.
    /// The pin keeps the parent in its frame meanwhile, so that in a small pool reads of one
    /// descent do not evict its own path.
    #[cold]
    fn read_child<'p, G>(
        &'p self,
        parent: SharedGuard<'p>,
        restarts: &mut Restarts,
        latch: impl FnOnce() -> Fixed<G>,
    ) -> Result<Option<G>, TreeError> {
        if restarts.is_last() {
            // Released when the child is latched.
            return Ok(Some(latch()?));
        }
        let (pool, seen, _pin) = (self.pool(), parent.optimistic(), parent.pin());
        drop(parent);
        let child = match latch() {
            Ok(child) => pool.try_shared_if_unchanged(seen).map(|_parent| child),
            // The error is the tree's if the page was the tree's all the time. No latch is held
            // now, so the parent's may be waited for.
            Err(error) if pool.shared_if_unchanged(seen).is_some() => return Err(error.into()),
            Err(_) => None,
        };
        if child.is_none() {
            restarts.count();
        }
        Ok(child)
    }

    /// The leaf that `target` names, latched exclusively, and where its parts lie.
    pub(crate) fn leaf_exclusive(
        &self,
        target: Target<'_>,
    ) -> Result<(ExclusiveGuard<'_>, NodeParts), TreeError> {
        let pool = self.pool();
        let mut restarts = Restarts::default();
        let begun = self.below_root(target, |child, level| match level {
            0 => pool.try_exclusive_if_in_memory(child).map(Below::Leaf),
            _ => pool.try_shared_in_memory_for(child, PageUse::Working).map(Below::Inner),
        });
        let mut begun = match begun {
            Some((Below::Leaf(leaf), page, _)) => {
                let parts = self.node(page, &leaf, Some(0))?.parts();
                return Ok((leaf, parts));
            }
            Some((Below::Inner(guard), page, level)) => Some((guard, page, level)),
            None => None,
        };
        'root: loop {
            let (mut guard, mut page, mut expected) = self.begin(begun.take())?;
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
                if expected.is_none() {
                    self.keep_root(&guard, &node);
                }
                let level = node.level() - 1;
                page = target.child(page, &node)?;
                if level == 0 {
                    let leaf = self.child_exclusive(guard, page, &mut restarts)?;
                    let Some(leaf) = leaf else { continue 'root };
                    let parts = self.node(page, &leaf, Some(0))?.parts();
                    return Ok((leaf, parts));
                }
                let next = self.child_shared(guard, page, PageUse::Working, &mut restarts)?;
                let Some(next) = next else { continue 'root };
                guard = next;
                expected = Some(level);
            }
        }
    }

    /// As [`Tree::child_shared`], latching the child exclusively.
    #[inline]
    fn child_exclusive<'p>(
        &'p self,
        parent: SharedGuard<'p>,
        child: PageId,
        restarts: &mut Restarts,
    ) -> Result<Option<ExclusiveGuard<'p>>, TreeError> {
        match self.pool().exclusive_in_memory(child) {
            InMemory::Latched(next) => Ok(Some(next)),
            InMemory::Absent(_) | InMemory::BeingRead => {
                self.read_child(parent, restarts, || self.pool().exclusive(child))
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
    /// exclusive latch, and the frame of a page that is freed is forgotten under that latch too.
    /// That the bytes are a node's at all is certain since the page stayed in its frame: content
    /// that callers keep in whole pages may look like any node (`naming.rs`). The caller holds no
    /// latch, so the order of latches is kept.
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
        let mut restarts = Restarts::default();
        'root: loop {
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
                    let parent = self.child_exclusive(guard, child, &mut restarts)?;
                    let Some(parent) = parent else { continue 'root };
                    let index = target.index_in(child, &self.node(child, &parent, Some(at))?)?;
                    return Ok(Located::Child(parent, index));
                }
                let next = self.child_shared(guard, child, PageUse::Working, &mut restarts)?;
                let Some(next) = next else { continue 'root };
                guard = next;
            }
        }
    }
}
