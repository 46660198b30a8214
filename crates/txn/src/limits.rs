//! How long keys and rows may be.

use crate::header::RowHeader;
use crate::undo::MAX_OVERHEAD;
use firndb_btree::Tree;

/// Longest key and value of a row together, in bytes: an entry must fit a leaf, and its undo entry
/// the undo tree.
#[must_use]
pub fn max_row_len(page_size: usize) -> usize {
    Tree::max_entry_len(page_size).saturating_sub(MAX_OVERHEAD + RowHeader::LEN)
}

/// Longest key of a row, in bytes.
#[must_use]
pub fn max_key_len(page_size: usize) -> usize {
    Tree::max_key_len(page_size).min(max_row_len(page_size))
}
