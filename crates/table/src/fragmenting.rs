//! How the pages of each table are fragmented: what the catalog says, and changing it.

use crate::catalog::Catalog;
use crate::definition::{Definition, Fragmentation};
use crate::error::TableError;
use crate::index::IndexDefinition;
use crate::load::BeingLoaded;
use crate::state::State;
use crate::table::Table;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Tree;

/// A table's trees, and how their pages are fragmented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTrees {
    /// The table's name.
    pub name: String,
    /// The table's own tree first, then those of its large values and of its indexes.
    pub trees: Vec<TreeId>,
    /// What the catalog says.
    pub fragmentation: Fragmentation,
}

impl TableTrees {
    fn of(state: &State) -> TableTrees {
        let large = state.definition.large.map(|(tree, _)| tree);
        let indexes = state.definition.indexes.iter().flat_map(IndexDefinition::trees);
        let trees = [state.definition.tree].into_iter().chain(large).chain(indexes.map(|(tree, _)| tree));
        TableTrees {
            name: state.definition.name.clone(),
            trees: trees.collect(),
            fragmentation: state.definition.fragmentation,
        }
    }
}

impl Catalog {
    /// Has a table's pages fragmented otherwise from now on. The caller sees to it that they are
    /// ([`Catalog::fragmentations`]), and moves those that there are.
    pub fn set_fragmentation(&self, table: &Table, fragmentation: Fragmentation) -> Result<(), TableError> {
        self.check_own(table)?;
        let _change = table.shared.definition_change.lock();
        let _writing = self.writing.lock();
        let state = table.shared.state()?;
        self.write_fragmentation(table, &state, fragmentation)
    }

    /// As [`Catalog::set_fragmentation`], to what `change` makes of what the table has, if that is
    /// something else. False if another change of definitions is under way, or the table was
    /// dropped: then nothing was done.
    pub fn change_fragmentation(
        &self,
        table: &str,
        change: impl FnOnce(Fragmentation) -> Option<Fragmentation>,
    ) -> Result<bool, TableError> {
        let Some(table) = self.tables.read().get(table).cloned() else { return Ok(false) };
        let Some(_change) = table.shared.definition_change.try_lock() else { return Ok(false) };
        let Some(_writing) = self.writing.try_lock() else { return Ok(false) };
        let Ok(state) = table.shared.state() else { return Ok(false) };
        match change(state.definition.fragmentation) {
            Some(fragmentation) => self.write_fragmentation(&table, &state, fragmentation).map(|()| true),
            None => Ok(false),
        }
    }

    /// The caller has the table's `definition_change`, and `writing`.
    fn write_fragmentation(
        &self,
        table: &Table,
        state: &State,
        fragmentation: Fragmentation,
    ) -> Result<(), TableError> {
        let definition = Definition { fragmentation, ..state.definition.clone() };
        self.commit(|txn| self.write_definition(txn, &definition))?;
        table.shared.exchange(Some(state.redefined(definition, state.indexes.clone())));
        Ok(())
    }

    /// All tables, by name.
    pub fn fragmentations(&self) -> Vec<TableTrees> {
        let tables = self.tables.read();
        let states = tables.values().filter_map(|table| table.shared.state().ok());
        states.map(|state| TableTrees::of(&state)).collect()
    }

    /// Tables that are being loaded, and are not among the others yet.
    pub fn fragmentations_being_loaded(&self) -> Vec<TableTrees> {
        let of = |loaded: &BeingLoaded| TableTrees {
            name: loaded.name.clone(),
            trees: loaded.trees.iter().chain(&loaded.large).map(|tree| tree.id()).collect(),
            fragmentation: loaded.fragmentation,
        };
        self.being_loaded.lock().iter().map(of).collect()
    }

    /// A tree of a table, as long as it is one, and none that is being loaded: leaves of that may
    /// have no content yet. It is not cleared while this is held.
    pub fn tree_of(&self, table: &str, tree: TreeId) -> Option<Arc<Tree>> {
        let state = self.tables.read().get(table)?.shared.state().ok()?;
        let indexes = state.indexes.iter().filter(|index| !index.is_being_loaded()).map(|index| &index.tree);
        let mut trees = [&state.tree].into_iter().chain(&state.large).chain(indexes);
        trees.find(|found| found.id() == tree).cloned()
    }

    /// About how many pages the trees of a table have, from a few reads; 0 if there is no such
    /// table.
    pub fn pages_of(&self, table: &str) -> Result<u64, TableError> {
        let table = self.tables.read().get(table).cloned();
        let Some(state) = table.and_then(|table| table.shared.state().ok()) else { return Ok(0) };
        let trees = [&state.tree].into_iter().chain(&state.large);
        let all = trees.chain(state.indexes.iter().map(|index| &index.tree));
        all.map(|tree| Ok(tree.estimate_leaves()?)).sum()
    }
}
