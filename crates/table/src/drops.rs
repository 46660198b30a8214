//! Freeing the trees of dropped tables and indexes, in the background.
//!
//! A dropped tree is recorded in the catalog by the very transaction that takes its definition out, so a
//! crash forgets none. It may be cleared once nobody can touch it any more:
//! 1. no statement that began before the drop runs: the `Weak` of the tree is dead (see [`crate::state`]);
//! 2. of the transactions that had begun by then, none is left to roll back into it, and no snapshot of
//!    theirs is in use: a *fence* taken after 1 is past.
//!
//! Then, in this order: the tree is cleared (in groups; interrupted, it is cleared again), the catalog's
//! row is deleted, the root is freed. A crash between the last two loses one page; the other way round the
//! row would lead to a root that has become another tree's page.

use crate::catalog::Catalog;
use crate::catalog_rows;
use crate::{TableError, TableErrorKind};
use firn_base::sync::{Arc, Weak};
use firn_base::{PageId, Progress, TreeId, TxnId};
use firn_btree::Tree;
use firn_log::LogClass;
use firn_txn::TxnManager;

/// A dropped tree that is not freed yet.
pub(crate) struct PendingDrop {
    pub(crate) tree: TreeId,
    root: PageId,
    /// Dead once no statement can touch the tree.
    users: Weak<Tree>,
    /// Taken when `users` was found dead.
    fence: Option<TxnId>,
}

impl PendingDrop {
    /// Of a tree dropped just now.
    pub(crate) fn of(tree: &Arc<Tree>) -> PendingDrop {
        PendingDrop { tree: tree.id(), root: tree.root(), users: Arc::downgrade(tree), fence: None }
    }

    /// Of a tree found as dropped when the catalog was opened.
    pub(crate) fn found(tree: TreeId, root: PageId) -> PendingDrop {
        PendingDrop { tree, root, users: Weak::new(), fence: None }
    }

    pub(crate) fn open(&self, manager: &TxnManager) -> Tree {
        Tree::open(manager.pool().clone(), self.tree, self.root)
    }

    /// Whether nobody can touch the tree any more.
    fn is_free(&mut self, manager: &TxnManager) -> bool {
        if self.users.strong_count() > 0 {
            return false;
        }
        let fence = *self.fence.get_or_insert_with(|| manager.fence());
        manager.is_past(fence)
    }
}

impl Catalog {
    /// Frees one dropped tree, or a piece of a large value that was replaced or deleted, or drops one index
    /// whose build an earlier life of the database did not finish. Answers `Idle` if there is none that nobody
    /// needs: call again after a while. May be called from any thread, after recovery has rolled back what the
    /// crash interrupted; but not at the same time as `TxnManager::maintenance_step`, which may be about to
    /// take a ghost out of the very tree.
    pub fn drop_step(&self) -> Result<Progress, TableError> {
        if let Some((table, index)) = self.leftovers.lock().pop() {
            return self.abandon(table, index);
        }
        let Some(drop) = self.take_free_drop() else { return self.reap_step() };
        self.free(drop).map(|()| Progress::Worked)
    }

    /// How many dropped trees wait to be freed.
    #[must_use]
    pub fn pending_drops(&self) -> usize {
        self.drops.lock().len()
    }

    fn take_free_drop(&self) -> Option<PendingDrop> {
        let mut drops = self.drops.lock();
        let at = drops.iter_mut().position(|drop| drop.is_free(&self.manager))?;
        Some(drops.remove(at))
    }

    fn free(&self, drop: PendingDrop) -> Result<(), TableError> {
        let tree = drop.open(&self.manager);
        let erased = tree.clear(LogClass::Normal).map_err(TableError::from).and_then(|()| {
            let _writing = self.writing.lock();
            self.commit(|txn| catalog_rows::erase_dropped(txn, &self.system, drop.tree))
        });
        if let Err(error) = erased {
            self.drops.lock().push(drop);
            return Err(error);
        }
        self.manager.forget_tree(drop.tree);
        // If this fails the root page is lost, as after a crash here; the row is gone, so it is not tried again.
        Ok(tree.drop_root(LogClass::Normal, &[])?)
    }

    fn abandon(&self, table: TreeId, index: TreeId) -> Result<Progress, TableError> {
        let found = self.tables.read().values().find(|other| other.id() == table).cloned();
        // A table that was dropped meanwhile has taken its indexes with it.
        let Some(found) = found else { return Ok(Progress::Worked) };
        let _change = found.shared.definition_change.lock();
        match self.take_index_out(&found, index) {
            Ok(()) => Ok(Progress::Worked),
            Err(error) if error.kind == TableErrorKind::Dropped => Ok(Progress::Worked),
            Err(error) => {
                self.leftovers.lock().push((table, index));
                Err(error)
            }
        }
    }
}
