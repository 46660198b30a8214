//! Walking every invariant of a tree.
//!
//! Goes from leaf to leaf by key, each time down from the root latch by latch, so it can run beside
//! other work: no latch is held longer than a descent, and what a child must be, its fences, its
//! level, its tree, is compared with its parent while both are latched. A page that hangs in two
//! places shows itself there: it has one pair of fences and the places ask for different ones. What
//! a concurrent structure change moves behind the walk's back may be counted twice or not at all,
//! but is not reported as damage.

use crate::descent::{Restarts, child_at};
use crate::error::{TreeError, TreeErrorKind};
use crate::node::{Node, validate::validate};
use crate::tree::Tree;
use firndb_base::{Lsn, PageId};
use firndb_buffer::{PageUse, SharedGuard};
use std::collections::BTreeSet;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct TreeReport {
    /// Levels, leaves included.
    pub height: u32,
    pub inner_pages: u64,
    pub leaf_pages: u64,
    /// Entries in leaves.
    pub entries: u64,
    /// Bytes of keys and values in leaves.
    pub entry_bytes: u64,
    /// Sentences, one for each broken invariant, with page and slot; at most a thousand.
    pub damage: Vec<String>,
    /// Broken invariants in all.
    pub faults: u64,
    /// Whether it was being cleared, which is in `damage` too, but is none in a tree that is to be
    /// freed.
    pub being_cleared: bool,
    /// Every page of the tree; empty from [`Tree::check_with`], which shows them one by one.
    pub pages: Vec<PageId>,
}

/// Most sentences in a report.
const DAMAGE_MAX: usize = 1000;

impl TreeReport {
    fn fault(&mut self, sentence: String) {
        self.faults += 1;
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(sentence);
        }
    }
}

/// What a node must be, by its parent.
#[derive(Clone, Debug)]
struct Expected {
    level: Option<u8>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// The walk's memory: for each level the node last seen there, so that it is not counted or walked
/// twice.
struct Walk<'t> {
    tree: &'t Tree,
    report: TreeReport,
    seen: Vec<(PageId, Lsn)>,
    visit: &'t mut dyn FnMut(PageId),
}

impl Tree {
    /// Walks every invariant of the tree. Fails only where the walk itself cannot go on (a device
    /// that failed, no frame); what is wrong with the tree is in the report.
    pub fn check(&self) -> Result<TreeReport, TreeError> {
        let mut pages = Vec::new();
        let mut report = self.check_with(&mut |page| pages.push(page))?;
        pages.sort_unstable();
        pages.dedup();
        report.pages = pages;
        Ok(report)
    }

    /// As [`Tree::check`], in memory that does not depend on the tree's size: shows every page to
    /// `visit`, latched, so that it is the tree's at that moment. A page that others change
    /// meanwhile may be shown twice.
    pub fn check_with(&self, visit: &mut dyn FnMut(PageId)) -> Result<TreeReport, TreeError> {
        let mut walk = Walk { tree: self, report: TreeReport::default(), seen: Vec::new(), visit };
        let mut next = Some(Vec::new());
        while let Some(key) = next {
            next = walk.descend(&key)?;
            if next.as_ref().is_some_and(|after| *after <= key) {
                walk.report.fault(format!("{:?}: fences form a circle", self.id()));
                break;
            }
        }
        Ok(walk.report)
    }

    /// Shows every page to `visit` without reading leaves, which may have no content yet, or are to
    /// be freed; a child while its parent is latched. What others change meanwhile may be shown
    /// twice or not at all. Pages below one that cannot be read are not shown.
    pub fn visit_pages(&self, visit: &mut dyn FnMut(PageId)) {
        visit(self.root());
        let (mut inner, mut seen) = (vec![(self.root(), None)], BTreeSet::new());
        while let Some((page, level)) = inner.pop() {
            if !seen.insert(page) {
                continue;
            }
            let Ok(guard) = self.pool().shared(page) else { continue };
            let is_expected = |node: &Node<'_>| {
                node.tree() == self.id() && !node.is_leaf() && level.is_none_or(|level| node.level() == level)
            };
            let Some(node) = Node::new(&guard).ok().filter(is_expected) else { continue };
            for child in (0..=node.count()).filter_map(|at| child_at(page, &node, at).ok()) {
                visit(child);
                if node.level() > 1 {
                    inner.push((child, Some(node.level() - 1)));
                }
            }
        }
    }
}

