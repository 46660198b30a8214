//! An index at one moment, as a table's state has it.

use crate::definition::Definition;
use crate::error::{TableError, TableErrorKind};
use crate::index::{Entry, IndexDefinition, IndexState, RowSource};
use crate::show;
use crate::upkeep::Upkeep;
use firndb_base::TxnId;
use firndb_base::sync::Arc;
use firndb_btree::Tree;
use firndb_txn::{Isolation, Transaction};

/// One index of a state.
#[derive(Clone)]
pub(crate) struct LiveIndex {
    pub(crate) definition: IndexDefinition,
    pub(crate) tree: Arc<Tree>,
    /// Snapshots taken before this transaction do not see all of its entries; `None`: every one
    /// does.
    pub(crate) usable_past: Option<TxnId>,
    pub(crate) upkeep: Upkeep,
}

/// Whether `txn` may use what is usable past a fence. A serializable transaction reads what is
/// newest, so it needs no snapshot.
pub(crate) fn is_usable(txn: &Transaction, past: Option<TxnId>) -> bool {
    past.is_none_or(|fence| txn.isolation() == Isolation::Serializable || txn.snapshot_is_past(fence))
}

impl LiveIndex {
    /// Fails while it is being built.
    pub(crate) fn check_whole(&self) -> Result<(), TableError> {
        if self.definition.state == IndexState::Ready {
            return Ok(());
        }
        let name = &self.definition.spec.name;
        let message = format!("index {name:?} is still being built; read the table itself");
        Err(TableError::new(TableErrorKind::Stale, message))
    }

    /// Fails unless `txn` may read the index: it is complete, and its completion is in the
    /// snapshot, under read committed that of the statement. A serializable transaction reads the
    /// newest entries, so it needs none.
    pub(crate) fn check_readable(&self, txn: &Transaction) -> Result<(), TableError> {
        self.check_whole()?;
        let name = &self.definition.spec.name;
        if is_usable(txn, self.usable_past) {
            return Ok(());
        }
        let message = match txn.isolation() {
            Isolation::ReadCommitted => format!(
                "index {name:?} was completed after the snapshot of the statement; run the statement again"
            ),
            _ => format!("index {name:?} was completed after the transaction's snapshot; begin a new one"),
        };
        Err(TableError::new(TableErrorKind::Stale, message))
    }

    /// Whether leaves of its tree may have no content yet.
    pub(crate) fn is_being_loaded(&self) -> bool {
        matches!(self.upkeep, Upkeep::Noted(_))
    }

    /// Whether writers keep its tree while its build settles what they noted before.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.upkeep, Upkeep::Settled(_))
    }

    /// Replaces `entry` by the index entry of `row`.
    pub(crate) fn entry(&self, row: &RowSource<'_>, entry: &mut Entry) -> Result<(), TableError> {
        self.definition.spec.entry(row, entry)
    }
}

/// Says that two rows would have one entry of a unique index.
pub(crate) fn duplicate(
    definition: &Definition,
    index: &LiveIndex,
    key: &[u8],
) -> Result<TableError, TableError> {
    let columns = index.definition.spec.columns_len(&definition.kind, key)?;
    let message = format!(
        "another row of table {:?} has {} in unique index {:?}",
        definition.name,
        show::Bytes(&key[..columns]),
        index.definition.spec.name
    );
    Ok(TableError::new(TableErrorKind::Duplicate, message))
}
