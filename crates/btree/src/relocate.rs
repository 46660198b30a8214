//! Moving nodes to lower page numbers, so that the end of the store's file can be cut off.
//!
//! A number is allocated for as long as some page has it, and a file is as long as its highest
//! number asks for (`tier/src/store/shorten.rs`). Who names a page decides whether its number can
//! change:
//!
//! * an inner node or leaf, by its parent's child pointer and nothing else (nodes know no siblings,
//!   and what looks for entries keeps keys): moved, here;
//! * the root of a tree, by rows of the catalog, the superblock, every handle of the tree: stays;
//! * a leaf of a tree being loaded, by its parent, and the thread that will write its content:
//!   stays;
//! * the content of a page file, by one row, and readers that have read the row and latch nothing:
//!   stays;
//! * a page of a large value, by one row, which its readers do not see as a version: stays;
//! * a page of a dropped tree, or a superseded one, by what frees it;
//! * a page that damage has cut off, by nothing: stays.
//!
//! Delta pages, map pages and bitmap pages have places and no numbers.
//!
//! A move is one atomic group, with parent and node latched exclusively: a low number allocated,
//! *format* of its page with the node's entries, *set child* in the parent, the old number freed.
//! So a crash finds the tree before or after it, as with splits and merges (`group.rs`), and the
//! old page is freed as that of a merge is:
//! * a descent comes from the parent, whose version says that it has changed: coupled, or asked
//!   again after a read (`descent.rs`), or as the root that a copy was made of (`roots.rs`);
//! * a hint names a frame and what it held; the frame is forgotten under the node's latch, so the
//!   hint leads nowhere (`hint.rs`);
//! * what was to be read ahead, is queued to be cleaned or is in the flash cache is forgotten by
//!   the number, as for every page that is freed.
//!
//! Versions of rows, lists of ghosts and unmerged nodes, positions of scans: all go by key.

use crate::descent::{Located, Target, child_at};
use crate::error::TreeError;
use crate::group::{Draft, Group};
use crate::node::pack::EntryList;
use crate::node::validate::validate;
use crate::node::{Node, prefix_between};
use crate::op;
use crate::scan::Position;
use crate::stock::{Lack, Stock, Stop};
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::PageUse;
use firndb_log::LogClass;

/// What [`Tree::relocate_children`] did.
#[derive(Debug, Default)]
pub struct Relocated {
    /// Nodes that got another number.
    pub moved: u64,
    /// Why nodes stay that could not be read, or be trusted.
    pub left: Vec<TreeError>,
    /// Where the next node of the parents' level begins; `None` at its end.
    pub next: Option<Vec<u8>>,
    /// No number below the limit is free: what was not moved stays.
    pub is_short: bool,
}

/// What became of one node.
enum Tried {
    Moved,
    /// Its number is low enough by now, or it is the root.
    Stays,
    NoLowNumber,
}