impl Walk<'_> {
    /// Walks from the root to the leaf of `key`; returns the least key after that leaf.
    fn descend(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
        let mut restarts = Restarts::default();
        'root: loop {
            let mut expected = Expected { level: None, low: Vec::new(), high: None };
            let mut page = self.tree.root();
            let mut parent: Option<SharedGuard<'_>> = None;
            let tree = self.tree;
            for depth in 0.. {
                // The walk passes every leaf: none is worth another page's place.
                let page_use = if expected.level == Some(0) { PageUse::Once } else { PageUse::Working };
                let guard = match parent.take() {
                    None => tree.pool().shared(page).map(Some).map_err(TreeError::from),
                    Some(parent) => tree.child_shared(parent, page, page_use, &mut restarts),
                };
                let guard = match guard {
                    Ok(Some(guard)) => guard,
                    Ok(None) => continue 'root,
                    Err(error) => {
                        self.unreadable(page, error)?;
                        return Ok(expected.high);
                    }
                };
                let Some(node) = self.visit(&guard, depth, &expected) else {
                    return Ok(expected.high);
                };
                if node.is_leaf() {
                    return Ok(expected.high);
                }
                match child_of(&node, key, &expected) {
                    Ok((child, below)) if child == page => {
                        self.report.fault(format!("{page:?}: a node that is its own child"));
                        return Ok(below.high);
                    }
                    Ok((child, below)) => (page, expected) = (child, below),
                    Err(error) => {
                        self.report.fault(format!("{page:?}: {}", error.what));
                        return Ok(expected.high);
                    }
                }
                parent = Some(guard);
            }
            unreachable!("levels end")
        }
    }

    fn unreadable(&mut self, page: PageId, error: TreeError) -> Result<(), TreeError> {
        if !error.concerns_a_page() {
            return Err(error);
        }
        self.report.fault(format!("{page:?} cannot be read: {}", error.message));
        Ok(())
    }

    /// Checks one node and counts it; `None` if there is no going on below it.
    fn visit<'g>(
        &mut self,
        guard: &'g SharedGuard<'_>,
        depth: usize,
        expected: &Expected,
    ) -> Option<Node<'g>> {
        let page = guard.page();
        let mark = (page, guard.version());
        let known = self.seen.get(depth) == Some(&mark);
        let node = match Node::new(guard) {
            Ok(node) => node,
            Err(error) => {
                self.report.fault(format!("{page:?}: {}", error.what));
                return None;
            }
        };
        if let Some(wrong) = self.misfit(&node, expected) {
            self.report.fault(format!("{page:?}: {wrong}"));
            return None;
        }
        if known {
            return Some(node);
        }
        let counted = self.seen.get(depth).is_some_and(|seen| seen.0 == page);
        self.seen.truncate(depth);
        self.seen.push(mark);
        if let Err(error) = validate(guard) {
            self.report.fault(format!("{page:?}: {}", error.what));
        }
        if !counted {
            self.count(&node, page);
        }
        Some(node)
    }

    /// What of a node contradicts its parent, if anything.
    fn misfit(&mut self, node: &Node<'_>, expected: &Expected) -> Option<String> {
        if node.tree() != self.tree.id() {
            return Some(format!("belongs to {:?}, not to {:?}", node.tree(), self.tree.id()));
        }
        if expected.level.is_some_and(|level| level != node.level()) {
            return Some(format!("is at level {}, where its parent has {:?}", node.level(), expected.level));
        }
        if node.low() != expected.low || node.high() != expected.high.as_deref() {
            return Some("its fences are not the separators in its parent".to_owned());
        }
        if node.is_condemned() {
            self.report.being_cleared = true;
            return Some("the tree was being cleared and must be cleared again".to_owned());
        }
        None
    }

    fn count(&mut self, node: &Node<'_>, page: PageId) {
        (self.visit)(page);
        let report = &mut self.report;
        report.height = report.height.max(u32::from(node.level()) + 1);
        if !node.is_leaf() {
            report.inner_pages += 1;
            return;
        }
        report.leaf_pages += 1;
        report.entries += node.count() as u64;
        let prefix_len = node.prefix().len();
        report.entry_bytes +=
            (0..node.count()).map(|at| (prefix_len + node.slot(at).len()) as u64).sum::<u64>();
    }
}

/// The child of `node` that holds `key`, and what it must be.
fn child_of(
    node: &Node<'_>,
    key: &[u8],
    expected: &Expected,
) -> Result<(PageId, Expected), firndb_base::codec::Malformed> {
    let index = node.child_index(key)?;
    let separator = |at: usize| -> Result<Vec<u8>, firndb_base::codec::Malformed> {
        let mut key = Vec::new();
        node.full_key(at, &mut key)?;
        Ok(key)
    };
    let below = Expected {
        level: Some(node.level() - 1),
        low: if index == 0 { expected.low.clone() } else { separator(index - 1)? },
        high: if index == node.count() { expected.high.clone() } else { Some(separator(index)?) },
    };
    Ok((node.child(index)?, below))
}

impl TreeReport {
    /// An error that names the first damage, if any was found.
    pub fn into_result(self) -> Result<TreeReport, TreeError> {
        match self.damage.first() {
            None => Ok(self),
            Some(first) => {
                let more = self.faults - 1;
                Err(TreeError::new(TreeErrorKind::Damaged, format!("{first} (and {more} more)")))
            }
        }
    }
}
