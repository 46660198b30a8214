//! Writing pages whose map page cannot be read.
//!
//! A page may be dirty in DRAM when its map page turns out to be damaged. Were it not written, it
//! would hold the log, and one damaged page of the map would end all work. So it is written, and
//! its record says that the place it leaves is not known: that place stays in use, which a check
//! reports once the map page can be read again.
//!
//! Why that never replaces a newer version: while a page is dirty in the buffer no other tier has a
//! newer version of it. What is left is a write that is overtaken while it is under way, by a free
//! and an allocation of the page. Their records put an entry into the overlay, where it stays until
//! the map page is written with it; then the sequence of the map page is another than when the
//! write began, and the write fails and is tried again.
//!
//! A cache that keeps log for what it has (lazy cleaning, of the comparators) gives a recovery LSN
//! with what it writes back: that is the newest version below DRAM, and what overtakes it is seen
//! in the same way. Firn's flash cache keeps no log and gives none: its version stays on its own
//! device until the map page can be read, and the write fails with the error of the map page.

use super::geometry::Geometry;
use super::meta_page::MetaId;
use super::pins::Pins;
use super::state::{State, Store};
use crate::error::TierError;
use crate::page_tier::PageWrite;
use firndb_base::{Lsn, PageId};

/// A page of which the entry cannot be read, and that may be written all the same.
#[derive(Clone, Copy)]
pub(crate) struct Lost {
    page: PageId,
    map: MetaId,
    /// What was known of the map page's sequence when the write began.
    sequence: Option<u8>,
}

impl Lost {
    /// Whether the entry is still unknown, and nothing was written over it since.
    pub(crate) fn is_lost(&self, geometry: &Geometry, state: &State) -> bool {
        !state.knows(geometry, self.page) && state.sequences.get(self.map) == self.sequence
    }
}

impl Store {
    /// For a write whose map page could not be read: whether it may go on, with its page's bitmap
    /// page pinned.
    pub(crate) fn lost_sight(&self, write: &PageWrite<'_>, error: &TierError) -> Option<(Lost, Pins<'_>)> {
        // Firn's flash cache can keep what it has.
        if !write.dirty || write.recovery_lsn == Lsn::MAX || !error.concerns_the_page() {
            return None;
        }
        let (page, map) = (write.page, self.geometry.map_of_page(write.page));
        let pins = self.pin(&[self.geometry.bitmap_of_page(page)]).ok()?;
        let sequence = self.state.lock().sequences.get(map);
        Some((Lost { page, map, sequence }, pins))
    }
}

impl State {
    /// The least that a page's newest version can be whose entry cannot be read, and of which the
    /// bitmap page is in memory; `None` if it is not allocated.
    pub(crate) fn least_version(&self, geometry: &Geometry, page: PageId) -> Option<Lsn> {
        let held = self.deltas.buffer.get(page).map_or(Lsn::ZERO, |held| held.delta.version);
        self.is_allocated(geometry, page).filter(|allocated| *allocated).map(|_| held)
    }
}
