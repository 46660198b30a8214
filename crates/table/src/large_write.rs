//! Writing large values: their parts, and marks for those that are to be freed.

use crate::error::TableError;
use crate::large::{Reference, ValueId, chunk_len, fits_row};
use crate::naming::is_zeros;
use crate::row::MAX_VALUE_LEN;
use crate::state::State;
use firndb_base::crc32c;
use firndb_btree::is_given_up;
use firndb_txn::{RowValue, Transaction, TxnErrorKind};

/// Parts written between two checks of the space in the log.
const PARTS_BETWEEN_PACES: usize = 32;

/// A value as its row is to hold it.
pub(crate) enum Stored<'a> {
    Inline(&'a [u8]),
    Large { bytes: Vec<u8>, reference: Reference, value: &'a [u8] },
}

impl<'a> Stored<'a> {
    /// Decides, and names a large value after the next write of `txn`: which must be that of its
    /// row.
    pub(crate) fn new(
        txn: &mut Transaction,
        state: &State,
        key: &[u8],
        value: &'a [u8],
    ) -> Result<Stored<'a>, TableError> {
        let page_size = state.tree.pool().page_size();
        if fits_row(page_size, key.len(), value.len()) {
            return Ok(Stored::Inline(value));
        }
        let too_large = |message: String| {
            Err(TableError::new(crate::error::TableErrorKind::Transaction(TxnErrorKind::TooLarge), message))
        };
        if value.len() > MAX_VALUE_LEN {
            return too_large(format!("the value has {} bytes; {MAX_VALUE_LEN} is the limit", value.len()));
        }
        if !fits_row(page_size, key.len(), Reference::LEN) {
            // The layer below checks how long a key may be.
            return Ok(Stored::Inline(value));
        }
        if state.large.is_none() {
            return too_large(format!(
                "table {:?} was created by a version without large values: copy it into a new table",
                state.definition.name
            ));
        }
        let (id, sequence) = txn.next_write()?;
        let reference =
            Reference { id: ValueId { txn: id, sequence }, len: value.len() as u32, checksum: crc32c(value) };
        Ok(Stored::Large { bytes: reference.encode(), reference, value })
    }

    /// What to write as the row.
    pub(crate) fn row(&self) -> RowValue<'_> {
        match self {
            Stored::Inline(value) => RowValue { payload: value, flag: false },
            Stored::Large { bytes, .. } => RowValue { payload: bytes, flag: true },
        }
    }

    /// Writes the parts, once the row is written: whole pages, and what is left over as chunks. A
    /// value that has a page like those that are given up after damage is all chunks.
    pub(crate) fn write_parts(&self, txn: &mut Transaction, state: &State) -> Result<(), TableError> {
        let Stored::Large { reference: Reference { id, .. }, value, .. } = *self else { return Ok(()) };
        let tree = state.large_tree()?;
        let page_size = tree.pool().page_size();
        let mut pages = value.chunks_exact(page_size);
        let mut rest = pages.remainder();
        if pages.clone().any(is_given_up) {
            (pages, rest) = ([][..].chunks_exact(page_size), value);
        }
        let pages = (0..).map(|number| id.page_key(number)).zip(pages).map(|(key, page)| (key, page, true));
        let chunks = (0..).map(|number| id.chunk_key(number)).zip(rest.chunks(chunk_len(page_size)));
        let mut old = txn.take_buffer();
        for (count, (key, bytes, whole)) in
            pages.chain(chunks.map(|(key, chunk)| (key, chunk, false))).enumerate()
        {
            if count.is_multiple_of(PARTS_BETWEEN_PACES) {
                txn.manager().pace()?;
            }
            let is_new = match whole {
                true if is_zeros(bytes) => txn.insert(tree, &key, &[])?,
                true => txn.put_page(tree, &key, bytes, &mut old)?.is_none(),
                false => txn.insert(tree, &key, bytes)?,
            };
            if !is_new {
                return Err(TableError::damaged(format!(
                    "table {:?} has a large value {id} already",
                    state.definition.name
                )));
            }
        }
        txn.keep_buffer(old);
        Ok(())
    }
}

/// Marks a value to be freed, once `txn` has removed the row's reference.
pub(crate) fn mark_freed(txn: &mut Transaction, state: &State, id: ValueId) -> Result<(), TableError> {
    Ok(txn.put(state.large_tree()?, &id.mark_key(), &[])?)
}
