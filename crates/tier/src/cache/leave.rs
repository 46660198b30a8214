//! Leaving: the cache takes nothing in any more and writes all that the store lacks to the store,
//! while the engine runs on.
//!
//! Dirty pages that leave DRAM meanwhile by-pass the cache. Older images of such a page must not be
//! found after a crash, whether the directory knows them or not: an image that the front passed in
//! memory only, or of an earlier incarnation of the page, is not in the directory any more. So a
//! tombstone is owed for the page (`pending.rs`): until a header that names the page is durable,
//! the log is kept from the page's recovery LSN, and redo rebuilds the page on the older image. And
//! no such header is written before the store's record of the page is durable (`written_back_end`),
//! lest an older image be invalid before the newer one is found.
//!
//! At the end the ring is empty: no page is found here, and everything that was here is in the
//! store, its records durable. Then the database may forget the cache. A crash before that finds a
//! cache like any other.

use super::geometry::Geometry;
use super::state::FlashCache;
use crate::error::TierError;
use crate::page_tier::PageWrite;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, Progress};
use firndb_device::AlignedBuf;

impl FlashCache {
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// Stops taking pages in, or resumes. In write-through mode nothing has to leave.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        // A thread that is taking pages finishes first.
        let _ring = self.ring.lock();
        self.leaving.store(leaving && !self.is_write_through(), Relaxed);
    }

    /// Writes pages to the store, by-passing the cache.
    pub(crate) fn write_past(&self, writes: &mut [PageWrite<'_>]) {
        assert!(!self.is_write_through(), "nothing has to leave");
        // No thread reads the older image of such a page meanwhile: the page is in DRAM.
        self.store.write_recorded(writes);
        let taken = |write: &&PageWrite<'_>| write.dirty && write.is_taken();
        let mut ring = self.ring.lock();
        for write in writes.iter().filter(taken).filter(|write| Geometry::can_hold(write.page)) {
            self.pending.lock().add_owed(write.page, write.recovery_lsn);
            self.directory.invalidate(write.page, |_| ());
            self.recent.lock().note(write.page, Lsn::ZERO);
        }
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        // The pages are written even if this fails: their log is kept.
        let _ = self.bound_owed(&mut ring);
    }

    /// Replaces one group. Returns `Idle` once the store has everything, durably.
    pub(crate) fn leave_step(&self) -> Result<Progress, TierError> {
        if self.is_write_through() {
            return Ok(Progress::Idle);
        }
        let mut ring = self.ring.lock();
        self.poison.check()?;
        if ring.front == ring.rear {
            if self.open.read().entries.is_empty() {
                self.store.flush_records(ring.written_back_end)?;
                let left = self.directory.counts();
                assert!(left == (0, 0), "an empty ring holds no page: {left:?}");
                return Ok(Progress::Idle);
            }
            self.make_space(&mut ring)?;
            self.write_group(&mut ring)?;
        }
        let mut scratch = std::mem::replace(&mut ring.scratch, AlignedBuf::zeroed(self.geometry.block));
        let replaced = self.replace_front(&mut ring, &mut scratch);
        ring.scratch = scratch;
        drop(ring);
        self.write_segments();
        replaced.map(|()| Progress::Worked)
    }
}
