//! Clearing a tree and freeing its pages.
//!
//! A large tree is cleared in many atomic groups, so that none outgrows the log. The first marks
//! the root *condemned*: from then on the tree returns errors from everything but `clear` and
//! `drop_root`, so no reader sees it half empty, and fences need not be kept. Each further group
//! frees some children from the right end of the tree and removes them from their parent; the last
//! makes the root an empty leaf again. After a crash the mark is still there and `clear` continues
//! where it was.
//!
//! Pages below are not read to be freed, except inner nodes, whose children must be known.
//!
//! Damage: an inner node that cannot be read hides its children. [`Tree::clear_step`] returns the
//! error; [`Tree::clear_step_past_damage`] frees that node unread, removes it from its parent and
//! continues. What lies below stays allocated, belongs to no tree, and is counted as leaked by a
//! check: only a scan of every page of the store could find it. A page that can be read and turns
//! out to be another tree's is never freed.

use crate::error::{TreeError, TreeErrorKind};
use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::{Node, Shape};
use crate::op;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_buffer::{ExclusiveGuard, InMemory};
use firndb_log::{Kind, LogClass};

/// Children freed by one group at most, beside a chain of only children.
const FREED_MAX: usize = 32;

/// How much one group of clearing attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Several pages; damage is an error.
    Usual,
    /// One page: damaged pages are distinguished from sound ones, and freed unread.
    OnePage,
    /// One page, which is removed from the tree and not freed: the page map knows nothing of it, or
    /// cannot be read.
    Forget,
}

/// What is to be freed next.
enum Rightmost {
    /// An inner node, and the level that it must have.
    Inner(PageId, u8),
    /// Leaves; the first entries of their parent that are kept with its high fence, or none if the
    /// parent is freed, too.
    Leaves { pages: Vec<PageId>, keep: Option<(usize, Option<Vec<u8>>)> },
    /// The last child of its parent, which is damaged; none if it is not to be freed.
    Unread(Option<PageId>),
}

impl Tree {
    /// Frees all pages but the root and empties it; in several groups of bounded size, so that an
    /// interrupted one can be called again. Until then the tree refuses to be used.
    pub fn clear(&self, class: LogClass) -> Result<(), TreeError> {
        while self.clear_step(class)? {}
        Ok(())
    }

    /// One group of [`Tree::clear`]; returns whether there is more to do.
    pub fn clear_step(&self, class: LogClass) -> Result<bool, TreeError> {
        self.clear_some(class, Reach::Usual, &mut None)
    }

