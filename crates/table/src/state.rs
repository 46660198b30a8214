//! What a table is at one moment, for the statements that run on it.
//!
//! A statement takes the table's [`State`] (an `Arc`) and keeps it until it ends, and mostly its
//! transaction keeps it for the statements to come. Definition changes put another state in its
//! place; they never change one. Invariants:
//! * every state that names a tree holds that tree's `Arc`; so once the `Weak` of a dropped tree is
//!   dead, no statement that could touch the tree is running (see [`crate::drops`]);
//! * a statement that writes takes the state *again* once it has written the row itself, which
//!   locks the row, and keeps the indexes of that later state. An index build relies on it (see
//!   [`crate::build`]).

use crate::definition::Definition;
use crate::error::{TableError, TableErrorKind};
use crate::freshness::Freshness;
use crate::index::{IndexDefinition, IndexState, RowSource};
use crate::large::{self, Reference, ValueId};
use crate::large_read::{self, Behind};
use crate::live_index::{LiveIndex, is_usable};
use crate::planning::PlanningStatistics;
use crate::ranks;
use crate::rows::Rows;
use crate::table_kind::TableKind;
use crate::upkeep::{Notes, Upkeep};

use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex, RwLock};
use firndb_base::{TreeId, TxnId};
use firndb_btree::Tree;
use firndb_buffer::BufferPool;
use firndb_txn::{Keepable, Transaction, TxnManager};

/// A table at one moment.
pub(crate) struct State {
    pub(crate) definition: Definition,
    pub(crate) tree: Arc<Tree>,
    /// Large values of the rows.
    pub(crate) large: Option<Arc<Tree>>,
    pub(crate) behind: Behind,
    pub(crate) indexes: Vec<LiveIndex>,
    /// Whether entries of any index are made of more than primary keys.
    indexes_need_value: bool,
    /// Which state of the table this is: counts the exchanges.
    generation: u64,
    /// Rows were loaded with the table, as if they had always been there: snapshots taken before
    /// this transaction must not see them.
    pub(crate) usable_past: Option<TxnId>,
    /// Rows changed since the table was analyzed, about; one count for all states of the table.
    pub(crate) rows_changed: Arc<AtomicU64>,
}

impl Keepable for State {
    /// Not one atomic operation, which would be a noticeable part of what a short transaction's
    /// locks cost: when two threads add at the same time, one of the counts may be lost.
    fn rows_changed(&self, rows: u32) {
        let before = self.rows_changed.load(Ordering::Relaxed);
        self.rows_changed.store(before.saturating_add(u64::from(rows)), Ordering::Relaxed);
    }
}

impl State {
    /// The state of a table whose trees have not been opened.
    pub(crate) fn open(definition: Definition, pool: &Arc<BufferPool>) -> State {
        let tree_at = |(tree, root)| Arc::new(Tree::open(pool.clone(), tree, root));
        let open = |index: &IndexDefinition| LiveIndex {
            definition: index.clone(),
            tree: tree_at((index.tree, index.root)),
            usable_past: None,
            upkeep: match index.state {
                IndexState::Ready => Upkeep::Whole,
                IndexState::Building { notes } => Upkeep::Noted(Notes::new(tree_at(notes))),
            },
        };
        let tree = tree_at((definition.tree, definition.root));
        let large = definition.large.map(tree_at);
        let indexes = definition.indexes.iter().map(open).collect();
        State::new(definition, tree, large, indexes, 0)
    }

    fn new(
        definition: Definition,
        tree: Arc<Tree>,
        large: Option<Arc<Tree>>,
        indexes: Vec<LiveIndex>,
        generation: u64,
    ) -> State {
        let needs_value = |index: &LiveIndex| index.definition.spec.needs_value(&definition.kind);
        let indexes_need_value = indexes.iter().any(needs_value);
        State {
            definition,
            tree,
            large,
            behind: Behind::default(),
            indexes,
            indexes_need_value,
            generation,
            usable_past: None,
            rows_changed: Arc::default(),
        }
    }

    /// Trees to which transactions write that may have to be undone. Not those of indexes that are
    /// not loaded: their leaves may lack content, and they are dropped.
    pub(crate) fn trees_to_register(&self) -> impl Iterator<Item = Arc<Tree>> {
        let of_index = |index: &'_ LiveIndex| match &index.upkeep {
            Upkeep::Noted(notes) => notes.tree.clone(),
            _ => index.tree.clone(),
        };
        [Some(&self.tree), self.large.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .chain(self.indexes.iter().map(of_index))
    }

