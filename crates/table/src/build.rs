//! Building an index on a table with rows, while others read and write it.
//!
//! 1. The index is defined, in state *building*, with an empty tree and a tree for notes. From now
//!    on writers note their changes of it ([`crate::notes`]), and no reader uses it.
//! 2. Leaf by leaf, in a short serializable transaction each, the rows are read, and their entries
//!    sorted, in memory and beyond it on the spill device.
//! 3. The tree is loaded with the sorted entries: its leaves are not logged where page files are
//!    not.
//! 4. Writers keep the tree from now on, and what they noted is settled.
//! 5. The index is declared *ready*, and the notes are dropped.
//!
//! Why every row ends up with its entry: a serializable read waits for the writers of the rows it
//! reads and then blocks new ones. So when a leaf is read, the last writer W of each of its rows
//! has ended. A writer reads which indexes to maintain *after* it has locked the row. If W read
//! them before the index was defined, its row is seen now; if W read them later, it has noted the
//! change, and doing that again changes nothing. Later writers of the row read them after this
//! read's lock, hence after the definition, and note what they change.
//!
//! A snapshot older than the build does not see its entries; such transactions may not read the
//! index (kind `Stale`), and may meet a `Conflict` when they write a row whose note was settled
//! since.
//!
//! Without a spill device, entries beyond memory are inserted in sorted pieces, as writers insert.
//!
//! A crash leaves an index in state building; the next opening drops it. Its tree may have leaves
//! without content, so nothing reads leaves of it before step 4, what frees it included.

use crate::catalog::Catalog;
use crate::catalog_rows::{self, TreeRow};
use crate::definition::Definition;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexDefinition, IndexSpec, IndexState, MAX_INDEXES};
use crate::index_handle::Index;
use crate::live_index::{LiveIndex, duplicate};
use crate::naming::Naming;
use crate::notes::lead;
use crate::state::State;
use crate::table::Table;
use crate::upkeep::{Notes, Upkeep};
use firndb_base::TreeId;
use firndb_base::sync::{Arc, thread};
use firndb_btree::{Direction, Position, Visit};
use firndb_spill::{Memory, Sorted, Sorter, SpillSpace};
use firndb_txn::{
    CancelToken, Course, Isolation, LoadedRow, RowBatch, Transaction, TxnErrorKind, TxnOptions,
    check_row_size,
};

/// How often in a row one leaf may lose a deadlock before the build gives up.
const ATTEMPTS_MAX: u32 = 1000;
/// Entries that one transaction inserts, where there is no space to sort them.
const INSERTED_TOGETHER: usize = 256;

/// What an index build may use.
#[derive(Clone)]
pub struct BuildLimits {
    /// Bytes of memory for entries that are being sorted, at least [`BuildLimits::MEMORY_MIN`].
    pub memory: usize,
    /// Where entries go that do not fit.
    pub spill: Option<Arc<SpillSpace>>,
    /// Ends the build from outside.
    pub cancel: Option<CancelToken>,
}

impl BuildLimits {
    pub const MEMORY: usize = 64 << 20;
    pub const MEMORY_MIN: usize = 64 << 10;

    fn memory(&self) -> usize {
        self.memory.max(BuildLimits::MEMORY_MIN)
    }
}

impl Default for BuildLimits {
    fn default() -> BuildLimits {
        BuildLimits { memory: BuildLimits::MEMORY, spill: None, cancel: None }
    }
}

/// A build under way.
struct Build<'a> {
    catalog: &'a Catalog,
    table: &'a Table,
    limits: &'a BuildLimits,
    tree: TreeId,
}

impl Catalog {
    /// Creates an index on a table and fills it, while other transactions read and write. Durable
    /// when it returns. The caller should have no transaction open in this thread that has written
    /// to the table: the build would wait for it.
    ///
    /// Errors: `Duplicate` if rows violate a unique index, `Exists`, `BadArgument`, those of the
    /// spill device, and the transaction's; the table is then as it was.
    pub fn create_index(
        &self,
        table: &Table,
        spec: IndexSpec,
        limits: &BuildLimits,
    ) -> Result<Index, TableError> {
        self.create_index_begun(table, spec, limits, &mut || {})
    }

    /// As [`Catalog::create_index`]; calls `begun` when the index is defined, and has no entry yet.
    pub fn create_index_begun(
        &self,
        table: &Table,
        spec: IndexSpec,
        limits: &BuildLimits,
        begun: &mut dyn FnMut(),
    ) -> Result<Index, TableError> {
        self.check_own(table)?;
        let _change = table.shared.definition_change.lock();
        let tree = self.define(table, spec)?;
        begun();
        let build = Build { catalog: self, table, limits, tree };
        match build.run() {
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
            let (tree, notes) = (txn.create_private_tree()?, txn.create_tree()?);
            let building = IndexState::Building { notes: (notes.id(), notes.root()) };
            let index = IndexDefinition { spec, tree: tree.id(), root: tree.root(), state: building };
            let mut definition = state.definition.clone();
            definition.indexes.push(index.clone());
            self.write_definition(txn, &definition)?;
            let upkeep = Upkeep::Noted(Notes::new(Arc::new(notes)));
            Ok((definition, LiveIndex { definition: index, tree: Arc::new(tree), usable_past: None, upkeep }))
        })?;
        let tree = index.tree.id();
        let indexes = state.indexes.iter().cloned().chain([index]).collect();
        table.shared.exchange(Some(state.redefined(definition, indexes)));
        Ok(tree)
    }
}

