//! Freeing the trees of dropped tables and indexes, in the background.
//!
//! A dropped tree is recorded in the catalog by the very transaction that removes its definition,
//! so a crash forgets none. It may be cleared once no thread can touch it any more:
//! 1. no statement that began before the drop runs: the `Weak` of the tree is dead (see
//!    [`crate::state`]);
//! 2. of the transactions that had begun by then, none is left to roll back into it, and no
//!    snapshot of theirs is in use: a *fence* taken after 1 is past.
//!
//! Then, in this order: of a page file, the pages that its rows name are freed, those of a leaf
//! with its rows by one group; the tree is cleared (one group of the log a step, so that other
//! background work and checkpoints get their turns; interrupted, it is cleared again), the
//! catalog's row is deleted, the root is freed. A crash between the last two loses one page; the
//! other way round the row would lead to a root that has become another tree's page.
//!
//! A full log or store delays a drop: the step returns the error, and the same step is taken again
//! later.
//!
//! Damage: what was read may be wrong for a moment only, so a step that meets damage is tried a few
//! times at once; one that meets a page which the device cannot read at growing intervals, since a
//! device may be away for a moment ([`Attempts`]). After that the page is freed unread and what
//! lies below it is abandoned: it stays allocated, is reported through `TxnManager::set_aside`, and
//! is counted as leaked by a check. The row of the dropped tree is removed all the same. If it
//! stayed, each opening would read the same damage again, with the same result, and after a damaged
//! root its page number could never be used again; nothing is kept for it to find, since the drop
//! is committed and the abandoned pages cannot be distinguished from others without reading the
//! whole store. After any other error the row stays, the drop is set aside and the next opening
//! tries it again.

use crate::attempts::Attempts;
use crate::catalog::Catalog;
use crate::catalog_rows::{self, TreeRow};
use crate::error::{TableError, TableErrorKind};
use crate::naming::Naming;
use firndb_base::sync::{Arc, Weak};
use firndb_base::{PageId, Progress, TreeId, TxnId};
use firndb_btree::{Judgement, Position, SweptNames, Tree, TreeErrorKind};
use firndb_log::LogClass;
use firndb_txn::{TxnError, TxnErrorKind, TxnManager};

/// A dropped tree that is not freed yet.
pub(crate) struct PendingDrop {
    pub(crate) tree: TreeId,
    root: PageId,
    /// Pages that its rows name are freed before it.
    pub(crate) naming: Naming,
    /// Up to where they are freed.
    emptied: Position,
    /// What it was, for people.
    what: String,
    /// Dead once no statement can touch the tree.
    users: Weak<Tree>,
    /// Taken when `users` was found dead.
    fence: Option<TxnId>,
    attempts: Attempts,
    stage: Stage,
}

/// How far a drop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Statements and transactions from before the drop may need the tree.
    Waiting,
    /// Pages that its rows name are freed, and the rows removed.
    Emptying,
    Clearing,
    /// The root is all that is left, and an empty leaf.
    Cleared,
    /// The root is damaged: what lies below it is given up.
    RootDamaged,
    /// The catalog's row is deleted; the root is freed next.
    Forgotten {
        damaged: bool,
    },
    /// Not tried again before the next opening.
    SetAside,
}

impl PendingDrop {
    /// Of a tree dropped just now, which was `what`.
    pub(crate) fn of(tree: &Arc<Tree>, naming: Naming, what: String) -> PendingDrop {
        let row = TreeRow { tree: tree.id(), root: tree.root(), naming };
        PendingDrop { users: Arc::downgrade(tree), what, ..PendingDrop::found(row) }
    }

    /// Of a tree found as dropped when the catalog was opened.
    pub(crate) fn found(TreeRow { tree, root, naming }: TreeRow) -> PendingDrop {
        PendingDrop {
            tree,
            root,
            naming,
            emptied: Position::Start,
            what: format!("{tree}"),
            users: Weak::new(),
            fence: None,
            attempts: Attempts::default(),
            stage: Stage::Waiting,
        }
    }

    fn row(&self) -> TreeRow {
        TreeRow { tree: self.tree, root: self.root, naming: self.naming }
    }

    fn open(&self, manager: &TxnManager) -> Tree {
        self.row().open(manager)
    }

    /// Whether it is to be freed, and no statement uses it.
    fn is_unused(&self) -> bool {
        self.stage != Stage::SetAside && self.users.strong_count() == 0
    }

    /// Whether a step can be taken: no thread can touch the tree any more.
    fn is_free(&mut self, manager: &TxnManager) -> bool {
        if !self.is_unused() || !self.attempts.are_due() {
            return false;
        }
        let fence = *self.fence.get_or_insert_with(|| manager.fence());
        manager.is_past(fence)
    }
}

/// Dropped trees that are not freed yet.
pub(crate) struct Drops {
    pub(crate) waiting: Vec<PendingDrop>,
    /// The one of which a step is freeing some: listed until it is freed.
    being_freed: Option<TreeRow>,
}

impl Drops {
    pub(crate) fn found(waiting: Vec<PendingDrop>) -> Drops {
        Drops { waiting, being_freed: None }
    }

