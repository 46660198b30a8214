//! Definition changes: creating, dropping and renaming, each in a transaction of its own.
//!
//! Each follows one order: check, write the catalog's rows, commit, change the copy in memory. A
//! crash before the commit leaves nothing (created trees are undone with their transaction); after
//! it, memory is read from the rows again.

use crate::catalog::Catalog;
use crate::catalog_rows::{self, TreeRow};
use crate::definition::{Definition, Fragmentation};
use crate::drops::PendingDrop;
use crate::error::{TableError, TableErrorKind};
use crate::index::{IndexDefinition, IndexSpec, IndexState, MAX_INDEXES};
use crate::live_index::LiveIndex;
use crate::naming::Naming;
use crate::schema::{self, Column, Schema};
use crate::state::{Shared, State};
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::value::Value;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Tree;
use firndb_txn::TxnError;

/// Refuses what cannot be the definition of a new table.
pub(crate) fn check_new(name: &str, kind: &TableKind, indexes: &[IndexSpec]) -> Result<(), TableError> {
    schema::check_name("a table", name).map_err(TableError::bad_argument)?;
    if indexes.len() > MAX_INDEXES {
        return Err(TableError::bad_argument(format!("a table has at most {MAX_INDEXES} indexes")));
    }
    for (at, spec) in indexes.iter().enumerate() {
        spec.check(kind)?;
        if indexes[..at].iter().any(|other| other.name == spec.name) {
            return Err(TableError::bad_argument(format!("two indexes are called {:?}", spec.name)));
        }
    }
    Ok(())
}

/// Creates the trees of a new table with `create`, and tells its definition.
pub(crate) fn create_trees(
    mut create: impl FnMut() -> Result<Tree, TxnError>,
    name: &str,
    (kind, fragmentation): (TableKind, Fragmentation),
    indexes: Vec<IndexSpec>,
) -> Result<Definition, TableError> {
    let (tree, large) = (create()?, create()?);
    let mut definition = Definition {
        tree: tree.id(),
        root: tree.root(),
        large: Some((large.id(), large.root())),
        name: name.to_owned(),
        kind,
        fragmentation,
        indexes: Vec::new(),
    };
    for spec in indexes {
        let tree = create()?;
        let (tree, root) = (tree.id(), tree.root());
        definition.indexes.push(IndexDefinition { spec, tree, root, state: IndexState::Ready });
    }
    Ok(definition)
}

impl Catalog {
    /// Creates an empty table, with indexes that are complete at once. Durable when it returns.
    ///
    /// Errors: `Exists`, `BadArgument`, and the transaction's.
    pub fn create_table(
        &self,
        name: &str,
        kind: TableKind,
        indexes: Vec<IndexSpec>,
    ) -> Result<Table, TableError> {
        self.create_fragmented_table(name, (kind, Fragmentation::default()), indexes)
    }

    /// As [`Catalog::create_table`], of which pages are fragmented otherwise than the store's. The
    /// caller sees to it that they are ([`Catalog::fragmentations`]).
    pub fn create_fragmented_table(
        &self,
        name: &str,
        (kind, fragmentation): (TableKind, Fragmentation),
        indexes: Vec<IndexSpec>,
    ) -> Result<Table, TableError> {
        check_new(name, &kind, &indexes)?;
        let _writing = self.writing.lock();
        self.check_free(name)?;
        let definition = self.commit(|txn| {
            let definition = create_trees(|| txn.create_tree(), name, (kind, fragmentation), indexes)?;
            self.write_definition(txn, &definition)?;
            Ok(definition)
        })?;
        Ok(self.publish(State::open(definition, self.manager.pool())))
    }

    /// Makes a table known whose definition is committed. The caller holds `writing`.
    pub(crate) fn publish(&self, state: State) -> Table {
        let name = state.definition.name.clone();
        let table = Table { shared: Arc::new(Shared::new(self.manager.clone(), state)) };
        let before = self.tables.write().insert(name, table.clone());
        debug_assert!(before.is_none(), "names are given out under `writing`, once");
        table
    }

    /// Drops a table and its indexes. From when it returns every use of a handle of it fails; its
    /// pages are freed in the background ([`Catalog::drop_step`]) once no transaction can need
    /// them.
    pub fn drop_table(&self, name: &str) -> Result<(), TableError> {
        let table = self.table(name)?;
        let _change = table.shared.definition_change.lock();
        let _writing = self.writing.lock();
        let state = self.same(name, &table)?;
        self.commit(|txn| {
            catalog_rows::erase(txn, &self.system, state.definition.tree)?;
            let indexes = state.definition.indexes.iter().flat_map(IndexDefinition::trees);
            let own = [(state.definition.tree, state.definition.root)];
            let without = indexes.chain(own).map(|tree| (tree, Naming::None));
            let large = state.definition.large.map(|tree| (tree, Naming::LargeParts));
            for ((tree, root), naming) in without.chain(large) {
                catalog_rows::write_dropped(txn, &self.system, TreeRow { tree, root, naming })?;
            }
            Ok(())
        })?;
        // Listed before nothing else names them.
        self.will_free(&state.tree, Naming::None, format!("table {name:?}"));
        if let Some(large) = &state.large {
            self.will_free(large, Naming::LargeParts, format!("large values of table {name:?}"));
        }
        state.indexes.iter().for_each(|index| self.will_free_index(index, name));
        self.tables.write().remove(name);
        table.shared.exchange(None);
        Ok(())
    }