impl Build<'_> {
    fn run(&self) -> Result<(), TableError> {
        let state = self.table.shared.state()?;
        let index = state.index(self.tree).expect("defined just now");
        let Upkeep::Noted(notes) = &index.upkeep else { unreachable!("defined so") };
        let memory = Memory::new("index build", 2 * self.limits.memory());
        let mut sorter = self.sorter(&memory);
        let inserted = self.collect(&state, index, &memory, &mut sorter)?;
        let sorted = sorter.finish(|| self.check_cancelled())?;
        match inserted {
            false => self.load(&state, index, sorted)?,
            true => self.insert(&state, index, sorted)?,
        }
        self.exchange(|live| live.upkeep = Upkeep::Settled(notes.clone()))?;
        notes.close();
        let settled = self.table.shared.state()?;
        self.settle(&settled, notes)?;
        self.declare_ready(notes)
    }

    fn sorter(&self, memory: &Arc<Memory>) -> Sorter {
        Sorter::new(memory, self.limits.memory(), self.limits.spill.clone())
    }

    fn check_cancelled(&self) -> Result<(), TableError> {
        if self.limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            let kind = TableErrorKind::Transaction(TxnErrorKind::Cancelled);
            return Err(TableError::new(kind, "building an index was cancelled"));
        }
        Ok(())
    }

    fn begin(&self) -> Transaction {
        self.catalog.manager.begin(TxnOptions {
            isolation: Isolation::Serializable,
            cancel: self.limits.cancel.clone(),
            ..TxnOptions::default()
        })
    }

    /// Runs `work` in a short serializable transaction, again after a deadlock.
    fn attempt<R>(
        &self,
        mut work: impl FnMut(&mut Transaction) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        let mut attempts = 0;
        loop {
            self.check_cancelled()?;
            let mut txn = self.begin();
            // Not waited for: the index is declared ready by a later commit, and the log keeps
            // their order.
            let outcome = work(&mut txn).and_then(|done| {
                txn.commit_order()?;
                Ok(done)
            });
            match outcome {
                Err(error) if error.is_retryable() && attempts < ATTEMPTS_MAX => attempts += 1,
                outcome => return outcome,
            }
            thread::yield_now();
        }
    }

    /// Gives the entries of all rows to the sorter. Where it has no space for more, inserts those
    /// that it has; whether that was done.
    fn collect(
        &self,
        state: &State,
        index: &LiveIndex,
        memory: &Arc<Memory>,
        sorter: &mut Sorter,
    ) -> Result<bool, TableError> {
        let (mut from, mut inserted) = (Some(Position::Start), false);
        let (mut batch, mut entries) = (RowBatch::new(), Vec::new());
        while let Some(position) = &from {
            from = self.attempt(|txn| read_leaf(txn, (state, index), position, &mut batch, &mut entries))?;
            for Entry { key, value } in entries.drain(..) {
                if self.limits.spill.is_none() && !sorter.has_memory_for(key.len() + value.len()) {
                    inserted = true;
                    let full = std::mem::replace(sorter, self.sorter(memory));
                    self.insert(state, index, full.finish(|| self.check_cancelled())?)?;
                }
                sorter.push(&key, &value)?;
            }
        }
        Ok(inserted)
    }

    /// Loads the empty tree.
    fn load(&self, state: &State, index: &LiveIndex, mut sorted: Sorted) -> Result<(), TableError> {
        let (manager, unique) = (&self.catalog.manager, index.definition.spec.unique);
        let (txn, mut last) = (self.begin(), None::<Entry>);
        let mut next = || loop {
            let Some((key, value)) = sorted.next_row()? else { return Ok(last.take()) };
            let entry = Entry { key: key.to_vec(), value: value.to_vec() };
            match &mut last {
                // Two rows had it, one after the other, or have it now.
                Some(last) if unique && last.key == entry.key => {
                    match state.have_entry(&txn, index, [&last.value, &entry.value], key)? {
                        [true, true] => return Err(duplicate(&state.definition, index, key)?),
                        [false, true] => *last = entry,
                        [_, false] => {}
                    }
                }
                last => {
                    if let Some(entry) = last.replace(entry) {
                        return Ok(Some(entry));
                    }
                }
            }
        };
        let rows = std::iter::from_fn(|| {
            let row = self.check_cancelled().and_then(|()| next());
            row.map(|entry| entry.map(|Entry { key, value }| LoadedRow::new(key, (&value[..]).into())))
                .transpose()
        });
        manager.fill_tree(&index.tree, rows)?;
        self.register(index);
        Ok(())
    }

    /// From now on transactions may write to the tree: what they write may have to be undone.
    fn register(&self, index: &LiveIndex) {
        self.catalog.manager.register_tree((*index.tree).clone());
    }

    /// Inserts entries as writers do.
    fn insert(&self, state: &State, index: &LiveIndex, mut sorted: Sorted) -> Result<(), TableError> {
        self.register(index);
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            entries.clear();
            while entries.len() < INSERTED_TOGETHER
                && let Some((key, value)) = sorted.next_row()?
            {
                entries.push(Entry { key: key.to_vec(), value: value.to_vec() });
            }
            if entries.is_empty() {
                return Ok(());
            }
            self.attempt(|txn| {
                for entry in &entries {
                    if !lead(txn, state, index, entry)? {
                        return Err(duplicate(&state.definition, index, &entry.key)?);
                    }
                }
                Ok(())
            })?;
        }
    }

    /// Settles all notes. No writer adds one that it does not settle itself; one whose transaction
    /// has not ended is waited for.
    fn settle(&self, state: &State, notes: &Notes) -> Result<(), TableError> {
        let index = state.index(self.tree).expect("it is being built");
        let (mut from, mut keys) = (Some(Position::Start), Vec::new());
        while let Some(position) = from {
            keys.clear();
            // Whether a key has a note now is seen once it is locked.
            from = notes.tree.visit_leaf(&position, Direction::Forward, |key, _| {
                keys.push(key.to_vec());
                Visit::Continue
            })?;
            for key in &keys {
                // Committed notes alone are seen here.
                if !self.attempt(|txn| notes.settle(txn, state, index, key))? {
                    return Err(duplicate(&state.definition, index, key)?);
                }
            }
        }
        Ok(())
    }

    fn exchange(&self, change: impl FnOnce(&mut LiveIndex)) -> Result<(), TableError> {
        let _writing = self.catalog.writing.lock();
        let state = self.table.shared.state()?;
        let mut indexes = state.indexes.clone();
        change(self.own(&mut indexes));
        self.table.shared.exchange(Some(state.redefined(state.definition.clone(), indexes)));
        Ok(())
    }

    fn own<'i>(&self, indexes: &'i mut [LiveIndex]) -> &'i mut LiveIndex {
        indexes.iter_mut().find(|index| index.tree.id() == self.tree).expect("defined by this build")
    }

    fn declare_ready(&self, notes: &Arc<Notes>) -> Result<(), TableError> {
        let Build { catalog, table, .. } = self;
        let _writing = catalog.writing.lock();
        let state = table.shared.state()?;
        let mut indexes = state.indexes.clone();
        self.own(&mut indexes).definition.state = IndexState::Ready;
        let definitions = indexes.iter().map(|index| index.definition.clone()).collect();
        let definition = Definition { indexes: definitions, ..state.definition.clone() };
        catalog.commit(|txn| {
            catalog.write_definition(txn, &definition)?;
            let (tree, root) = (notes.tree.id(), notes.tree.root());
            catalog_rows::write_dropped(txn, &catalog.system, TreeRow { tree, root, naming: Naming::None })
        })?;
        let index = self.own(&mut indexes);
        index.usable_past = Some(catalog.manager.fence());
        index.upkeep = Upkeep::Whole;
        // Listed before nothing else names it.
        catalog.will_free(&notes.tree, Naming::None, format!("notes on an index of {}", table.id()));
        table.shared.exchange(Some(state.redefined(definition, indexes)));
        Ok(())
    }
}

/// Replaces `entries` by those of one leaf's rows; returns where to continue.
fn read_leaf(
    txn: &mut Transaction,
    (state, index): (&State, &LiveIndex),
    from: &Position,
    batch: &mut RowBatch,
    entries: &mut Vec<Entry>,
) -> Result<Option<Position>, TableError> {
    entries.clear();
    let needs_value = index.definition.spec.needs_value(state.kind());
    let next = txn.scan(&state.tree, from, Course::forward(None), batch)?;
    let mut large = Vec::new();
    for (at, (key, stored)) in batch.iter().enumerate() {
        let value = if batch.flag(at) && needs_value {
            if !state.get_stored_large(txn, key, stored, &mut large)? {
                continue;
            }
            &large
        } else {
            stored
        };
        let mut entry = Entry::default();
        index.entry(&state.source_with(needs_value, key, value)?, &mut entry)?;
        check_row_size(&index.tree, &entry.key, &entry.value)?;
        entries.push(entry);
    }
    Ok(next)
}