    /// As [`Tree::clear_step`], for a tree of which a step has failed because of damage: frees what
    /// can be reached. `lost` gets the reason why pages stay allocated that could not be reached or
    /// freed.
    ///
    /// Errors: `Damaged` and `Unreadable` only if the root itself is so (see
    /// [`Tree::drop_damaged_root`]).
    pub fn clear_step_past_damage(
        &self,
        class: LogClass,
        lost: &mut dyn FnMut(&TreeError),
    ) -> Result<bool, TreeError> {
        let mut cause = None;
        for reach in [Reach::Usual, Reach::OnePage, Reach::Forget] {
            let mut damage = None;
            match self.clear_some(class, reach, &mut damage) {
                Ok(more) => {
                    // A page that is forgotten without having been read could not be freed before.
                    let not_freed = cause.filter(|_| reach == Reach::Forget);
                    damage.or(not_freed).iter().for_each(lost);
                    return Ok(more);
                }
                Err(error) if error.concerns_a_page() && reach != Reach::Forget => {
                    cause = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn clear_some(
        &self,
        class: LogClass,
        reach: Reach,
        damage: &mut Option<TreeError>,
    ) -> Result<bool, TreeError> {
        Stock::new(self.pool(), class).run(|stock| {
            *damage = None;
            self.try_clear_some(stock, reach, damage)
        })
    }

    fn try_clear_some<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        reach: Reach,
        damage: &mut Option<TreeError>,
    ) -> Result<bool, Stop> {
        let root = self.pool().exclusive(self.root())?;
        let node = self.own_node(&root)?;
        if node.is_leaf() {
            if node.count() > 0 || node.is_condemned() {
                self.make_empty(stock, Group::new(stock), root)?;
            }
            return Ok(false);
        }
        if !node.is_condemned() {
            let mut group = Group::new(stock);
            let draft = Draft::new(&root, |_| Kind::TREE_CONDEMN);
            group.change(root, draft);
            group.commit(stock)?;
            return Ok(true);
        }
        self.free_some(stock, root, reach, damage)
    }

    /// The page as a node of this tree, condemned or not.
    fn own_node<'n>(&self, guard: &'n ExclusiveGuard<'_>) -> Result<Node<'n>, TreeError> {
        let node = Node::new(guard).map_err(|error| TreeError::damaged(guard.page(), error))?;
        match node.tree() == self.id() {
            true => Ok(node),
            false => Err(TreeError::foreign(self.id(), guard.page(), node.tree())),
        }
    }

    /// Frees some of the rightmost nodes. Holds the path to them exclusively, and releases the
    /// nodes that do not change before the group is committed: an image of a freed page may be in
    /// flight to a device, and the commit waits for it. `damage` becomes the reason why pages were
    /// removed from the tree without being freed.
    fn free_some<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        root: ExclusiveGuard<'p>,
        reach: Reach,
        damage: &mut Option<TreeError>,
    ) -> Result<bool, Stop> {
        let mut path = vec![root];
        let rightmost = loop {
            let parent = path.last().expect("the root at least");
            match self.rightmost(parent, reach) {
                Ok(Rightmost::Inner(child, level)) => match self.inner_to_clear(stock, &path, child, level) {
                    Ok(guard) => path.push(guard),
                    Err((Stop::Failed(error), owned)) if error.concerns_a_page() && reach != Reach::Usual => {
                        *damage = Some(error);
                        break Rightmost::Unread(owned.then_some(child));
                    }
                    Err((stop, _)) => return Err(stop),
                },
                // A node of this tree by its head, whose entries make no sense.
                Err(error) if error.concerns_a_page() && reach != Reach::Usual && path.len() > 1 => {
                    *damage = Some(error);
                    break Rightmost::Unread(path.pop().map(|guard| guard.page()));
                }
                other => break other?,
            }
        };
        let mut group = Group::new(stock);
        let free = match &rightmost {
            Rightmost::Leaves { pages, .. } => &pages[..],
            Rightmost::Unread(page) => page.as_slice(),
            Rightmost::Inner(..) => unreachable!("the loop goes on below"),
        };
        if reach != Reach::Forget {
            if let Some(page) = free.iter().find(|page| is_on(&path, **page)) {
                return Err(TreeError::damaged(*page, OWN_DESCENDANT).into());
            }
            if let Some(page) = (1..free.len()).find(|&at| free[..at].contains(&free[at])) {
                return Err(TreeError::damaged(free[page], TWICE).into());
            }
            self.free_pages(&mut group, free)?;
        }
        if let Rightmost::Leaves { keep: Some((keep, high)), .. } = &rightmost {
            let guard = path.pop().expect("the root at least");
            let draft = Draft::new(&guard, |body| op::trim(body, *keep, high.as_deref()));
            group.change(guard, draft);
            drop(path);
            group.commit(stock)?;
            return Ok(true);
        }
        // The last child of its parent is freed together with the parent, and so on up.
        while let Some(guard) = path.pop() {
            let count = self.own_node(&guard)?.count();
            if count > 0 {
                let draft = Draft::new(&guard, |body| op::remove_child(body, count - 1));
                group.change(guard, draft);
                drop(path);
                group.commit(stock)?;
                return Ok(true);
            }
            if path.is_empty() {
                self.make_empty(stock, group, guard)?;
                return Ok(false);
            }
            group.free(guard);
        }
        unreachable!("the root ends the loop")
    }

    /// What hangs at the right end of an inner node.
    fn rightmost(&self, guard: &ExclusiveGuard<'_>, reach: Reach) -> Result<Rightmost, TreeError> {
        let node = self.own_node(guard)?;
        if node.level() > 1 {
            return Ok(Rightmost::Inner(last_child(guard, &node)?, node.level() - 1));
        }
        if node.count() == 0 {
            return Ok(Rightmost::Leaves { pages: vec![last_child(guard, &node)?], keep: None });
        }
        let keep = node.count().saturating_sub(if reach == Reach::Usual { FREED_MAX } else { 1 });
        let child = |index| node.child(index).map_err(|error| TreeError::damaged(guard.page(), error));
        let pages = (keep + 1..=node.count()).map(child).collect::<Result<_, _>>()?;
        Ok(Rightmost::Leaves { pages, keep: Some((keep, node.high().map(<[u8]>::to_vec))) })
    }

    /// An inner node on the way down. With an error comes whether the page is surely this tree's:
    /// its parent says so, and nothing that can be read says otherwise.
    fn inner_to_clear<'p>(
        &'p self,
        stock: &Stock<'p>,
        path: &[ExclusiveGuard<'_>],
        page: PageId,
        level: u8,
    ) -> Result<ExclusiveGuard<'p>, (Stop, bool)> {
        if is_on(path, page) {
            return Err((TreeError::damaged(page, OWN_DESCENDANT).into(), false));
        }
        let guard = stock.latch(page).map_err(|stop| (stop, true))?;
        let found = self.own_node(&guard).map_err(|error| (error.into(), false))?.level();
        match found == level {
            true => Ok(guard),
            false => Err((TreeError::damaged(page, LEVEL_SKIPPED).into(), false)),
        }
    }

    /// Adds pages to free, latching those in frames, so that no frame outlives its page.
    pub(crate) fn free_pages<'p>(&'p self, group: &mut Group<'p>, pages: &[PageId]) -> Result<(), Stop> {
        for &page in pages {
            match self.pool().exclusive_in_memory(page) {
                InMemory::Latched(guard) => group.free(guard),
                InMemory::Absent(kept_out) => group.free_absent(kept_out),
                InMemory::BeingRead => return Err(Stop::Lacks(Lack::Page(page))),
            }
        }
        Ok(())
    }

