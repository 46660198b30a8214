//! The catalog: which tables there are.
//!
//! Definitions are rows of the system tree ([`SYSTEM_TREE`]); all of them are kept in memory as
//! well, and that copy follows when the transaction that changes a definition has committed.
//! Invariants:
//! * a definition is in memory exactly if its rows are committed;
//! * a tree belongs to one table or index, or is recorded as dropped; so none is lost by a crash,
//!   but for the root page of a dropped one at worst (see [`crate::drops`]);
//! * names of tables are unique: given out under `writing`.
//!
//! Lock order, outermost first: [`Shared::definition_change`] of one table → `writing` → `tables` →
//! a table's state; `drops`, `leftovers` and `being_loaded` are taken last. Reading takes only
//! `tables` or a state, for the time of a lookup.
//!
//! [`Shared::definition_change`]: crate::state::Shared::definition_change

use crate::catalog_rows;
use crate::definition::Definition;
use crate::drops::{Drops, PendingDrop};
use crate::error::{TableError, TableErrorKind};
use crate::load::BeingLoaded;
use crate::naming::Naming;
use crate::page_file::PageFile;
use crate::ranks;
use crate::state::{Shared, State};
use crate::superseded::Superseded;
use crate::table::Table;
use firndb_base::TreeId;
use firndb_base::sync::atomic::AtomicUsize;
use firndb_base::sync::{Arc, Mutex, RwLock};
use firndb_btree::Tree;
use firndb_txn::{Transaction, TxnError, TxnManager, TxnOptions};
use std::collections::BTreeMap;

/// The tree that holds the catalog.
pub const SYSTEM_TREE: TreeId = TreeId(1);

/// The tables of one database.
pub struct Catalog {
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) system: Tree,
    /// Tables by their present names.
    pub(crate) tables: RwLock<BTreeMap<String, Table>>,
    /// Page files by their names, which are apart from those of tables.
    pub(crate) page_files: RwLock<BTreeMap<String, PageFile>>,
    /// Pages of theirs that wait to be freed.
    pub(crate) superseded: Arc<Superseded>,
    /// Held while rows of the system tree are being written.
    pub(crate) writing: Mutex<()>,
    /// Dropped trees that are not freed yet.
    pub(crate) drops: Mutex<Drops>,
    /// Builds that an earlier epoch of the database did not finish: (table, index).
    pub(crate) leftovers: Mutex<Vec<(TreeId, TreeId)>>,
    pub(crate) being_loaded: Mutex<Vec<BeingLoaded>>,
    /// Tables visited for large values to be freed.
    pub(crate) reaped: AtomicUsize,
    /// Why there may be tables that are not among `tables`: their definitions could not be read.
    pub(crate) damage: Option<TxnError>,
}

impl Catalog {
    /// Reads the catalog in `system`, the tree [`SYSTEM_TREE`], and makes every tree of a table
    /// known to the manager. Writes nothing. An empty tree is an empty catalog.
    ///
    /// Dropped trees are not registered, but for those of page files: the transactions that could
    /// see their rows ended with the crash or shutdown, so the rollback of interrupted transactions
    /// skips them. A transaction that damage keeps from being rolled back is thus finished once the
    /// damaged table is dropped, and keeps no dropped tree from being freed. Where it had replaced
    /// pages of a page file that was dropped meanwhile, the pages that its rows name are freed with
    /// them; those that they named before are neither named nor marked any more. They stay
    /// allocated, and a check counts them as leaked.
    ///
    /// Where a part of the tree cannot be read, the tables are missing whose definitions lie there,
    /// and the others can be used. Then no table is created or renamed: the name might be one of
    /// theirs.
    ///
    /// Errors: `Damaged` if the tree's root cannot be read; `Damaged` and `TooNew` name the table
    /// if it is known; and the transaction's.
    pub fn open(manager: Arc<TxnManager>, system: Tree) -> Result<Catalog, TableError> {
        assert_eq!(system.id(), SYSTEM_TREE, "the catalog's tree has a fixed id");
        manager.register_tree(system.clone());
        let mut txn = manager.begin(TxnOptions { read_only: true, ..TxnOptions::default() });
        let stored = catalog_rows::read_all(&mut txn, &system).map_err(|error| {
            let message =
                format!("the catalog cannot be read, and without it no table is found: {}", error.message);
            TableError::new(error.kind, message)
        })?;
        txn.rollback()?;
        if let Some(damage) = &stored.damage {
            manager.some_trees_are_unknown(damage.clone());
            manager.set_aside("reading the definitions of tables in the catalog", damage);
        }
        let pool = manager.pool().clone();
        let mut tables = BTreeMap::new();
        let mut leftovers = Vec::new();
        for definition in stored.definitions {
            let state = State::open(definition, &pool);
            state.trees_to_register().for_each(|tree| manager.register_tree((*tree).clone()));
            let unfinished = state.indexes.iter().filter(|index| index.is_being_loaded());
            leftovers.extend(unfinished.map(|index| (state.tree.id(), index.tree.id())));
            let name = state.definition.name.clone();
            let table = Table { shared: Arc::new(Shared::new(manager.clone(), state)) };
            if tables.insert(name.clone(), table).is_some() {
                return Err(TableError::damaged(format!("the catalog has two tables called {name:?}")));
            }
        }
        let superseded = Arc::new(Superseded::default());
        if let Some(row) = stored.superseded {
            let tree = Tree::open(pool.clone(), row.tree, row.root);
            manager.register_tree(tree.clone());
            superseded.begin(tree);
        }
        let mut page_files = BTreeMap::new();
        for definition in stored.page_files {
            let file = PageFile::open(&definition, &manager, &superseded);
            manager.register_tree((*file.tree()?).clone());
            if page_files.insert(definition.name.clone(), file).is_some() {
                let message = format!("the catalog has two page files called {:?}", definition.name);
                return Err(TableError::damaged(message));
            }
        }
        // Rows that name pages are undone in dropped trees, too: the pages are freed with them, and
        // which these are depends on what was committed.
        for row in stored.dropped.iter().filter(|row| row.naming != Naming::None) {
            manager.register_tree(Tree::open(pool.clone(), row.tree, row.root));
        }
        let drops = Drops::found(stored.dropped.into_iter().map(PendingDrop::found).collect());
        Ok(Catalog {
            manager,
            system,
            tables: ranks::TABLES.rwlock(tables),
            page_files: ranks::PAGE_FILES.rwlock(page_files),
            superseded,
            writing: ranks::WRITING.mutex(()),
            drops: Mutex::new(drops),
            leftovers: Mutex::new(leftovers),
            being_loaded: Mutex::default(),
            reaped: AtomicUsize::new(0),
            damage: stored.damage,
        })
    }

