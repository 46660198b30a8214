//! Redo: what the store's records say of images in the cache.
//!
//! Groups are written after the log that they rest on; so the directory as restored may know less of frees and
//! moves than the log, never more.

use super::FlashCache;
use super::geometry::Geometry;
use crate::TierError;
use crate::store::{PageEvent, events};
use firn_base::{Lsn, PageId};
use firn_log::{Appended, Record};

impl FlashCache {
    pub(crate) fn redo_record(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        for change in events(lsn, record)? {
            match change {
                // A life of the page ended, or a new one began: images from before are nobody's.
                PageEvent::Life(page) => {
                    if self.is_older(page, lsn)?.unwrap_or(false) {
                        self.kill(std::iter::once(&page), Appended { first: lsn, end: lsn });
                    }
                }
                PageEvent::Stored { page, version } => self.redo_stored(page, version, lsn)?,
            }
        }
        Ok(())
    }

    /// The store took a version. In write-back mode it came from here, and nothing older is here; in write-through
    /// mode the image that belongs to it may have been in a group that was never written.
    fn redo_stored(&self, page: PageId, version: Lsn, lsn: Lsn) -> Result<(), TierError> {
        if !self.is_write_through() {
            return Ok(());
        }
        if self.is_older(page, version)?.unwrap_or(false) {
            self.kill(std::iter::once(&page), Appended { first: lsn, end: lsn });
        }
        Ok(())
    }

    /// Whether the page's image is older than `lsn`; `None` if it has none.
    fn is_older(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        if !Geometry::can_hold(page) || self.hit(page).is_none() {
            return Ok(None);
        }
        let known = self.recent.lock().is_older_than(page, lsn);
        match known {
            Some(older) => Ok(Some(older)),
            // Before the redo start: a write of the store that was logged long after the page's last change.
            None => Ok(self.newest_version(page)?.map(|version| version < lsn)),
        }
    }
}
