//! Creating a table with its rows, which come in the order of their keys.
//!
//! One transaction creates the trees, loads the rows ([`Transaction::load_rows`]) and their sorted
//! index entries, writes the definition and commits. Nobody knows the trees before, background work
//! included; a crash, or an error, undoes their creation, and parts of large values one by one.
//! Content of leaves is in the store, or in the log, before the commit.
//!
//! Rows are loaded as if they had always been there. So transactions whose snapshots are older than
//! the commit cannot use the table (`State::usable_past`).

use crate::catalog::Catalog;
use crate::ddl::{check_new, create_trees};
use crate::definition::Fragmentation;
use crate::error::TableError;
use crate::index::{Entry, IndexSpec};
use crate::large_write::Stored;
use crate::live_index::duplicate;
use crate::show;
use crate::state::State;
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::write::Bytes;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Tree;
use firndb_txn::{LoadedRow, Transaction, TxnOptions};

/// Memory for entries of all indexes of a table.
const ENTRIES_BYTES_MAX: usize = 64 << 20;
/// Memory of an entry beside its bytes.
const ENTRY_OVERHEAD: usize = 64;

/// Key and bytes of a row.
type Row = (Vec<u8>, Vec<u8>);

/// Entries of the table's indexes, in their order.
#[derive(Default)]
struct Entries {
    of_indexes: Vec<Vec<Row>>,
    bytes: usize,
}

impl Entries {
    fn add(&mut self, state: &State, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        if state.indexes.is_empty() {
            return Ok(());
        }
        let (row, mut entry) = (state.source(key, value)?, Entry::default());
        for (index, entries) in state.indexes.iter().zip(&mut self.of_indexes) {
            index.entry(&row, &mut entry)?;
            self.bytes += ENTRY_OVERHEAD + entry.key.len() + entry.value.len();
            entries.push((entry.key.clone(), entry.value.clone()));
        }
        if self.bytes > ENTRIES_BYTES_MAX {
            return Err(TableError::bad_argument(format!(
                "entries for indexes of table {:?} take more than {} MiB: load it without indexes, and create these then",
                state.definition.name,
                ENTRIES_BYTES_MAX >> 20
            )));
        }
        Ok(())
    }

    /// Sorts them, and loads the indexes.
    fn load(self, txn: &mut Transaction, state: &State) -> Result<(), TableError> {
        for (index, mut entries) in state.indexes.iter().zip(self.of_indexes) {
            entries.sort_unstable();
            if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(duplicate(&state.definition, index, &pair[0].0)?);
            }
            let mut entries = entries.into_iter();
            txn.load_rows::<TableError>(&index.tree, |_| {
                Ok(entries.next().map(|(key, value)| LoadedRow::new(key, (&value[..]).into())))
            })?;
        }
        Ok(())
    }
}

/// A table that is being loaded, for checks of the whole database.
pub(crate) struct BeingLoaded {
    table: TreeId,
    pub(crate) name: String,
    pub(crate) fragmentation: Fragmentation,
    /// Leaves of these may lack content.
    pub(crate) trees: Vec<Arc<Tree>>,
    pub(crate) large: Option<Arc<Tree>>,
}

/// Keeps a table in the catalog's list of those that are being loaded.
struct Listed<'c> {
    catalog: &'c Catalog,
    table: Option<TreeId>,
}

impl Listed<'_> {
    fn list(&mut self, state: &State) {
        let indexes = state.indexes.iter().map(|index| index.tree.clone());
        let trees = std::iter::once(state.tree.clone()).chain(indexes).collect();
        let (table, name) = (state.tree.id(), state.definition.name.clone());
        self.table = Some(table);
        let (large, fragmentation) = (state.large.clone(), state.definition.fragmentation);
        let loaded = BeingLoaded { table, name, fragmentation, trees, large };
        self.catalog.being_loaded.lock().push(loaded);
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.catalog.being_loaded.lock().retain(|loaded| Some(loaded.table) != self.table);
    }
}

impl Catalog {
    /// Creates a table with the rows that `rows` gives, whose keys ascend strictly, and with
    /// indexes that are complete at once. Durable when it returns.
    /// Other transactions go on meanwhile. Calls `begun` when the table is among those being loaded
    /// ([`Catalog::fragmentations_being_loaded`]), before it has a row.
    ///
    /// Errors: `Exists`; `BadArgument`, also for rows that do not ascend; `Duplicate` if rows
    /// violate a unique index; those of `rows`, and the transaction's. Then there is no such table.
    pub fn load_table(
        &self,
        name: &str,
        (kind, fragmentation): (TableKind, Fragmentation),
        indexes: Vec<IndexSpec>,
        (bytes, rows): (Bytes, &mut dyn Iterator<Item = Result<Row, TableError>>),
        begun: &mut dyn FnMut(),
    ) -> Result<Table, TableError> {
        check_new(name, &kind, &indexes)?;
        let writing = self.writing.lock();
        self.check_free(name)?;
        // Listed until the transaction has ended.
        let mut listed = Listed { catalog: self, table: None };
        // An error drops the transaction, which rolls it back, the trees included.
        let mut txn = self.manager.begin(TxnOptions::default());
        let mut trees = Vec::new();
        let create = || txn.create_private_tree().inspect(|tree| trees.push(tree.clone()));
        let definition = create_trees(create, name, (kind, fragmentation), indexes)?;
        let mut state = State::open(definition, self.manager.pool());
        listed.list(&state);
        drop(writing);
        begun();
        let mut entries = Entries { of_indexes: vec![Vec::new(); state.indexes.len()], bytes: 0 };
        let mut last: Option<Vec<u8>> = None;
        txn.load_rows(&state.tree, |txn| {
            let Some(row) = rows.next() else { return Ok(None) };
            let (key, value) = row?;
            if let Some(last) = last.as_ref().filter(|last| **last >= key) {
                return Err(TableError::bad_argument(format!(
                    "rows to be loaded must ascend strictly by primary key: {} comes after {}",
                    show::Bytes(&key),
                    show::Bytes(last)
                )));
            }
            last.get_or_insert_default().clone_from(&key);
            bytes.check(&state, &key, &value)?;
            let stored = Stored::new(txn, &state, &key, &value)?;
            stored.write_parts(txn, &state)?;
            entries.add(&state, &key, &value)?;
            Ok::<_, TableError>(Some(LoadedRow::new(key, stored.row())))
        })?;
        entries.load(&mut txn, &state)?;
        let _writing = self.writing.lock();
        self.check_free(name)?;
        self.write_definition(&mut txn, &state.definition)?;
        txn.commit()?;
        trees.into_iter().for_each(|tree| self.manager.register_tree(tree));
        state.usable_past = Some(self.manager.fence());
        Ok(self.publish(state))
    }
}
