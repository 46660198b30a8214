//! What map records say of pages, for the tier above and for recovery.

use super::records::{self, Change};
use crate::{TierError, TierErrorKind};
use firn_base::{Lsn, PageId};
use firn_log::Record;

/// What a record says of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// A life of the page began or ended: versions before the record are of another life.
    Life(PageId),
    /// The store took this version.
    Stored {
        /// Of this page.
        page: PageId,
        /// LSN of its last change.
        version: Lsn,
    },
}

/// The events of the map record at `lsn` (kinds 0x10–0x1f).
///
/// Errors: `Damaged` if the record is malformed.
pub fn events(lsn: Lsn, record: Record<'_>) -> Result<Vec<PageEvent>, TierError> {
    let changes = records::decode(record).map_err(|error| {
        TierError::new(TierErrorKind::Damaged, format!("the map record at {lsn:?} cannot be read: {error}"))
    })?;
    let event = |change: Change| match change {
        Change::Allocate { page } | Change::Adopt { page, .. } | Change::Free { page, .. } => {
            Some(PageEvent::Life(page))
        }
        Change::Move { page, version, .. } => Some(PageEvent::Stored { page, version }),
        Change::Backing { .. } => None,
    };
    Ok(changes.into_iter().filter_map(event).collect())
}
