//! Building an index on a table with rows, while others read and write it.
//!
//! 1. The index is defined, in state *building*: from now on writers maintain it, and no reader
//!    uses it.
//! 2. Leaf by leaf, in a short serializable transaction each, the rows are read and their entries
//!    added.
//! 3. The index is declared *ready*.
//!
//! Why every row ends up with its entry: a serializable read waits for the writers of the rows it
//! reads and then blocks new ones. So when a leaf is read, the last writer W of each of its rows
//! has ended. A writer reads which indexes to maintain *after* it has locked the row. If W read
//! them before the index was defined, its row is seen now and gets its entry here; if W read them
//! later, it has added the entry itself, and adding it again changes nothing. Later writers of the
//! row read them after this read's lock, hence after the definition. Entries are only ever added
//! for, and removed with, the row they belong to, so none is wrong; a writer may find the entry
//! that it removes missing, until the index is ready.
//!
//! A snapshot older than the build does not see its entries; such transactions may not read the
//! index (kind `Stale`), and may meet a `Conflict` when they write a row that the build has reached
//! since.
//!
//! A crash leaves an index in state building; the next opening drops it.

use crate::catalog::Catalog;
use crate::definition::Definition;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexDefinition, IndexSpec, IndexState, MAX_INDEXES};
use crate::index_handle::Index;
use crate::state::{LiveIndex, State};
use crate::table::Table;
use crate::write;
use firndb_base::TreeId;
use firndb_base::sync::{Arc, thread};
use firndb_btree::Position;
use firndb_txn::{CancelToken, Course, Isolation, RowBatch, TxnErrorKind, TxnOptions};

/// How often in a row one leaf may lose a deadlock before the build gives up.
const ATTEMPTS_MAX: u32 = 1000;

impl Catalog {
    /// Creates an index on a table and fills it, while other transactions read and write. Durable
    /// when it returns. The caller should have no transaction open in this thread that has written
    /// to the table: the build would wait for it.
    ///
    /// Errors: `Duplicate` if rows violate a unique index, `Exists`, `BadArgument`, and the
    /// transaction's; the table is then as it was. `cancel` ends it from outside.
    pub fn create_index(
        &self,
        table: &Table,
        spec: IndexSpec,
        cancel: Option<CancelToken>,
    ) -> Result<Index, TableError> {
        self.check_own(table)?;
        let _change = table.shared.definition_change.lock();
        let tree = self.define(table, spec)?;
        let built = self.fill(table, tree, cancel).and_then(|()| self.declare_ready(table, tree));
        match built {
            Ok(()) => Ok(Index { table: table.clone(), tree }),
            // The next opening knows whether it is ready or to be dropped; nothing can be done
            // before.
            Err(error) if error.kind == TableErrorKind::Transaction(TxnErrorKind::Unknown) => Err(error),
            Err(error) => match self.take_index_out(table, tree) {
                Ok(()) => Err(error),
                Err(worse) => {
                    // The next step, or the next opening, drops it.
                    self.leftovers.lock().push((table.id(), tree));
                    let message = format!("{error}; and the unfinished index could not be dropped: {worse}");
                    Err(TableError::new(worse.kind, message))
                }
            },
        }
    }

    fn define(&self, table: &Table, spec: IndexSpec) -> Result<TreeId, TableError> {
        let _writing = self.writing.lock();
        let state = table.shared.state()?;
        spec.check(state.kind())?;
        let name = &state.definition.name;
        if state.definition.index(&spec.name).is_some() {
            let message = format!("table {name:?} has an index {:?} already", spec.name);
            return Err(TableError::new(TableErrorKind::Exists, message));
        }
        if state.indexes.len() >= MAX_INDEXES {
            return Err(TableError::bad_argument(format!(
                "table {name:?} has {MAX_INDEXES} indexes, which is the limit"
            )));
        }
        let (definition, index) = self.commit(|txn| {
            let tree = txn.create_tree()?;
            let index =
                IndexDefinition { spec, tree: tree.id(), root: tree.root(), state: IndexState::Building };
            let mut definition = state.definition.clone();
            definition.indexes.push(index.clone());
            self.write_definition(txn, &definition)?;
            Ok((definition, LiveIndex { definition: index, tree: Arc::new(tree), usable_past: None }))
        })?;
        let tree = index.tree.id();
        let indexes = state.indexes.iter().cloned().chain([index]).collect();
        table.shared.exchange(Some(state.redefined(definition, indexes)));
        Ok(tree)
    }

    fn fill(&self, table: &Table, tree: TreeId, cancel: Option<CancelToken>) -> Result<(), TableError> {
        // The table's definition cannot change meanwhile: the caller holds `definition_change`.
        let state = table.shared.state()?;
        let index = state.index(tree).expect("defined just now");
        let options = TxnOptions {
            isolation: Isolation::Serializable,
            cancel: cancel.clone(),
            ..TxnOptions::default()
        };
        let mut batch = RowBatch::new();
        let mut from = Some(Position::Start);
        let mut attempts = 0;
        while let Some(position) = &from {
            if cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                let message = format!("building index {:?} was cancelled", index.definition.spec.name);
                return Err(TableError::new(TableErrorKind::Transaction(TxnErrorKind::Cancelled), message));
            }
            match self.fill_leaf(&state, index, position, &options, &mut batch) {
                Ok(next) => {
                    from = next;
                    attempts = 0;
                }
                Err(error) if error.is_retryable() && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds the entries of one leaf's rows; returns where to continue.
    fn fill_leaf(
        &self,
        state: &State,
        index: &LiveIndex,
        from: &Position,
        options: &TxnOptions,
        batch: &mut RowBatch,
    ) -> Result<Option<Position>, TableError> {
        let mut txn = self.manager.begin(options.clone());
        let next = txn.scan(&state.tree, from, Course::forward(None), batch)?;
        let (mut entry, mut large) = (Entry::default(), Vec::new());
        for (at, (key, stored)) in batch.iter().enumerate() {
            let value = if batch.flag(at) {
                if !state.get_stored_large(&mut txn, key, stored, &mut large)? {
                    continue;
                }
                &large
            } else {
                stored
            };
            index.entry(&state.source(key, value)?, &mut entry)?;
            write::add(&mut txn, state, index, &entry)?;
        }
        // Not waited for: the index is declared ready by a later commit, and the log keeps their
        // order.
        txn.commit_order()?;
        Ok(next)
    }

    fn declare_ready(&self, table: &Table, tree: TreeId) -> Result<(), TableError> {
        let _writing = self.writing.lock();
        let state = table.shared.state()?;
        let mut indexes = state.indexes.clone();
        let index = indexes.iter_mut().find(|index| index.tree.id() == tree).expect("defined by this build");
        index.definition.state = IndexState::Ready;
        let definitions = indexes.iter().map(|index| index.definition.clone()).collect();
        let definition = Definition { indexes: definitions, ..state.definition.clone() };
        self.commit(|txn| self.write_definition(txn, &definition))?;
        let fence = self.manager.fence();
        let index = indexes.iter_mut().find(|index| index.tree.id() == tree).expect("found just now");
        index.usable_past = Some(fence);
        table.shared.exchange(Some(state.redefined(definition, indexes)));
        Ok(())
    }
}
