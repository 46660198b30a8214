//! Table handles: reading, ranges, estimates.

use crate::cursor::{Cursor, Walk};
use crate::definition::{Definition, TableKind};
use crate::index_handle::Index;
use crate::range::KeyRange;
use crate::state::{Shared, State};
use crate::typed::TypedTable;
use crate::{TableError, TableErrorKind};
use firn_base::TreeId;
use firn_base::rng::Rng;
use firn_base::sync::Arc;
use firn_btree::{Direction, TreeErrorKind};
use firn_txn::{RowHeader, Transaction};

/// A table, as rows of bytes clustered by their key. Cheap to clone; usable from any thread.
///
/// The bytes of a typed table's rows are those of [`crate::Schema::encode`]; [`Table::typed`] gives the same table
/// by values. A handle outlives changes of the table's definition and sees them; once the table is dropped
/// every use of it fails with kind `Dropped`.
#[derive(Clone)]
pub struct Table {
    pub(crate) shared: Arc<Shared>,
}

impl Table {
    /// Names the table for ever; its name may change.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.shared.id
    }

    /// Its present definition.
    pub fn definition(&self) -> Result<Definition, TableError> {
        Ok(self.shared.state()?.definition.clone())
    }

    /// Its present name.
    pub fn name(&self) -> Result<String, TableError> {
        Ok(self.shared.state()?.definition.name.clone())
    }

    /// The table by values. Fails with kind `BadArgument` if it is a raw one.
    pub fn typed(&self) -> Result<TypedTable, TableError> {
        match &self.shared.state()?.definition {
            Definition { kind: TableKind::Typed(_), .. } => Ok(TypedTable::new(self.clone())),
            Definition { name, .. } => {
                Err(TableError::bad_argument(format!("table {name:?} holds raw bytes")))
            }
        }
    }

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

    /// Reads the row at `key` into `out`; false if there is none.
    pub fn get(&self, txn: &mut Transaction, key: &[u8], out: &mut Vec<u8>) -> Result<bool, TableError> {
        let state = self.shared.state_for(txn)?;
        state.get(txn, key, out)
    }

    /// As [`Table::get`], and others can neither write nor lock the row, or the place where it would be,
    /// until the transaction ends. Fails with `Conflict` if another transaction changed it since this
    /// one's snapshot.
    pub fn get_for_update(
        &self,
        txn: &mut Transaction,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        let state = self.shared.state_for(txn)?;
        state.get_for_update(txn, key, out)
    }

    /// Rows of a range of keys, in their order or against it.
    #[must_use]
    pub fn scan(&self, range: KeyRange, direction: Direction) -> Cursor {
        Cursor::new(self.clone(), range, direction)
    }

    /// About how many rows it has, from a few page reads. Counts deleted rows that are not cleaned up yet.
    pub fn approximate_rows(&self) -> Result<u64, TableError> {
        self.estimate(&KeyRange::all())
    }

    /// How many rows it has, counted if that takes no more than reading some thousand pages, else estimated to within
    /// 10 % from a sample of its leaves. Deleted rows do not count, whether or not they are cleaned up.
    pub fn count_rows(&self, txn: &mut Transaction) -> Result<RowCount, TableError> {
        let state = self.shared.state_for(txn)?;
        let mut rng = Rng::new(u64::from(state.tree.id().0));
        let (mut leaves_max, mut attempts) = (SAMPLE_LEAVES, 0);
        loop {
            let sampled = state.tree.sample_leaves(leaves_max, &mut rng, is_row);
            let sample = match sampled {
                // Its nodes may have been moving while they were read.
                Err(error) if error.kind == TreeErrorKind::Damaged && attempts < ATTEMPTS => {
                    attempts += 1;
                    continue;
                }
                sample => sample?,
            };
            if sample.is_whole {
                break;
            }
            // Three standard errors: one estimate of four hundred may be further off.
            if sample.entries > 0.0 && sample.standard_error * 3.0 <= sample.entries * PRECISION {
                return Ok(RowCount { rows: sample.entries.round() as u64, is_exact: false });
            }
            leaves_max *= 4;
        }
        let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
        let mut rows = 0;
        while walk.advance(txn, &state.tree)? {
            rows += 1;
        }
        Ok(RowCount { rows, is_exact: true })
    }

    /// About how many rows lie in a range of keys, from a few page reads.
    pub fn estimate(&self, range: &KeyRange) -> Result<u64, TableError> {
        let state = self.shared.state()?;
        if range.is_empty() { Ok(0) } else { Ok(state.tree.estimate(range.low(), range.high())?) }
    }

    pub(crate) fn state_for(&self, txn: &Transaction) -> Result<Arc<State>, TableError> {
        self.shared.state_for(txn)
    }
}

/// How many rows a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCount {
    /// Rows.
    pub rows: u64,
    /// Whether they were counted, in the transaction's snapshot, rather than estimated.
    pub is_exact: bool,
}

/// Leaves of the first sample: a tree with no more is counted.
const SAMPLE_LEAVES: usize = 2048;
/// How far an estimate may be off, as a share of it.
const PRECISION: f64 = 0.1;
/// Samples begun again because the tree changed meanwhile.
const ATTEMPTS: u32 = 5;

/// Whether an entry is a row: what cannot be read is not.
fn is_row(value: &[u8]) -> bool {
    RowHeader::split(value).is_ok_and(|(header, _)| !header.ghost)
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shared.state() {
            Ok(state) => write!(f, "Table({:?}, {})", state.definition.name, self.shared.id),
            Err(_) => write!(f, "Table(dropped, {})", self.shared.id),
        }
    }
}
