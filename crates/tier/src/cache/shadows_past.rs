//! The first content of pages, which no log has (`store/shadows.rs`), by-passes the cache.
//!
//! Groups may hold images of earlier incarnations of such a page, and no younger image need ever
//! follow them here. So:
//! 1. an image that entered after the page was allocated leaves the directory: it was copied before
//!    the page was freed, and its writer has ended, as the caller has made sure;
//! 2. a tombstone is owed for the page (`pending.rs`);
//! 3. the store takes the content, and appends the record that names it.
//!
//! Why a crash at any point is harmless:
//! * before that record is durable nothing that can become durable names the page. A tombstone may
//!   be durable already: what allocated the page is so too, and older images are of no page;
//! * after that, as long as no header holds the tombstone, the record is in the log that is kept,
//!   and its redo removes older images (`redo.rs`);
//! * if the store does not take the content it is logged. Its image may enter in a group whose
//!   header, or a later one, is to hold the tombstone: headers hold none of pages that have images.
//!
//! Pages with their new content may enter clean before that record is durable, and a restart
//! refuses images from behind the log's end: so no group is written before the log is durable up to
//! the end that it had here, which is past the content's version.
//!
//! A commit waits for no group here, unless more tombstones are owed than a header holds.

use super::geometry::Geometry;
use super::state::FlashCache;
use crate::page_tier::{PageWrite, Written};
use firndb_base::PageId;

impl FlashCache {
    pub(crate) fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        if self.is_lost() {
            return self.store.write_shadows(writes);
        }
        if self.poison.check().is_err() {
            // No group will ever hold their tombstones.
            return writes.iter_mut().for_each(|write| write.outcome = Ok(Written::Declined));
        }
        self.owe_for_shadows(writes.iter().map(|write| write.page));
        self.store.write_shadows(writes);
    }

    fn owe_for_shadows(&self, pages: impl Iterator<Item = PageId>) {
        let pages: Vec<PageId> = pages.filter(|page| Geometry::can_hold(*page)).collect();
        pages.iter().for_each(|page| _ = self.directory.invalidate(*page, |_| ()));
        let owed = {
            let mut pending = self.pending.lock();
            pending.add_owed_at_end(pages.into_iter(), || self.store.log_end());
            pending.owed()
        };
        if owed >= self.geometry.tombstones_beside(0) {
            // If this fails the log is kept for them.
            let _ = self.bound_owed(&mut self.ring.lock());
        }
    }
}
