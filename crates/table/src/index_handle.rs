//! Handles of indexes: looking up rows, estimates.

use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexDefinition};
use crate::live_index::LiveIndex;
use crate::range::KeyRange;
use crate::state::State;
use crate::table::Table;
use crate::table_kind::TableKind;
use crate::value::ValueRef;
use firndb_base::TreeId;
use firndb_btree::Counted;
use firndb_txn::Transaction;

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

    /// Replaces `entry` by the key that the entry of a row of the table has, as
    /// [`crate::IndexCursor::next_entry`] returns it.
    ///
    /// Errors: `Damaged` if the row is none of the table's; `Dropped`.
    pub fn entry_of(&self, key: &[u8], row: &[u8], entry: &mut Vec<u8>) -> Result<(), TableError> {
        let state = self.table.shared.state()?;
        let mut found = Entry { key: std::mem::take(entry), ..Entry::default() };
        self.live(&state)?.entry(&state.source(key, row)?, &mut found)?;
        *entry = found.key;
        Ok(())
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
    pub(crate) fn entry_of_read(
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

    /// About how many rows lie in a range of index keys, from a few page reads; nearer to the truth
    /// by what was `counted` of the index before.
    pub fn estimate(&self, range: &KeyRange, counted: Option<Counted>) -> Result<u64, TableError> {
        let state = self.table.shared.state()?;
        let index = self.live(&state)?;
        index.check_whole()?;
        if range.is_empty() {
            return Ok(0);
        }
        Ok(index.tree.estimate(range.low(), range.high(), counted)?)
    }

    /// Whether a transaction may read it: it is complete, and was so before the transaction's
    /// snapshot.
    pub fn is_readable_by(&self, txn: &Transaction) -> Result<bool, TableError> {
        let state = self.table.shared.state()?;
        Ok(self.live(&state)?.check_readable(txn).is_ok())
    }

    pub(crate) fn live<'a>(&self, state: &'a State) -> Result<&'a LiveIndex, TableError> {
        state.index(self.tree).ok_or_else(|| {
            let table = &state.definition.name;
            let message = format!("an index of table {table:?} was dropped; look it up again by name");
            TableError::new(TableErrorKind::Dropped, message)
        })
    }
}
