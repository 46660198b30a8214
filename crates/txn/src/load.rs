//! Rows loaded in the order of their keys into a tree that no other thread knows yet.
//!
//! Leaves are composed in memory ([`firndb_btree::NewLeaf`]); their images become durable as those
//! of page files do, as shadows or through the log (`leaf_writer.rs`), before the commit record is
//! appended. The rows have no undo entries: undoing the tree's creation clears it, content or not.
//! They are written as having always been there, so who makes the tree known keeps transactions out
//! whose snapshots are older than its commit.

use crate::error::TxnError;
use crate::header::RowHeader;
use crate::leaf_writer::LeafWriter;
use crate::manager::TxnManager;
use crate::row_change::RowValue;
use crate::transaction::Transaction;
use crate::write::check_row_size;
use firndb_base::TxnId;
use firndb_btree::{Tree, TreeError};
use firndb_log::LogClass;

/// Rows between two looks whether the transaction may go on.
const ROWS_BETWEEN_LOOKS: u64 = 1024;
/// Of a leaf, what loading fills, in percent: an insert between loaded rows finds space.
const FILL_PERCENT: usize = 95;

/// A row to be loaded.
pub struct LoadedRow {
    key: Vec<u8>,
    /// With its header.
    value: Vec<u8>,
}

impl LoadedRow {
    #[must_use]
    pub fn new(key: Vec<u8>, row: RowValue<'_>) -> LoadedRow {
        let header = RowHeader { writer: TxnId(0), undo: 0, ghost: false, flag: row.flag };
        LoadedRow { key, value: [&header.encode()[..], row.payload].concat() }
    }
}

impl TxnManager {
    /// Fills an empty tree that no other thread knows with rows that ascend strictly by key. When
    /// it returns, they are durable in the store or in the log, and other threads may use the tree.
    /// After an error, clear it.
    pub fn fill_tree<E: From<TreeError> + From<TxnError>>(
        &self,
        tree: &Tree,
        rows: impl Iterator<Item = Result<LoadedRow, E>>,
    ) -> Result<(), E> {
        let mut leaves = LeafWriter::new(self);
        let entries = rows.map(|row| {
            let LoadedRow { key, value } = row?;
            check_row_size(tree, &key, &value[RowHeader::LEN..])?;
            Ok((key, value))
        });
        tree.bulk_load::<E>(LogClass::Normal, FILL_PERCENT, entries, |leaf| Ok(leaves.add(leaf)?))?;
        Ok(leaves.finish()?)
    }
}

impl Transaction {
    /// Fills an empty private tree of this transaction ([`Transaction::create_private_tree`]) with
    /// the rows that `next` gives, which ascend strictly by key. All that the
    /// transaction has written is durable, or in the log, when it returns. After an error, roll
    /// back.
    pub fn load_rows<E: From<TreeError> + From<TxnError>>(
        &mut self,
        tree: &Tree,
        mut next: impl FnMut(&mut Transaction) -> Result<Option<LoadedRow>, E>,
    ) -> Result<(), E> {
        let manager = self.manager.clone();
        let mut rows = 0u64;
        let entries = std::iter::from_fn(|| {
            if rows.is_multiple_of(ROWS_BETWEEN_LOOKS)
                && let Err(error) = self.begin_write()
            {
                return Some(Err(error.into()));
            }
            rows += 1;
            next(self).transpose()
        });
        manager.fill_tree(tree, entries)?;
        Ok(self.settle_images()?)
    }
}
