//! Emptying a tree and giving its pages back.
//!
//! A large tree is cleared in many atomic groups, so that none outgrows the log. The first marks the root
//! *condemned*: from then on the tree answers errors to everything but `clear` and `drop_root`, so nobody
//! sees it half empty, and fences need not be kept. Each further group frees some children from the right
//! end of the tree and takes them out of their parent; the last makes the root an empty leaf again. After
//! a crash the mark is still there and `clear` goes on where it was.
//!
//! Pages below are not read to be freed, except inner nodes, whose children must be known.

use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::{Node, Shape};
use crate::{Tree, TreeError, op};
use firn_base::{PageId, TreeId};
use firn_buffer::ExclusiveGuard;
use firn_log::LogClass;

/// Children freed by one group at most, beside a chain of only children.
const FREED_MAX: usize = 32;

impl Tree {
    /// Frees all pages but the root and empties it; in several groups of bounded size, so that an
    /// interrupted one can be called again. Until then the tree refuses to be used.
    pub fn clear(&self, class: LogClass) -> Result<(), TreeError> {
        while self.clear_step(class)? {}
        Ok(())
    }

    /// One group of [`Tree::clear`]; answers whether there is more to do.
    pub fn clear_step(&self, class: LogClass) -> Result<bool, TreeError> {
        let root = self.pool().exclusive(self.root())?;
        let node = self.own_node(&root)?;
        if node.is_leaf() {
            if node.count() > 0 || node.is_condemned() {
                self.make_empty(Group::new(self.pool(), class), root)?;
            }
            return Ok(false);
        }
        if !node.is_condemned() {
            let mut group = Group::new(self.pool(), class);
            let draft = Draft::new(&root, |_| op::kind::CONDEMN);
            group.change(root, draft);
            group.commit()?;
            return Ok(true);
        }
        self.free_some(root, class)
    }

    /// The page as a node of this tree, condemned or not.
    fn own_node<'n>(&self, guard: &'n ExclusiveGuard<'_>) -> Result<Node<'n>, TreeError> {
        let node = Node::new(guard).map_err(|error| TreeError::damaged(guard.page(), error))?;
        match node.tree() == self.id() {
            true => Ok(node),
            false => Err(TreeError::foreign(self.id(), guard.page(), node.tree())),
        }
    }

    /// Frees up to [`FREED_MAX`] of the rightmost nodes. Holds the path to them exclusively.
    fn free_some<'p>(&'p self, root: ExclusiveGuard<'p>, class: LogClass) -> Result<bool, TreeError> {
        let mut path = vec![root];
        loop {
            let parent = path.last().expect("the root at least");
            let node = self.own_node(parent)?;
            if node.level() == 1 {
                break;
            }
            let child = last_child(parent, &node)?;
            let guard = self.pool().exclusive(child)?;
            let child_level = self.own_node(&guard)?.level();
            if child_level + 1 != node.level() {
                return Err(TreeError::damaged(child, LEVEL_SKIPPED));
            }
            path.push(guard);
        }
        let bottom = path.last().expect("the root at least");
        let node = self.own_node(bottom)?;
        let keep = node.count().saturating_sub(FREED_MAX);
        let mut leaves = Vec::with_capacity(node.count() - keep + 1);
        if node.count() == 0 {
            leaves.push(last_child(bottom, &node)?);
        }
        for index in keep + 1..=node.count() {
            leaves.push(node.child(index).map_err(|error| TreeError::damaged(bottom.page(), error))?);
        }
        let mut group = Group::new(self.pool(), class);
        if node.count() > 0 {
            let high = node.high().map(<[u8]>::to_vec);
            self.free_pages(&mut group, &leaves)?;
            let guard = path.pop().expect("the root at least");
            let draft = Draft::new(&guard, |body| op::trim(body, keep, high.as_deref()));
            group.change(guard, draft);
            group.commit()?;
            return Ok(true);
        }
        // The last leaf of its parent goes together with the parent, and so on up.
        self.free_pages(&mut group, &leaves)?;
        while let Some(guard) = path.pop() {
            let count = self.own_node(&guard)?.count();
            if count > 0 {
                let draft = Draft::new(&guard, |body| op::remove_child(body, count - 1));
                group.change(guard, draft);
                group.commit()?;
                return Ok(true);
            }
            if path.is_empty() {
                self.make_empty(group, guard)?;
                return Ok(false);
            }
            group.free(guard);
        }
        unreachable!("the root ends the loop")
    }

    /// Adds pages to free, latching those in frames, so that no frame outlives its page.
    fn free_pages<'p>(&'p self, group: &mut Group<'p>, pages: &[PageId]) -> Result<(), TreeError> {
        for &page in pages {
            match self.pool().exclusive_if_resident(page) {
                Some(guard) => group.free(guard),
                None => group.free_absent(page),
            }
        }
        Ok(())
    }

    fn make_empty<'p>(&'p self, mut group: Group<'p>, root: ExclusiveGuard<'p>) -> Result<(), TreeError> {
        let shape = empty_root(self.id());
        let draft = Draft::new(&root, |body| op::format(body, &shape, &EntryList::default()));
        group.change(root, draft);
        group.commit().map(drop)
    }

    /// Frees the root of a cleared tree: the tree is gone. The group's page record carries `attachment`.
    pub fn drop_root(self, class: LogClass, attachment: &[u8]) -> Result<(), TreeError> {
        let root = self.pool().exclusive(self.root())?;
        let node = self.own_node(&root)?;
        if !node.is_leaf() || node.count() > 0 {
            return Err(TreeError::new(
                crate::TreeErrorKind::BadArgument,
                format!("{:?} holds entries: clear it before its root is dropped", self.id()),
            ));
        }
        let mut group = Group::new(self.pool(), class);
        let draft = Draft::with(&root, attachment, |_| op::kind::DROP);
        group.change(root, draft);
        group.free_changed(self.root());
        group.commit().map(drop)
    }
}

const LEVEL_SKIPPED: firn_base::codec::Malformed =
    firn_base::codec::Malformed { what: "a node that is not one level below its parent" };

fn last_child(guard: &ExclusiveGuard<'_>, node: &Node<'_>) -> Result<PageId, TreeError> {
    node.child(node.count()).map_err(|error| TreeError::damaged(guard.page(), error))
}

/// What the root of an empty tree is.
pub(crate) fn empty_root(tree: TreeId) -> Shape<'static> {
    Shape { tree, level: 0, condemned: false, low: &[], high: None, first_child: 0 }
}