    /// Whether entries of any index are made of more than primary keys.
    pub(crate) fn indexes_need_value(&self) -> bool {
        self.indexes_need_value
    }

    /// The same table under a new definition, whose indexes are all among `indexes`.
    pub(crate) fn redefined(&self, definition: Definition, indexes: Vec<LiveIndex>) -> State {
        let (tree, large) = (self.tree.clone(), self.large.clone());
        let mut state = State::new(definition, tree, large, indexes, self.generation + 1);
        state.usable_past = self.usable_past;
        state.rows_changed = self.rows_changed.clone();
        assert_eq!(state.definition.indexes.len(), state.indexes.len());
        for (defined, live) in state.definition.indexes.iter().zip(&state.indexes) {
            assert!(*defined == live.definition && defined.tree == live.tree.id());
        }
        state
    }

    /// The tree of large values, of a table that has any.
    pub(crate) fn large_tree(&self) -> Result<&Tree, TableError> {
        self.large.as_deref().ok_or_else(|| {
            TableError::damaged(format!("table {:?} cannot have large values", self.definition.name))
        })
    }

    /// The reference that a flagged row holds.
    pub(crate) fn reference(&self, key: &[u8], bytes: &[u8]) -> Result<Reference, TableError> {
        Reference::decode(bytes).map_err(|_| large::not_whole(&self.definition.name, key))
    }

    /// Reads the row at `key` into `out`; false if there is none.
    pub(crate) fn get(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        // The snapshot is kept until a large value is read: so it is not freed meanwhile.
        txn.in_one_statement(|txn| {
            let flag = txn.get_flagged(&self.tree, key, out)?;
            self.complete(txn, key, flag, out)
        })
    }

    /// As [`State::get`], of many rows: `rows` are those of `keys`, by number; none after an error.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), TableError> {
        rows.fill(keys.len(), |rows| {
            txn.in_one_statement(|txn| {
                txn.get_many(&self.tree, keys, |number, row| rows.set(number, row))?;
                self.complete_all(txn, keys, rows)
            })
        })
    }

    /// As [`Table::get_many_that_fit`].
    ///
    /// [`Table::get_many_that_fit`]: crate::table::Table::get_many_that_fit
    pub(crate) fn get_many_that_fit<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
        mut fits: impl FnMut(usize, usize) -> bool,
    ) -> Result<usize, TableError> {
        let mut fitting = 0;
        rows.fill(keys.len(), |rows| {
            rows.reserve(keys.len() * firndb_txn::max_row_len(self.tree.pool().page_size()));
            txn.in_one_statement(|txn| {
                txn.get_many(&self.tree, keys, |number, row| rows.set(number, row))?;
                let (mut values, mut longest) = (0, 0);
                for (number, key) in keys.iter().enumerate() {
                    let mut len = 0;
                    if rows.is_large(number) {
                        let stored = rows.get(number).expect("a reference is there");
                        len = self.reference(key.as_ref(), stored)?.len as usize;
                    }
                    longest = longest.max(len);
                    // The longest is there twice while it is copied.
                    if !fits(number, rows.memory_with(values + len) + longest) {
                        break;
                    }
                    (fitting, values) = (number + 1, values + len);
                }
                rows.truncate(fitting);
                rows.reserve(values);
                self.complete_all(txn, &keys[..fitting], rows)
            })
        })?;
        Ok(fitting)
    }

    /// As [`State::get_many`], locking the rows.
    pub(crate) fn get_many_for_update<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), TableError> {
        rows.fill(keys.len(), |rows| {
            txn.get_many_for_update(&self.tree, keys, |number, row| rows.set(number, row))?;
            self.complete_all(txn, keys, rows)
        })
    }

    /// As [`State::complete`], of all rows that have just been read.
    fn complete_all<K: AsRef<[u8]>>(
        &self,
        txn: &Transaction,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), TableError> {
        let mut value = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            if !rows.is_large(number) {
                continue;
            }
            value.clear();
            value.extend_from_slice(rows.get(number).expect("a reference is there"));
            self.complete(txn, key.as_ref(), Some(true), &mut value)?;
            rows.set(number, Some((&value, false)));
        }
        Ok(())
    }

    /// As [`State::get`], locking the row.
    pub(crate) fn get_for_update(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        let flag = txn.get_for_update_flagged(&self.tree, key, out)?;
        self.complete(txn, key, flag, out)
    }

    /// Replaces the reference in `out`, if the row read just now has one, by the value. The
    /// transaction still has what it read the row by, its snapshot or its lock; so the value has
    /// not been freed.
    pub(crate) fn complete(
        &self,
        txn: &Transaction,
        key: &[u8],
        flag: Option<bool>,
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        match flag {
            None => return Ok(false),
            Some(false) => return Ok(true),
            Some(true) => {}
        }
        let reference = self.reference(key, out)?;
        if !large_read::read(txn, self, reference, out)? {
            return Err(large::not_whole(&self.definition.name, key));
        }
        Ok(true)
    }

    /// As [`State::get`], for a row that was read earlier in the statement, as `stored`: after a
    /// rollback to a savepoint the value that this transaction itself had written may be undone.
    /// Then the row is read again.
    pub(crate) fn get_stored_large(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        let reference = self.reference(key, stored)?;
        // Parts of the value may be half undone.
        txn.begin_statement()?;
        if large_read::read(txn, self, reference, out)? {
            return Ok(true);
        }
        self.get(txn, key, out)
    }

    pub(crate) fn kind(&self) -> &TableKind {
        &self.definition.kind
    }

    pub(crate) fn index(&self, tree: TreeId) -> Option<&LiveIndex> {
        self.indexes.iter().find(|index| index.tree.id() == tree)
    }

    /// The row as entries are made from it, without its value if they need none.
    pub(crate) fn source_with<'a>(
        &'a self,
        needs_value: bool,
        key: &'a [u8],
        value: &'a [u8],
    ) -> Result<RowSource<'a>, TableError> {
        if needs_value { self.source(key, value) } else { Ok(RowSource::of_key(self.kind(), key)) }
    }

    /// The row as entries are made from it.
    pub(crate) fn source<'a>(&'a self, key: &'a [u8], value: &'a [u8]) -> Result<RowSource<'a>, TableError> {
        RowSource::new(self.kind(), key, value).map_err(|error| {
            TableError::damaged(format!(
                "row {} of table {:?}: {error}",
                crate::show::Bytes(key),
                self.definition.name
            ))
        })
    }
}

