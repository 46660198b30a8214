//! Table handles: reading, ranges, estimates.

use crate::definition::Definition;
use crate::error::TableError;
use crate::range::KeyRange;
use crate::rows::Rows;
use crate::state::{Shared, State};
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_btree::Counted;
use firndb_txn::Transaction;

/// A table, as rows of bytes clustered by their key. Cheap to clone; usable from any thread.
///
/// The bytes of a typed table's rows are those of [`crate::schema::Schema::encode`];
/// [`Table::typed`] gives the same table by values. A handle outlives changes of the table's
/// definition and sees them; once the table is dropped every use of it fails with kind `Dropped`.
#[derive(Clone)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
}

impl Table {
    /// Identifies the table for ever; its name may change.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.shared.id
    }

    pub fn definition(&self) -> Result<Definition, TableError> {
        Ok(self.shared.state()?.definition.clone())
    }

    pub fn name(&self) -> Result<String, TableError> {
        Ok(self.shared.state()?.definition.name.clone())
    }

    /// Reads the row at `key` into `out`; false if there is none.
    pub fn get(&self, txn: &mut Transaction, key: &[u8], out: &mut Vec<u8>) -> Result<bool, TableError> {
        self.shared.run(txn, |txn, state| state.get(txn, key, out))
    }

    /// As [`Table::get`], and others can neither write nor lock the row, or the place where it
    /// would be, until the transaction ends. Fails with `Conflict` if another transaction changed
    /// it since this one's snapshot.
    pub fn get_for_update(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        self.shared.run(txn, |txn, state| state.get_for_update(txn, key, out))
    }

    /// Reads the rows at `keys`, which may come in any order and repeat, as one statement: the row
    /// of the key with a number gets that number in `rows`. Leaves that are not in memory are read
    /// together.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), TableError> {
        self.shared.run(txn, |txn, state| state.get_many(txn, keys, rows))
    }

    /// As [`Table::get_many`], for callers with a limit of memory: before large values are read,
    /// `fits` is asked of one key after the other, with its number and the bytes of memory that
    /// `rows` needs with its row, and those before it, while it is filled. The rows of the keys
    /// before the first one that does not fit are read; returns how many these are.
    pub fn get_many_that_fit<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
        fits: impl FnMut(usize, usize) -> bool,
    ) -> Result<usize, TableError> {
        self.shared.run(txn, |txn, state| state.get_many_that_fit(txn, keys, rows, fits))
    }

    /// As [`Table::get_many`], locking the rows as [`Table::get_for_update`] does, one after the
    /// other in the order of their keys.
    pub fn get_many_for_update<K: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        keys: &[K],
        rows: &mut Rows,
    ) -> Result<(), TableError> {
        self.shared.run(txn, |txn, state| state.get_many_for_update(txn, keys, rows))
    }

    /// Bytes of a page of the database.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.shared.manager.pool().page_size()
    }

    /// About how many rows it has, from a few page reads. Counts deleted rows that are not cleaned
    /// up yet.
    pub fn approximate_rows(&self) -> Result<u64, TableError> {
        self.estimate(&KeyRange::all(), None)
    }

    /// About how many rows lie in a range of keys, from a few page reads; nearer to the truth by
    /// what was `counted` of the table's tree before.
    pub fn estimate(&self, range: &KeyRange, counted: Option<Counted>) -> Result<u64, TableError> {
        let state = self.shared.state()?;
        if range.is_empty() {
            return Ok(0);
        }
        Ok(state.tree.estimate(range.low(), range.high(), counted)?)
    }

    pub(crate) fn state_for(&self, txn: &Transaction) -> Result<Arc<State>, TableError> {
        self.shared.state_for(txn)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shared.state() {
            Ok(state) => write!(f, "Table({:?}, {})", state.definition.name, self.shared.id),
            Err(_) => write!(f, "Table(dropped, {})", self.shared.id),
        }
    }
}
