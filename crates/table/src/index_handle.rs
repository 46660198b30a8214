//! Reading through an index.

use crate::cursor::{KeyAndValue, Walk};
use crate::definition::TableKind;
use crate::index::{Entry, IndexDefinition};
use crate::range::KeyRange;
use crate::state::{LiveIndex, State};
use crate::value::ValueRef;
use crate::{Table, TableError, TableErrorKind};
use firn_base::TreeId;
use firn_base::sync::Arc;
use firn_btree::Direction;
use firn_txn::Transaction;

/// An index of a table. Cheap to clone. Once the index is dropped, every use fails with kind `Dropped`.
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

    /// Its present definition.
    pub fn definition(&self) -> Result<IndexDefinition, TableError> {
        let state = self.table.shared.state()?;
        Ok(self.live(&state)?.definition.clone())
    }

    /// Encodes values of its first columns as the beginning of its keys, for [`KeyRange::prefix`] and
    /// [`KeyRange::of_prefixes`]. For indexes of typed tables. Appends to `key`.
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

    /// Looks up the row with this key (all index columns, none NULL) in a unique index: its primary key
    /// and its bytes. False if there is none.
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
        if !txn.get(&index.tree, key, primary_key)? || !state.get(txn, primary_key, row)? {
            return Ok(false);
        }
        // Under read committed the two reads see two moments.
        let mut entry = Entry::default();
        index.entry(&state.source(primary_key, row)?, &mut entry)?;
        Ok(entry.key == key)
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
    /// The row.
    pub row: &'a [u8],
}

/// Rows in the order of an index. Reads as [`crate::Cursor`] does.
pub struct IndexCursor {
    index: Index,
    walk: Walk,
    for_update: bool,
    row: Vec<u8>,
    entry: Entry,
}

impl IndexCursor {
    /// The same cursor, locking every row that it answers.
    #[must_use]
    pub fn for_update(self) -> IndexCursor {
        IndexCursor { for_update: true, ..self }
    }

    /// The next row; it lives until the next call. `None` at the end.
    ///
    /// An entry whose row has gone or changed since its leaf was read (by this transaction, or by others
    /// under read committed) is passed over.
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<IndexRow<'_>>, TableError> {
        let state: Arc<State> = self.index.table.state_for(txn)?;
        let index = self.index.live(&state)?;
        index.check_readable(txn)?;
        loop {
            if !self.walk.advance(txn, &index.tree)? {
                return Ok(None);
            }
            let fetched = fetch(
                txn,
                &state,
                index,
                self.walk.current(),
                self.for_update,
                &mut self.row,
                &mut self.entry,
            );
            match fetched {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    self.walk.step_back();
                    return Err(error);
                }
            }
        }
        let (index_key, value) = self.walk.current();
        let primary_key = index.definition.spec.primary_key(state.kind(), index_key, value)?;
        Ok(Some(IndexRow { index_key, primary_key, row: &self.row }))
    }

    /// The next entry's key and primary key, without reading the row: for what the index alone answers.
    pub fn next_entry(&mut self, txn: &mut Transaction) -> Result<Option<KeyAndValue<'_>>, TableError> {
        let state: Arc<State> = self.index.table.state_for(txn)?;
        let index = self.index.live(&state)?;
        index.check_readable(txn)?;
        if !self.walk.advance(txn, &index.tree)? {
            return Ok(None);
        }
        let (key, value) = self.walk.current();
        Ok(Some((key, index.definition.spec.primary_key(state.kind(), key, value)?)))
    }

    /// Forgets the entries read ahead: the next one is read anew.
    pub fn refresh(&mut self) {
        self.walk.refresh();
    }
}

/// Reads the row of an entry; false if it has gone, or is another entry's by now.
fn fetch(
    txn: &mut Transaction,
    state: &State,
    index: &LiveIndex,
    (key, value): (&[u8], &[u8]),
    for_update: bool,
    row: &mut Vec<u8>,
    entry: &mut Entry,
) -> Result<bool, TableError> {
    let primary_key = index.definition.spec.primary_key(state.kind(), key, value)?;
    let found = if for_update {
        state.get_for_update(txn, primary_key, row)?
    } else {
        state.get(txn, primary_key, row)?
    };
    if !found {
        return Ok(false);
    }
    index.entry(&state.source(primary_key, row)?, entry)?;
    Ok(entry.key == key)
}