/// Values of one table that wait to be freed.
#[derive(Debug, Default)]
pub(crate) struct Reaping {
    /// All of them are marked, and the marks were committed before the fence was taken.
    pub(crate) batch: Vec<ValueId>,
    pub(crate) fence: Option<TxnId>,
    /// Not tried again before the next opening.
    pub(crate) set_aside: bool,
}

/// A table, shared by all its handles.
pub(crate) struct Shared {
    pub(crate) id: TreeId,
    pub(crate) manager: Arc<TxnManager>,
    /// The present state; `None` once the table is dropped. The lock is held only to copy or
    /// exchange the `Arc`.
    state: RwLock<Option<Arc<State>>>,
    /// That of the present state; past all of them once the table is dropped. Written under
    /// `state`.
    generation: AtomicU64,
    /// The last list of rows to be changed met leaves that were not in memory. A hint.
    pub(crate) leaves_are_missing: AtomicBool,
    /// Whether large values may be marked to be freed.
    pub(crate) has_marks: AtomicBool,
    /// Held by the background step that frees them.
    pub(crate) reaping: Mutex<Reaping>,
    /// Held while the table's definition is being changed, index builds included. Taken before
    /// every other lock of this crate.
    pub(crate) definition_change: Mutex<()>,
    /// Raised once new statistics are committed.
    pub(crate) statistics_version: AtomicU64,
    /// The statistics as they were read last, with the version that they are of. Held briefly.
    pub(crate) statistics: Mutex<Option<(u64, Option<Arc<PlanningStatistics>>)>>,
    /// How the statistics stand to the table. Locked alone.
    pub(crate) freshness: Mutex<Freshness>,
}

impl Shared {
    pub(crate) fn new(manager: Arc<TxnManager>, state: State) -> Shared {
        Shared {
            id: state.tree.id(),
            manager,
            generation: AtomicU64::new(state.generation),
            state: ranks::STATE.rwlock(Some(Arc::new(state))),
            leaves_are_missing: AtomicBool::new(false),
            // Until a scan of the tree shows otherwise: an earlier epoch may have left some.
            has_marks: AtomicBool::new(true),
            reaping: Mutex::default(),
            definition_change: ranks::DEFINITION.mutex(()),
            statistics_version: AtomicU64::new(0),
            statistics: Mutex::default(),
            freshness: Mutex::default(),
        }
    }