impl Tree {
    /// Moves nodes of `level` to lower page numbers: those from `limit` on, at most `most`, among
    /// the children of one node, from `key` on. `None` if no node of that level has a parent.
    ///
    /// A node that is damaged stays where it is, and is reported; so are those below a parent
    /// that cannot be read. Other errors: those of the log, of space, and `Condemned`. What was
    /// moved before stays so.
    pub fn relocate_children(
        &self,
        level: u8,
        key: &[u8],
        limit: PageId,
        most: usize,
        class: LogClass,
    ) -> Result<Option<Relocated>, TreeError> {
        let mut done = Relocated::default();
        let found = match self.children_from(level, key, limit, most) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) if error.concerns_a_page() => {
                let next = self.past_child(Target::Key(key), level.saturating_add(2))?;
                done.left.push(error);
                done.next = next.and_then(|next| match next {
                    Position::At(next) | Position::Past(next) => Some(next),
                    Position::Start => None,
                });
                return Ok(Some(done));
            }
            Err(error) => return Err(error),
        };
        let pages: Vec<PageId> = found.nodes.iter().map(|(page, _)| *page).collect();
        self.pool().bring_in(&pages, PageUse::Once);
        for (_, low) in &found.nodes {
            let stock = Stock::new(self.pool(), class).expecting(Lack::NewPages(1));
            match stock.run(|stock| self.try_relocate(stock, low, level, limit)) {
                Ok(Tried::Moved) => done.moved += 1,
                Ok(Tried::Stays) => {}
                Ok(Tried::NoLowNumber) => {
                    done.is_short = true;
                    break;
                }
                Err(error) if error.concerns_a_page() => done.left.push(error),
                Err(error) => return Err(error),
            }
        }
        done.next = found.next;
        Ok(Some(done))
    }

    /// The children from `limit` on of the node that holds `key`, from that key on.
    fn children_from(
        &self,
        level: u8,
        key: &[u8],
        limit: PageId,
        most: usize,
    ) -> Result<Option<Children>, TreeError> {
        let Some(parent) = self.inner_shared(Target::Key(key), level + 1)? else { return Ok(None) };
        let page = parent.page();
        let node = self.node(page, &parent, Some(level + 1))?;
        let first = Target::Key(key).index_in(page, &node)?;
        let mut nodes = Vec::new();
        for index in first..=node.count() {
            let child = child_at(page, &node, index)?;
            if child < limit {
                continue;
            }
            let low = low_of(&node, index).map_err(|error| TreeError::damaged(page, error))?;
            if nodes.len() == most {
                return Ok(Some(Children { nodes, next: Some(low) }));
            }
            nodes.push((child, low));
        }
        Ok(Some(Children { nodes, next: node.high().map(<[u8]>::to_vec) }))
    }

    fn try_relocate<'p>(
        &'p self,
        stock: &mut Stock<'p>,
        key: &[u8],
        level: u8,
        limit: PageId,
    ) -> Result<Tried, Stop> {
        let Located::Child(parent, index) = self.locate(Target::Key(key), level)? else {
            return Ok(Tried::Stays);
        };
        let parent_node = self.node(parent.page(), &parent, Some(level + 1))?;
        let old = child_at(parent.page(), &parent_node, index)?;
        if old < limit {
            return Ok(Tried::Stays);
        }
        let guard = stock.latch(old)?;
        let node = self.node(old, &guard, Some(level))?;
        let damaged = |error| TreeError::damaged(old, error);
        // What is not sound is not made into a page that seems to be.
        validate(&guard).map_err(damaged)?;
        if low_of(&parent_node, index).map_err(damaged)? != node.low() {
            return Err(damaged(Malformed { what: "a low fence that is not what its parent says" }).into());
        }
        let shape = node.shape();
        let prefix_len = prefix_between(shape.low, shape.high);
        let list = EntryList::of(&node, 0..node.count(), prefix_len).map_err(damaged)?;
        let new = stock.take()?;
        if new.page() >= limit {
            return Ok(Tried::NoLowNumber);
        }
        let mut group = Group::new(stock);
        let new_page = new.page();
        let new_draft = new.draft(&[], |body| op::format(body, &shape, &list));
        let parent_draft = Draft::new(&parent, |body| op::set_child(body, index, new_page));
        group.fill(new, new_draft);
        group.change(parent, parent_draft);
        group.free(guard);
        group.commit(stock)?;
        Ok(Tried::Moved)
    }
}

/// Children to be moved.
struct Children {
    /// Their pages, and where they begin.
    nodes: Vec<(PageId, Vec<u8>)>,
    /// Where the next call begins.
    next: Option<Vec<u8>>,
}

/// Where child `index` of a node begins.
fn low_of(node: &Node<'_>, index: usize) -> Result<Vec<u8>, Malformed> {
    let mut low = Vec::new();
    match index.checked_sub(1) {
        None => low.extend_from_slice(node.low()),
        Some(slot) => node.full_key(slot, &mut low)?,
    }
    Ok(low)
}
