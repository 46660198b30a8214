//! Events of pages in map records, for the tier above and for recovery.

use super::records::{self, Change};
use crate::error::{TierError, TierErrorKind};
use firndb_base::{Lsn, PageId};
use firndb_log::{Kind, Record};

/// An event of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// An incarnation of the page began: versions before the record belong to an earlier one.
    Incarnation(PageId),
    /// The page was freed: versions before the record are stale.
    Freed(PageId),
    /// The store took this version of a page.
    Stored {
        /// The page.
        page: PageId,
        /// LSN of its last change.
        version: Lsn,
    },
    /// As `Stored`, of the page's first content, which no log has and no other tier had.
    Shadowed {
        /// The page.
        page: PageId,
        /// LSN of the change by which a row names it.
        version: Lsn,
    },
}

impl PageEvent {
    /// The page of which the store took a version.
    #[must_use]
    pub fn stored(self) -> Option<PageId> {
        match self {
            PageEvent::Stored { page, .. } | PageEvent::Shadowed { page, .. } => Some(page),
            PageEvent::Incarnation(_) | PageEvent::Freed(_) => None,
        }
    }
}

/// The events of the map record at `lsn` (kinds 0x10–0x1f).
///
/// Errors: `Damaged` if the record is malformed.
pub fn events(lsn: Lsn, record: Record<'_>) -> Result<Vec<PageEvent>, TierError> {
    let changes = records::decode(record).map_err(|error| {
        TierError::new(TierErrorKind::Damaged, format!("the map record at {lsn:?} cannot be read: {error}"))
    })?;
    let event = |change: Change| match change {
        Change::Allocate { page } | Change::Adopt { page, .. } => Some(PageEvent::Incarnation(page)),
        Change::Free { page, .. } => Some(PageEvent::Freed(page)),
        Change::Move { page, version, .. } if record.kind == Kind::PAGES_SHADOWED => {
            Some(PageEvent::Shadowed { page, version })
        }
        Change::Move { page, version, .. } | Change::Delta { page, version, .. } => {
            Some(PageEvent::Stored { page, version })
        }
        Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => None,
    };
    Ok(changes.into_iter().filter_map(event).collect())
}
