//! Reading through an index.

use crate::cursor::{CursorStatement, KeyAndValue};
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexDefinition};
use crate::range::KeyRange;
use crate::state::{LiveIndex, State};
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::value::ValueRef;
use crate::walk::Walk;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Direction;
use firndb_txn::{Isolation, Transaction};

impl Table {
    /// One of its indexes.
    pub fn index(&self, name: &str) -> Result<Index, TableError> {
        let state = self.shared.state()?;
        match state.definition.index(name) {
            Some(at) => Ok(Index { table: self.clone(), tree: state.indexes[at].tree.id() }),
            None => Err(TableError::new(
                TableErrorKind::NotFound,
                format!("table {:?} has no index {name:?}", state.definition.name),
            )),
        }
    }
}

/// An index of a table. Cheap to clone. Once the index is dropped, every use fails with kind
/// `Dropped`.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) table: Table,
    pub(crate) tree: TreeId,
}

impl Index {
    /// The table it belongs to.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn definition(&self) -> Result<IndexDefinition, TableError> {
        let state = self.table.shared.state()?;
        Ok(self.live(&state)?.definition.clone())
    }

    /// Encodes values of its first columns as the beginning of its keys, for [`KeyRange::prefix`]
    /// and [`KeyRange::of_prefixes`]. For indexes of typed tables. Appends to `key`.
    pub fn encode(&self, values: &[ValueRef<'_>], key: &mut Vec<u8>) -> Result<(), TableError> {
        let state = self.table.shared.state()?;
        let index = self.live(&state)?;
        match state.kind() {
            TableKind::Typed(schema) => index.definition.spec.encode_prefix(schema, values, key),
            TableKind::Raw => {
                Err(TableError::bad_argument("a raw table's index keys are the bytes themselves"))
            }
        }
    }

    /// Looks up the row with this key (all index columns, none NULL) in a unique index: its primary
    /// key and its bytes. False if there is none.
    pub fn get(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        primary_key: &mut Vec<u8>,
        row: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        let state = self.table.state_for(txn)?;
        let index = self.live(&state)?;
        index.check_readable(txn)?;
        if !index.definition.spec.unique {
            let name = &index.definition.spec.name;
            return Err(TableError::bad_argument(format!("index {name:?} is not unique: scan it")));
        }
        txn.in_one_statement(|txn| {
            if !txn.get(&index.tree, key, primary_key)? || !state.get(txn, primary_key, row)? {
                return Ok(false);
            }
            let mut entry = Entry::default();
            self.entry_of_read(&state, index, primary_key, row, &mut entry)?;
            Ok(entry.key == key)
        })
    }

    /// Replaces `entry` by the index entry of a row that a statement has read, which took `state`
    /// before. The row may hold a column that was added in between.
    fn entry_of_read(
        &self,
        state: &State,
        index: &LiveIndex,
        primary_key: &[u8],
        row: &[u8],
        entry: &mut Entry,
    ) -> Result<(), TableError> {
        let newer = self.table.shared.newer(state)?;
        let state = newer.as_deref().unwrap_or(state);
        index.entry(&state.source(primary_key, row)?, entry)
    }

    /// Rows whose index keys lie in a range, in the order of the index or against it.
    #[must_use]
    pub fn scan(&self, range: KeyRange, direction: Direction) -> IndexCursor {
        IndexCursor {
            index: self.clone(),
            walk: Walk::new(range, direction),
            for_update: false,
            row: Vec::new(),
            entry: Entry::default(),
            statement: CursorStatement::default(),
        }
    }

    /// About how many rows lie in a range of index keys, from a few page reads.
    pub fn estimate(&self, range: &KeyRange) -> Result<u64, TableError> {
        let state = self.table.shared.state()?;
        let index = self.live(&state)?;
        if range.is_empty() { Ok(0) } else { Ok(index.tree.estimate(range.low(), range.high())?) }
    }

    fn live<'a>(&self, state: &'a State) -> Result<&'a LiveIndex, TableError> {
        state.index(self.tree).ok_or_else(|| {
            let table = &state.definition.name;
            let message = format!("an index of table {table:?} was dropped; look it up again by name");
            TableError::new(TableErrorKind::Dropped, message)
        })
    }
}