    pub fn table(&self, name: &str) -> Result<Table, TableError> {
        self.tables.read().get(name).cloned().ok_or_else(|| match &self.damage {
            None => TableError::new(TableErrorKind::NotFound, format!("there is no table called {name:?}")),
            Some(damage) => TableError::damaged(format!(
                "there is no table called {name:?} among those whose definitions can be read: {damage}"
            )),
        })
    }

    /// Fails if there may be tables whose names are not known.
    pub(crate) fn check_whole(&self) -> Result<(), TableError> {
        match &self.damage {
            None => Ok(()),
            Some(damage) => Err(TableError::damaged(format!(
                "no table can be created or renamed while there may be others whose names are not known: {damage}"
            ))),
        }
    }

    /// The names of all tables, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.tables.read().keys().cloned().collect()
    }

    /// Every tree of the catalog with a word on what it is, itself included, but for those of
    /// [`Catalog::unread_trees`]: for checks of the whole database.
    #[must_use]
    pub fn trees(&self) -> Vec<(String, Tree)> {
        let mut trees = vec![("the catalog".to_owned(), self.system.clone())];
        for (name, table) in &*self.tables.read() {
            let Ok(state) = table.shared.state() else { continue };
            trees.push((format!("table {name:?}"), (*state.tree).clone()));
            for index in &state.indexes {
                let what = format!("index {:?} of table {name:?}", index.definition.spec.name);
                if let Some(notes) = index.upkeep.notes() {
                    trees.push((format!("notes on {what}"), (*notes.tree).clone()));
                }
                if !index.is_being_loaded() {
                    trees.push((what, (*index.tree).clone()));
                }
            }
        }
        for owner in self.page_owners() {
            trees.push((owner.what, owner.tree));
        }
        trees
    }

    /// Trees whose pages are theirs, and whose leaves may have no content: of tables and
    /// indexes that are being loaded, and dropped ones.
    #[must_use]
    pub fn unread_trees(&self) -> Vec<(String, Tree)> {
        let mut trees = Vec::new();
        for (name, table) in &*self.tables.read() {
            let Ok(state) = table.shared.state() else { continue };
            for index in state.indexes.iter().filter(|index| index.is_being_loaded()) {
                let what = format!("index {:?} of table {name:?}, unfinished", index.definition.spec.name);
                trees.push((what, (*index.tree).clone()));
            }
        }
        for loaded in &*self.being_loaded.lock() {
            let what = format!("table {:?}, being loaded", loaded.name);
            trees.extend(loaded.trees.iter().map(|tree| (what.clone(), (**tree).clone())));
        }
        let drops = self.drops.lock();
        let dropped = drops.rows().filter(|row| row.naming == Naming::None);
        trees.extend(dropped.map(|row| (format!("dropped {}", row.tree), row.open(&self.manager))));
        trees
    }

    /// Waits until what others are creating or dropping is so, or not: trees for which pages were
    /// allocated before are then in one of the lists, or rolled back.
    pub fn settle(&self) {
        drop(self.writing.lock());
    }

    /// Runs `change` in a transaction of its own and commits it durably. The caller holds
    /// `writing`, so no other thread changes rows of the catalog.
    pub(crate) fn commit<R>(
        &self,
        change: impl FnOnce(&mut Transaction) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        assert!(self.writing.is_locked());
        let mut txn = self.manager.begin(TxnOptions::default());
        // An error drops the transaction, which rolls it back, trees created in it included.
        let result = change(&mut txn)?;
        txn.commit()?;
        Ok(result)
    }

    pub(crate) fn write_definition(
        &self,
        txn: &mut Transaction,
        definition: &Definition,
    ) -> Result<(), TableError> {
        catalog_rows::write(txn, &self.system, (definition.tree, &definition.name), &definition.encode())
    }
}
