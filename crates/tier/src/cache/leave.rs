//! Leaving: the cache takes nothing in any more and gives all that the store lacks to the store, while the engine runs on.
//!
//! Dirty pages that leave DRAM meanwhile by-pass the cache. Older images of such a page must not be found after a crash:
//! the one in the directory is killed by a tombstone; one that was passed by the front in memory only has no place
//! in the directory any more. So, until a header is durable that has the tombstones and names the front of now, the log is kept
//! from the page's recovery LSN, as for a page in the group being filled: redo then makes the page anew upon the older image.
//! And no such header is written before the store's record of the page is durable (`written_back_end`), lest an older image
//! be dead before the newer one is found.
//!
//! At the end the ring is empty: nothing is found here, and all that was is in the store, its records durable. Then the
//! database may forget the cache. A crash before that finds a cache like any other.

use super::FlashCache;
use super::geometry::Geometry;
use super::pending::Tombstone;
use crate::{PageTier, PageWrite, TierError, Written};
use firn_base::sync::atomic::Ordering::Relaxed;
use firn_base::{Lsn, Progress};
use firn_device::AlignedBuf;

impl FlashCache {
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// Takes nothing in any more, or does again. In write-through mode nothing has to leave.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        // Who takes pages now ends first.
        let _ring = self.ring.lock();
        self.leaving.store(leaving && !self.is_write_through(), Relaxed);
    }

    /// Sends pages past the cache.
    pub(crate) fn write_past(&self, writes: &mut [PageWrite<'_>]) {
        assert!(!self.is_write_through(), "nothing has to leave");
        // Of a page that is written nobody reads the older image meanwhile: it is in DRAM.
        self.store.write_batch(writes);
        let taken = |write: &&PageWrite<'_>| write.dirty && write.outcome == Ok(Written::Taken);
        let mut ring = self.ring.lock();
        for write in writes.iter().filter(taken).filter(|write| Geometry::can_hold(write.page)) {
            self.pending.lock().add_image(write.recovery_lsn);
            self.directory.kill(write.page, |slot| {
                let serial = self.geometry.serial_of(slot, self.rear()).expect("a valid image has a group");
                let position = self.geometry.position(serial, self.geometry.index_of(slot));
                let tombstone = Tombstone { position, lsn: write.recovery_lsn };
                self.pending.lock().add_tombstone(tombstone, Lsn::ZERO);
            });
            self.recent.lock().note(write.page, Lsn::ZERO);
        }
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
    }

    /// Replaces one group. `Idle` once the store has everything, durably.
    pub(crate) fn leave_group(&self) -> Result<Progress, TierError> {
        if self.is_write_through() {
            return Ok(Progress::Idle);
        }
        let mut ring = self.ring.lock();
        self.check_poison()?;
        if ring.front == ring.rear {
            if self.open.read().entries.is_empty() {
                self.store.flush_records(ring.written_back_end)?;
                let left = self.directory.counts();
                assert!(left == (0, 0), "an empty ring holds no page: {left:?}");
                return Ok(Progress::Idle);
            }
            self.make_room(&mut ring)?;
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