/// One row found through an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRow<'a> {
    /// The entry's key: the index columns, and in most indexes the primary key behind them.
    pub index_key: &'a [u8],
    /// The row's primary key.
    pub primary_key: &'a [u8],
    pub row: &'a [u8],
}

/// Rows in the order of an index. Reads as [`crate::cursor::Cursor`] does.
pub struct IndexCursor {
    index: Index,
    walk: Walk,
    for_update: bool,
    row: Vec<u8>,
    /// That of the row.
    entry: Entry,
    statement: CursorStatement,
}

impl IndexCursor {
    /// The same cursor, locking every row that it returns.
    #[must_use]
    pub fn for_update(self) -> IndexCursor {
        IndexCursor { for_update: true, ..self }
    }

    /// The next row, borrowed until the next call. `None` at the end.
    ///
    /// An entry whose row this transaction itself has deleted or changed since the entry's leaf was
    /// read is skipped. A cursor for update delivers the newest version of the row; under read
    /// committed that may differ from the one that the scan saw, and is delivered if its own entry
    /// lies in the range, else skipped.
    ///
    /// Errors: as [`crate::cursor::Cursor::next`].
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<IndexRow<'_>>, TableError> {
        let state: Arc<State> = self.index.table.state_for(txn)?;
        let index = self.index.live(&state)?;
        index.check_readable(txn)?;
        self.statement.belongs_to(txn)?;
        loop {
            if !self.statement.advance(txn, &mut self.walk, &index.tree, None)? {
                return Ok(None);
            }
            match self.fetch(txn, &state, index) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    self.walk.step_back();
                    return Err(error);
                }
            }
        }
        let (key, value) = self.walk.current();
        let primary_key = index.definition.spec.primary_key(state.kind(), key, value)?;
        Ok(Some(IndexRow { index_key: &self.entry.key, primary_key, row: &self.row }))
    }

    /// Reads the row of the current entry; false if it is to be skipped.
    fn fetch(&mut self, txn: &mut Transaction, state: &State, index: &LiveIndex) -> Result<bool, TableError> {
        let IndexCursor { index: handle, walk, for_update, row, entry, statement } = self;
        let (key, value) = walk.current();
        let primary_key = index.definition.spec.primary_key(state.kind(), key, value)?;
        let found = if *for_update {
            state.get_for_update(txn, primary_key, row)?
        } else {
            txn.in_statement(&mut statement.view, |txn| state.get(txn, primary_key, row))?
        };
        if !found {
            return Ok(false);
        }
        handle.entry_of_read(state, index, primary_key, row, entry)?;
        if entry.key == key {
            return Ok(true);
        }
        if !*for_update || txn.isolation() != Isolation::ReadCommitted || !walk.covers(&entry.key) {
            return Ok(false);
        }
        // Others have changed the row since the scan's snapshot, in which it has this one entry, or
        // this transaction has: then the scan comes, or has come, to the row's new entry, too.
        let (mut seen, mut seen_entry) = (Vec::new(), Entry::default());
        if !txn.in_statement(&mut statement.view, |txn| state.get(txn, primary_key, &mut seen))? {
            return Ok(false);
        }
        handle.entry_of_read(state, index, primary_key, &seen, &mut seen_entry)?;
        Ok(seen_entry.key == key)
    }

    /// The next entry's key and primary key, without reading the row: for queries that the index
    /// alone covers.
    pub fn next_entry(&mut self, txn: &mut Transaction) -> Result<Option<KeyAndValue<'_>>, TableError> {
        let state: Arc<State> = self.index.table.state_for(txn)?;
        let index = self.index.live(&state)?;
        index.check_readable(txn)?;
        self.statement.belongs_to(txn)?;
        if !self.statement.advance(txn, &mut self.walk, &index.tree, None)? {
            return Ok(None);
        }
        let (key, value) = self.walk.current();
        Ok(Some((key, index.definition.spec.primary_key(state.kind(), key, value)?)))
    }

    /// Forgets the entries read ahead, and the snapshot they were read by: the next one is read
    /// again.
    pub fn refresh(&mut self) {
        self.walk.refresh();
        self.statement = CursorStatement::default();
    }
}