    /// All of them.
    pub(crate) fn rows(&self) -> impl Iterator<Item = TreeRow> {
        self.waiting.iter().map(PendingDrop::row).chain(self.being_freed)
    }

    /// Puts back the one of which a step has freed some.
    fn put_back(&mut self, at: usize, drop: PendingDrop) {
        self.being_freed = None;
        self.waiting.insert(at, drop);
    }
}

impl Catalog {
    /// Takes one step of freeing a dropped tree, or frees a piece of a large value that was
    /// replaced or deleted, or drops one index whose build an earlier epoch of the database did not
    /// finish. Returns `Idle` if none of them can be freed yet: call again after a while. May be
    /// called from any thread, after recovery has rolled back what the crash interrupted; but not
    /// at the same time as `TxnManager::maintenance_step`, which may be about to remove a ghost
    /// from the very tree.
    ///
    /// Errors: those that pass: a full log, store or buffer. Damage and devices that fail are
    /// reported through `TxnManager::set_aside`, unless the database can do no further work.
    pub fn drop_step(&self) -> Result<Progress, TableError> {
        // Apart: what fails is put back, under the same lock.
        let leftover = self.leftovers.lock().pop();
        if let Some((table, index)) = leftover {
            return self.abandon(table, index);
        }
        let Some(mut drop) = self.take_free_drop() else { return self.reap_step() };
        match self.free_some(&mut drop) {
            Ok(true) => self.drops.lock().being_freed = None,
            Ok(false) => {
                drop.attempts = Attempts::default();
                self.drops.lock().put_back(0, drop);
            }
            Err(error) if !self.is_to_be_set_aside(&error) => {
                self.drops.lock().put_back(0, drop);
                return Err(error);
            }
            Err(error) => {
                if !drop.attempts.failed(&error) {
                    self.set_aside(&mut drop, &error);
                }
                // Others come first, and time passes.
                let mut drops = self.drops.lock();
                let last = drops.waiting.len();
                drops.put_back(last, drop);
            }
        }
        // A large tree takes long, and large values are to be freed meanwhile.
        self.reap_step().map(|_| Progress::Worked)
    }

    /// Whether a step is freeing some of this tree, if not all: what a check meets there may be
    /// what the step does.
    #[must_use]
    pub fn is_being_freed(&self, tree: TreeId) -> bool {
        self.drops.lock().being_freed.is_some_and(|row| row.tree == tree)
    }

    /// How many dropped trees wait to be freed.
    #[must_use]
    pub fn pending_drops(&self) -> usize {
        self.drops.lock().rows().count()
    }

    /// Whether a dropped tree is to be freed that no statement uses.
    #[must_use]
    pub fn has_drops_to_free(&self) -> bool {
        let drops = self.drops.lock();
        drops.being_freed.is_some() || drops.waiting.iter().any(PendingDrop::is_unused)
    }

    fn take_free_drop(&self) -> Option<PendingDrop> {
        let mut drops = self.drops.lock();
        let at = drops.waiting.iter_mut().position(|drop| drop.is_free(&self.manager))?;
        let drop = drops.waiting.remove(at);
        drops.being_freed = Some(drop.row());
        Some(drop)
    }

    /// One step of a drop; whether it was the last.
    fn free_some(&self, drop: &mut PendingDrop) -> Result<bool, TableError> {
        let is_past = drop.fence.is_some_and(|fence| self.manager.is_past(fence));
        debug_assert!(is_past && drop.users.strong_count() == 0, "no thread can touch {}", drop.what);
        let tree = drop.open(&self.manager);
        match drop.stage {
            Stage::Waiting => {
                // No transaction rolls back into it any more, and the removal of ghosts does not
                // find it.
                self.manager.forget_tree(drop.tree);
                drop.stage = if drop.naming == Naming::None { Stage::Clearing } else { Stage::Emptying };
            }
            Stage::Emptying => {
                if self.empty_some(drop, &tree)? {
                    drop.stage = Stage::Clearing;
                }
            }
            Stage::Clearing => drop.stage = self.clear_some(drop, &tree)?,
            Stage::Cleared | Stage::RootDamaged => {
                let _writing = self.writing.lock();
                self.commit(|txn| catalog_rows::erase_dropped(txn, &self.system, drop.tree))?;
                drop.stage = Stage::Forgotten { damaged: drop.stage == Stage::RootDamaged };
            }
            Stage::Forgotten { damaged: false } => match tree.clone().drop_root(LogClass::Normal, &[]) {
                Err(error) if error.concerns_a_page() => {
                    drop.stage = Stage::Forgotten { damaged: true };
                }
                freed => return Ok(freed.map(|()| true)?),
            },
            Stage::Forgotten { damaged: true } => {
                match tree.drop_damaged_root(LogClass::Normal) {
                    Err(error) if !error.concerns_a_page() => return Err(error.into()),
                    // Freed; or it is one of the pages that were given up.
                    _ => return Ok(true),
                }
            }
            Stage::SetAside => unreachable!("it is not free"),
        }
        Ok(false)
    }