    /// Gives a table another name. Handles of it stay good.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), TableError> {
        schema::check_name("a table", to).map_err(TableError::bad_argument)?;
        let table = self.table(from)?;
        let _change = table.shared.definition_change.lock();
        let _writing = self.writing.lock();
        let state = self.same(from, &table)?;
        if from == to {
            return Ok(());
        }
        self.check_free(to)?;
        let definition = Definition { name: to.to_owned(), ..state.definition.clone() };
        self.commit(|txn| self.write_definition(txn, &definition))?;
        let mut tables = self.tables.write();
        tables.remove(from);
        let before = tables.insert(to.to_owned(), table.clone());
        debug_assert!(before.is_none(), "names are given out under `writing`, once");
        table.shared.exchange(Some(state.redefined(definition, state.indexes.clone())));
        Ok(())
    }

    /// Adds a column at the end of a typed table. It must be nullable or have a default, which rows
    /// written before read for it; no row is rewritten.
    pub fn add_column(&self, table: &Table, column: Column) -> Result<(), TableError> {
        if !column.nullable && column.default == Value::Null {
            let message = format!(
                "column {:?} may not be NULL, so it needs a default for the rows there are",
                column.name
            );
            return Err(TableError::bad_argument(message));
        }
        self.check_own(table)?;
        let _change = table.shared.definition_change.lock();
        let _writing = self.writing.lock();
        let state = table.shared.state()?;
        let TableKind::Typed(old) = state.kind() else {
            return Err(TableError::bad_argument(format!(
                "table {:?} holds raw bytes",
                state.definition.name
            )));
        };
        let columns = old.columns().iter().cloned().chain([column]).collect();
        let kind = TableKind::Typed(Schema::new(columns, old.key().to_vec())?);
        let definition = Definition { kind, ..state.definition.clone() };
        self.commit(|txn| self.write_definition(txn, &definition))?;
        table.shared.exchange(Some(state.redefined(definition, state.indexes.clone())));
        Ok(())
    }

    /// Drops an index. From when it returns every use of a handle of it fails.
    pub fn drop_index(&self, table: &Table, name: &str) -> Result<(), TableError> {
        self.check_own(table)?;
        let _change = table.shared.definition_change.lock();
        let state = table.shared.state()?;
        let Some(at) = state.definition.index(name) else {
            let message = format!("table {:?} has no index {name:?}", state.definition.name);
            return Err(TableError::new(TableErrorKind::NotFound, message));
        };
        let tree = state.indexes[at].tree.id();
        drop(state);
        self.take_index_out(table, tree)
    }

    /// Drops the index of `tree`. The caller holds the table's `definition_change`.
    pub(crate) fn take_index_out(&self, table: &Table, tree: TreeId) -> Result<(), TableError> {
        let _writing = self.writing.lock();
        let state = table.shared.state()?;
        let (gone, kept): (Vec<LiveIndex>, Vec<LiveIndex>) =
            state.indexes.iter().cloned().partition(|index| index.tree.id() == tree);
        let [gone] = &gone[..] else {
            return Err(TableError::new(
                TableErrorKind::Dropped,
                format!("the index of {tree} was dropped already"),
            ));
        };
        let indexes = kept.iter().map(|index| index.definition.clone()).collect();
        let definition = Definition { indexes, ..state.definition.clone() };
        self.commit(|txn| {
            self.write_definition(txn, &definition)?;
            for (tree, root) in gone.definition.trees() {
                catalog_rows::write_dropped(txn, &self.system, TreeRow { tree, root, naming: Naming::None })?;
            }
            Ok(())
        })?;
        self.will_free_index(gone, &state.definition.name);
        table.shared.exchange(Some(state.redefined(definition, kept)));
        Ok(())
    }

    fn will_free_index(&self, index: &LiveIndex, table: &str) {
        let what = format!("index {:?} of table {table:?}", index.definition.spec.name);
        if let Some(notes) = index.upkeep.notes() {
            self.will_free(&notes.tree, Naming::None, format!("notes on {what}"));
        }
        self.will_free(&index.tree, Naming::None, what);
    }

    /// Has the background free a tree whose drop is committed.
    pub(crate) fn will_free(&self, tree: &Arc<Tree>, naming: Naming, what: String) {
        self.drops.lock().waiting.push(PendingDrop::of(tree, naming, what));
    }

    /// Refuses a table of another database, whose definition must not be written into this one.
    pub(crate) fn check_own(&self, table: &Table) -> Result<(), TableError> {
        match Arc::ptr_eq(&self.manager, &table.shared.manager) {
            true => Ok(()),
            false => Err(TableError::bad_argument("the table belongs to another database")),
        }
    }

    pub(crate) fn check_free(&self, name: &str) -> Result<(), TableError> {
        self.check_whole()?;
        if self.tables.read().contains_key(name) {
            return Err(TableError::new(TableErrorKind::Exists, format!("a table called {name:?} exists")));
        }
        Ok(())
    }

    /// The state of `table`, if it is still the one called `name`: it may have been dropped or
    /// renamed while the caller waited for its locks.
    fn same(&self, name: &str, table: &Table) -> Result<Arc<State>, TableError> {
        if !Arc::ptr_eq(&self.table(name)?.shared, &table.shared) {
            let message = format!("table {name:?} was replaced by another of its name; try again");
            return Err(TableError::new(TableErrorKind::NotFound, message));
        }
        table.shared.state()
    }
}
