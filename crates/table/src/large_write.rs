//! Writing large values: chunks beside their row, and marks for those that are to be freed.

use crate::error::TableError;
use crate::large::{Reference, ValueId, chunk_len, fits_row};
use crate::row::MAX_VALUE_LEN;
use crate::state::State;
use firndb_base::crc32c;
use firndb_txn::{RowValue, Transaction, TxnErrorKind};

/// Chunks written between two checks of the space in the log.
const CHUNKS_BETWEEN_PACES: u32 = 32;

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

    /// Writes the chunks, once the row is written.
    pub(crate) fn write_chunks(&self, txn: &mut Transaction, state: &State) -> Result<(), TableError> {
        let Stored::Large { reference, value, .. } = self else { return Ok(()) };
        let tree = state.large_tree()?;
        let chunks = value.chunks(chunk_len(tree.pool().page_size()));
        for (number, chunk) in (0u32..).zip(chunks) {
            if number.is_multiple_of(CHUNKS_BETWEEN_PACES) {
                txn.manager().pace()?;
            }
            if !txn.insert(tree, &reference.id.chunk_key(number), chunk)? {
                return Err(TableError::damaged(format!(
                    "table {:?} has a large value {} already",
                    state.definition.name, reference.id
                )));
            }
        }
        Ok(())
    }
}

/// Marks a value to be freed, once `txn` has removed the row's reference.
pub(crate) fn mark_freed(txn: &mut Transaction, state: &State, id: ValueId) -> Result<(), TableError> {
    Ok(txn.put(state.large_tree()?, &id.mark_key(), &[])?)
}