    /// The present state, or why there is none.
    pub(crate) fn state(&self) -> Result<Arc<State>, TableError> {
        self.state.read().clone().ok_or_else(|| {
            let message = format!("the table of {} was dropped; look it up again by name", self.id);
            TableError::new(TableErrorKind::Dropped, message)
        })
    }

    /// The present state, if it is another than `known`.
    pub(crate) fn newer(&self, known: &State) -> Result<Option<Arc<State>>, TableError> {
        if self.generation.load(Ordering::SeqCst) == known.generation {
            return Ok(None);
        }
        self.state().map(Some)
    }

    /// As [`Shared::state`], for a statement of `txn`.
    pub(crate) fn state_for(&self, txn: &Transaction) -> Result<Arc<State>, TableError> {
        self.check_owner(txn)?;
        let state = self.state()?;
        if is_usable(txn, state.usable_past) {
            return Ok(state);
        }
        let message = format!(
            "table {:?} was loaded after the transaction's snapshot; begin a new one",
            state.definition.name
        );
        Err(TableError::new(TableErrorKind::Stale, message))
    }

    /// Runs a statement of `txn` on the present state.
    #[inline]
    pub(crate) fn run<R>(
        &self,
        txn: &mut Transaction,
        statement: impl FnOnce(&mut Transaction, &State) -> Result<R, TableError>,
    ) -> Result<R, TableError> {
        // Held to the end: it keeps the tree from being cleared under the statement.
        let (state, changed) = self.take_state(txn)?;
        let outcome = statement(txn, &state);
        self.keep_state(txn, state, changed);
        outcome
    }

    /// As [`Shared::run`], of a statement that changes as many rows as `rows` says of its outcome.
    #[inline]
    pub(crate) fn run_change<R>(
        &self,
        txn: &mut Transaction,
        statement: impl FnOnce(&mut Transaction, &State) -> Result<R, TableError>,
        rows: impl FnOnce(&R) -> u32,
    ) -> Result<R, TableError> {
        let (state, changed) = self.take_state(txn)?;
        let outcome = statement(txn, &state);
        let rows = outcome.as_ref().map_or(0, rows);
        self.keep_state(txn, state, changed.saturating_add(rows));
        outcome
    }

    /// The present state, for a statement of `txn`, and the rows of the table that it has changed:
    /// the statement returns both by [`Shared::keep_state`].
    #[inline]
    pub(crate) fn take_state(&self, txn: &mut Transaction) -> Result<(Arc<State>, u32), TableError> {
        self.check_owner(txn)?;
        match txn.kept().take::<State>(self.id) {
            Some((state, changed)) if self.generation.load(Ordering::SeqCst) == state.generation => {
                Ok((state, changed))
            }
            other => Ok((self.state_for(txn)?, other.map_or(0, |(_, changed)| changed))),
        }
    }

    /// Keeps the state with the transaction: its next statement shares no memory with other threads
    /// to get it.
    #[inline]
    pub(crate) fn keep_state(&self, txn: &mut Transaction, state: Arc<State>, changed: u32) {
        txn.kept().put(self.id, state, changed);
    }

    /// Whether `txn` is of this database, and the table is not dropped.
    #[inline]
    pub(crate) fn is_usable_by(&self, txn: &Transaction) -> bool {
        self.is_owner(txn) && self.generation.load(Ordering::SeqCst) != u64::MAX
    }

    #[inline]
    fn is_owner(&self, txn: &Transaction) -> bool {
        Arc::ptr_eq(txn.manager(), &self.manager)
    }

    fn check_owner(&self, txn: &Transaction) -> Result<(), TableError> {
        match self.is_owner(txn) {
            true => Ok(()),
            false => {
                Err(TableError::bad_argument("the transaction belongs to another database than the table"))
            }
        }
    }

    /// Puts another state in place, or none.
    pub(crate) fn exchange(&self, state: Option<State>) {
        let mut present = self.state.write();
        let is_newer = |state: &State| present.as_ref().is_none_or(|old| old.generation < state.generation);
        debug_assert!(state.as_ref().is_none_or(is_newer), "no state is put in place twice");
        self.generation.store(state.as_ref().map_or(u64::MAX, |state| state.generation), Ordering::SeqCst);
        *present = state.map(Arc::new);
    }
}
