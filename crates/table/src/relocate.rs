//! Which trees have nodes that can get lower page numbers, and which page numbers must stay: for
//! compaction (`firndb_btree`'s `relocate.rs` says who names which page).
//!
//! A tree that is dropped meanwhile is not cleared as long as its `Arc` is held
//! ([`crate::drops`]), so each is held only while its nodes are moved.

use crate::catalog::Catalog;
use crate::error::TableError;
use firndb_base::PageId;
use firndb_base::sync::{Arc, Weak};
use firndb_btree::Tree;

/// A tree of the catalog whose nodes may be moved.
pub struct RelocatableTree {
    /// What it is, for people.
    pub what: String,
    tree: Held,
}

enum Held {
    /// It is never dropped.
    Lasting(Arc<Tree>),
    Droppable(Weak<Tree>),
}

impl RelocatableTree {
    fn lasting(what: &str, tree: &Tree) -> RelocatableTree {
        RelocatableTree { what: what.to_owned(), tree: Held::Lasting(Arc::new(tree.clone())) }
    }

    fn of(what: String, tree: &Arc<Tree>) -> RelocatableTree {
        RelocatableTree { what, tree: Held::Droppable(Arc::downgrade(tree)) }
    }

    /// The tree, unless it was dropped and nothing uses it. It is not cleared while this is held.
    #[must_use]
    pub fn tree(&self) -> Option<Arc<Tree>> {
        match &self.tree {
            Held::Lasting(tree) => Some(tree.clone()),
            Held::Droppable(tree) => tree.upgrade(),
        }
    }
}

impl Catalog {
    /// Every tree whose nodes can be moved: not those being loaded, whose leaves may have no
    /// content yet, nor dropped ones, which are freed.
    #[must_use]
    pub fn relocatable_trees(&self) -> Vec<RelocatableTree> {
        let mut trees = vec![
            RelocatableTree::lasting("the catalog", &self.system),
            RelocatableTree::lasting("before-images", self.manager.undo_tree()),
        ];
        if let Some(marks) = self.superseded.tree() {
            trees.push(RelocatableTree::lasting("the marks of superseded pages", marks));
        }
        for (name, table) in &*self.tables.read() {
            let Ok(state) = table.shared.state() else { continue };
            trees.push(RelocatableTree::of(format!("table {name:?}"), &state.tree));
            if let Some(large) = &state.large {
                trees.push(RelocatableTree::of(format!("large values of table {name:?}"), large));
            }
            for index in state.indexes.iter().filter(|index| !index.is_being_loaded()) {
                let what = format!("index {:?} of table {name:?}", index.definition.spec.name);
                trees.push(RelocatableTree::of(what, &index.tree));
            }
        }
        for (name, file) in &*self.page_files.read() {
            if let Ok(tree) = file.tree() {
                trees.push(RelocatableTree::of(format!("page file {name:?}"), &tree));
            }
        }
        trees
    }

    /// Shows page numbers from `limit` on that compaction leaves as they are, and knows without
    /// reading more than the rows that name pages: roots, and pages of page files and large values.
    /// Where such rows cannot be read, those that they name are not shown.
    pub fn immovable_pages(&self, limit: PageId, each: &mut dyn FnMut(PageId)) -> Result<(), TableError> {
        let mut show = |page: PageId| {
            if page >= limit {
                each(page);
            }
        };
        show(self.manager.undo_tree().root());
        for (_, tree) in self.trees().into_iter().chain(self.unread_trees()) {
            show(tree.root());
        }
        for owner in &self.page_owners() {
            match owner.pages(&mut show) {
                Err(error) if error.is_damage() => {}
                shown => shown?,
            }
        }
        Ok(())
    }
}