    /// One group of clearing; the stage that comes next.
    fn clear_some(&self, drop: &PendingDrop, tree: &Tree) -> Result<Stage, TableError> {
        let mut lost = Vec::new();
        let cleared = match drop.attempts.is_last() {
            false => tree.clear_step(LogClass::Normal),
            true => tree.clear_step_past_damage(LogClass::Normal, &mut |error| {
                lost.push(format!("{}. Pages below it could not be freed", error.message));
            }),
        };
        let stage = match cleared {
            Ok(true) => Stage::Clearing,
            Ok(false) => Stage::Cleared,
            Err(error) => {
                if !error.concerns_a_page() || !drop.attempts.is_last() {
                    return Err(error.into());
                }
                lost.push(format!("{}. It is the root: nothing below it could be freed", error.message));
                Stage::RootDamaged
            }
        };
        lost.into_iter().for_each(|sentence| self.report_lost(drop, &sentence));
        Ok(stage)
    }

    /// Frees some of the pages that rows of a dropped tree name; whether all are freed.
    fn empty_some(&self, drop: &mut PendingDrop, tree: &Tree) -> Result<bool, TableError> {
        let from = match &drop.emptied {
            Position::Start => &[],
            Position::At(key) | Position::Past(key) => &key[..],
        };
        let mut unnamed = None;
        let naming = drop.naming;
        let swept = tree.sweep_naming(from, LogClass::Normal, |key, value| {
            match naming.page(key, value) {
                Ok(Some(page)) => Judgement::Remove(Some(page)),
                // It goes with its leaf.
                Ok(None) => Judgement::Keep,
                Err(error) => {
                    unnamed = Some(error);
                    Judgement::Remove(None)
                }
            }
        });
        if let Some(error) = unnamed {
            self.report_lost(
                drop,
                &format!("{}. Pages that it should name could not be freed", error.message),
            );
        }
        match swept {
            Ok(SweptNames { more: true, .. }) => Ok(false),
            Ok(SweptNames { high: Some(high), .. }) => {
                drop.emptied = Position::At(high);
                Ok(false)
            }
            Ok(SweptNames { high: None, .. }) => Ok(true),
            // An earlier epoch began to clear the tree, after its last row was removed.
            Err(error) if error.kind == TreeErrorKind::Condemned => Ok(true),
            Err(error) if error.concerns_a_page() && drop.attempts.is_last() => {
                let next = tree.past_leaf(&Position::At(from.to_vec()));
                if next.is_ok() {
                    let lost = format!("{}. Pages that it names could not be freed", error.message);
                    self.report_lost(drop, &lost);
                }
                match next {
                    Ok(Some(next)) => {
                        drop.emptied = next;
                        Ok(false)
                    }
                    // The rest of the tree, or a node above its leaves: clearing meets that, too,
                    // and reports it.
                    Ok(None) | Err(_) => Ok(true),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn report_lost(&self, drop: &PendingDrop, sentence: &str) {
        let message = format!("{sentence}; they stay allocated, and a check counts them as leaked");
        self.manager.set_aside(
            format!("freeing the dropped {}", drop.what),
            &TxnError::new(TxnErrorKind::Damaged, message),
        );
    }

    fn set_aside(&self, drop: &mut PendingDrop, error: &TableError) {
        drop.stage = Stage::SetAside;
        let message = format!("{}; it is tried again when the database is opened next", error.message);
        self.manager.set_aside(
            format!("freeing the dropped {}", drop.what),
            &TxnError::new(TxnErrorKind::Failed, message),
        );
    }

    /// Whether background work that met `error` is set aside while the database keeps running: not
    /// if the error passes by itself, nor if the database has stopped.
    pub(crate) fn is_to_be_set_aside(&self, error: &TableError) -> bool {
        let passes = matches!(
            error.kind,
            TableErrorKind::Transaction(
                TxnErrorKind::LogFull | TxnErrorKind::Full | TxnErrorKind::NoFrame | TxnErrorKind::Closed
            )
        );
        !passes && self.manager.check_usable().is_ok()
    }

    fn abandon(&self, table: TreeId, index: TreeId) -> Result<Progress, TableError> {
        let found = self.tables.read().values().find(|other| other.id() == table).cloned();
        // A table that was dropped meanwhile has taken its indexes with it.
        let Some(found) = found else { return Ok(Progress::Worked) };
        let outcome = {
            let _change = found.shared.definition_change.lock();
            self.take_index_out(&found, index)
        };
        match outcome {
            Ok(()) => Ok(Progress::Worked),
            Err(error) if error.kind == TableErrorKind::Dropped => Ok(Progress::Worked),
            // The next opening finds it again.
            Err(error) if self.is_to_be_set_aside(&error) => {
                let kind = if error.is_damage() { TxnErrorKind::Damaged } else { TxnErrorKind::Failed };
                self.manager.set_aside(
                    format!("dropping an index of {table} whose build was interrupted"),
                    &TxnError::new(kind, error.message),
                );
                Ok(Progress::Worked)
            }
            Err(error) => {
                self.leftovers.lock().push((table, index));
                Err(error)
            }
        }
    }
}
