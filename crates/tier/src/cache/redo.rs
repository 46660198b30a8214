//! Redo: what the store's records mean for images in the cache.
//!
//! Groups are written after the log that they depend on; so the restored directory may miss frees
//! and moves that are in the log, but never the other way round.
//!
//! The next recovery may begin behind a record that is repeated here: the recovery LSN of a redone
//! page is that of its first redone change, not of its allocation. So for older images of a page
//! that is allocated, as this recovery finds them, a tombstone is owed (`Pending::add_owed`), also
//! if the record that freed the page's earlier incarnation removed the image from the directory.

use super::geometry::Geometry;
use super::state::FlashCache;
use crate::error::TierError;
use crate::store::{PageEvent, events};
use firndb_base::{Lsn, PageId};
use firndb_log::{Appended, Record};

impl FlashCache {
    pub(crate) fn redo(&self, lsn: Lsn, record: Record<'_>) -> Result<(), TierError> {
        for change in events(lsn, record)? {
            match change {
                // Images from before the record are stale.
                PageEvent::Freed(page) => {
                    if self.is_older(page, lsn)?.unwrap_or(false) {
                        self.freed_in_redo.lock().insert(page);
                        self.invalidate(std::iter::once(&page), Appended { first: lsn, end: lsn });
                    }
                }
                PageEvent::Incarnation(page) => {
                    let older = self.is_older(page, lsn)?.unwrap_or(false);
                    if older || self.freed_in_redo.lock().remove(&page) {
                        self.invalidate_owed(page, lsn);
                    }
                }
                // In write-back mode the version came from here, and nothing older is here.
                PageEvent::Stored { page, version } if self.is_write_through() => {
                    self.redo_stored(page, version, lsn)?;
                }
                PageEvent::Stored { .. } => {}
                PageEvent::Shadowed { page, version } => self.redo_shadowed(page, version, lsn),
            }
        }
        Ok(())
    }

    /// Redo of the store's taking a version that is not here: it by-passed the cache, or its image
    /// may have been in a group that was never written.
    fn redo_stored(&self, page: PageId, version: Lsn, lsn: Lsn) -> Result<(), TierError> {
        if self.is_older(page, version)?.unwrap_or(false) {
            self.invalidate_owed(page, lsn);
        }
        Ok(())
    }

    /// Redo of the store's taking a page's first content past the cache. An image of which nothing
    /// is known is from before the redo start: of an earlier incarnation, or this content, which
    /// the store has.
    fn redo_shadowed(&self, page: PageId, version: Lsn, lsn: Lsn) {
        let is_there = Geometry::can_hold(page) && self.hit(page).is_some();
        if is_there && self.recent.lock().is_older_than(page, version) != Some(false) {
            self.invalidate_owed(page, lsn);
        }
    }

    /// Removes the page's images, which are older than its newest version by the record at `lsn`;
    /// no younger one may ever enter the cache, so a tombstone is owed.
    fn invalidate_owed(&self, page: PageId, lsn: Lsn) {
        self.pending.lock().add_owed(page, lsn);
        self.directory.invalidate(page, |_| ());
    }

    /// Whether the page's image is older than `lsn`; `None` if the page has no image.
    fn is_older(&self, page: PageId, lsn: Lsn) -> Result<Option<bool>, TierError> {
        if !Geometry::can_hold(page) || self.hit(page).is_none() {
            return Ok(None);
        }
        let known = self.recent.lock().is_older_than(page, lsn);
        match known {
            Some(older) => Ok(Some(older)),
            // From before the redo start: the store logged the write long after the page's last
            // change.
            None => Ok(self.version_of(page)?.map(|version| version < lsn)),
        }
    }
}
