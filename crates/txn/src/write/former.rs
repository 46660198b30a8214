//! What a write does with the row that was there.

use crate::row_change::RowValue;

/// Makes a row's new payload in a copy of it; false to leave the row as it is. Called under the
/// latch of the row's leaf, and again if the write has to be tried again, with the row as it is
/// then.
pub type Edit<'e> = dyn FnMut(RowValue<'_>, &mut Vec<u8>) -> bool + 'e;

/// What becomes of the payload before, if there is a row.
pub(super) enum Former<'a> {
    Unwanted,
    Copied(&'a mut Vec<u8>),
    /// Copied, and edited where it is.
    Edited(&'a mut Vec<u8>, &'a mut Edit<'a>),
}

impl Former<'_> {
    pub(super) fn reborrow(&mut self) -> Former<'_> {
        match self {
            Former::Unwanted => Former::Unwanted,
            Former::Copied(buffer) => Former::Copied(buffer),
            Former::Edited(buffer, edit) => Former::Edited(buffer, &mut **edit),
        }
    }

    /// Takes a row that is there; false if the caller wants it left as it is.
    #[inline]
    pub(super) fn take(&mut self, row: RowValue<'_>) -> bool {
        let (Former::Copied(buffer) | Former::Edited(buffer, _)) = self else { return true };
        buffer.clear();
        buffer.extend_from_slice(row.payload);
        match self {
            Former::Edited(buffer, edit) => edit(row, buffer),
            _ => true,
        }
    }
}