    fn make_empty<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        mut group: Group<'p>,
        root: ExclusiveGuard<'p>,
    ) -> Result<(), Stop> {
        let shape = Shape::empty_root(self.id());
        let draft = Draft::new(&root, |body| op::format(body, &shape, &EntryList::default()));
        group.change(root, draft);
        group.commit(stock)
    }

    /// Frees the root of a tree that is to be dropped and whose root cannot be read: the tree no
    /// longer exists, and what lies below the root stays allocated. Returns false, and does
    /// nothing, if the page can be read after all and is not a root of this tree.
    ///
    /// Errors: `Damaged` or `Unreadable` if the page cannot be freed.
    pub fn drop_damaged_root(&self, class: LogClass) -> Result<bool, TreeError> {
        Stock::new(self.pool(), class).run(|stock| self.try_drop_damaged_root(stock))
    }

    fn try_drop_damaged_root<'p>(&'p self, stock: &mut Stock<'p>) -> Result<bool, Stop> {
        if let Ok(root) = self.pool().exclusive(self.root())
            && Node::new(&root).is_ok_and(|node| node.tree() != self.id())
        {
            return Ok(false);
        }
        let mut group = Group::new(stock);
        self.free_pages(&mut group, &[self.root()])?;
        group.commit(stock).map(|()| true)
    }

    /// Frees the root of a cleared tree: the tree no longer exists. The group's page record carries
    /// `attachment`.
    pub fn drop_root(self, class: LogClass, attachment: &[u8]) -> Result<(), TreeError> {
        Stock::new(self.pool(), class).run(|stock| self.try_drop_root(stock, attachment))
    }

    fn try_drop_root<'p>(&'p self, stock: &mut Stock<'p>, attachment: &[u8]) -> Result<(), Stop> {
        let root = self.pool().exclusive(self.root())?;
        let node = self.own_node(&root)?;
        if !node.is_leaf() || node.count() > 0 {
            return Err(TreeError::new(
                TreeErrorKind::BadArgument,
                format!("{:?} holds entries: clear it before its root is dropped", self.id()),
            )
            .into());
        }
        let mut group = Group::new(stock);
        let draft = Draft::with(&root, attachment, |_| Kind::TREE_DROP_PAGE);
        group.change(root, draft);
        group.free_changed(self.root());
        group.commit(stock)
    }
}

const LEVEL_SKIPPED: firndb_base::codec::Malformed =
    firndb_base::codec::Malformed { what: "a node that is not one level below its parent" };

const OWN_DESCENDANT: firndb_base::codec::Malformed =
    firndb_base::codec::Malformed { what: "a node that is named by one of its descendants" };

const TWICE: firndb_base::codec::Malformed =
    firndb_base::codec::Malformed { what: "one child in two places" };

/// Whether the page is latched already: asking for it again would be a deadlock.
fn is_on(path: &[ExclusiveGuard<'_>], page: PageId) -> bool {
    path.iter().any(|guard| guard.page() == page)
}

fn last_child(guard: &ExclusiveGuard<'_>, node: &Node<'_>) -> Result<PageId, TreeError> {
    node.child(node.count()).map_err(|error| TreeError::damaged(guard.page(), error))
}
