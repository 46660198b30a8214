//! Dirty images that cannot be read when their group is replaced.
//!
//! The store has only an older version of a dirty image, so nothing may silently take its place,
//! and nothing can be written back. An image is given up as *lost* if reading it alone fails (or
//! returns something else) three times while the header of its group is read well in between: then
//! this place is bad, not the device. The store notes the page as lost, in the version that the
//! header names (`store/lost.rs`), and everything else continues. If the header cannot be read
//! either, nothing is decided: the group stays, and writing stops with an error, since a device
//! that is gone, or another one in its place, would make every page lost.
//!
//! A restart finds an image dirty by its group's header also if the store took it before: writing
//! back ahead of the front changes no header. Such an image is not missed: the store has it.
//!
//! In a cache that can be rebuilt from the log no image is given up, since nothing is lost: the
//! group stays, and other pages by-pass the cache until the database is opened without it.
//!
//! The page may still be in DRAM. If it is dirty there, a newer version will replace the notice; if
//! it is clean and the buffer offers it, the cache takes it as a dirty page.

use super::geometry::{SEAL_BYTES, Serial};
use super::group::{GroupHeader, Seal};
use super::read::Hit;
use super::replace::Leaving;
use super::state::{FlashCache, Ring};
use crate::error::{TierError, TierErrorKind};
use crate::page_cache::statistics::add;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// Attempts to read one image.
const ATTEMPTS: u32 = 3;

/// Result of reading an image alone.
pub(crate) enum Reread {
    /// The image was read; `sealed` holds it.
    Found(Seal),
    /// The store has this version, or a newer one.
    Stored,
    /// The image is lost. Its version.
    Lost(Lsn),
}

impl FlashCache {
    /// Reads the dirty image at `index` of group `serial` alone, into `sealed`, after reading its
    /// group did not return it because of `cause`.
    pub(crate) fn reread(
        &self,
        serial: Serial,
        index: usize,
        image: &Leaving,
        sealed: &mut [u8],
        cause: TierError,
    ) -> Result<Reread, TierError> {
        let page = image.word.page();
        let hit = Hit { slot: image.slot, word: image.word, serial };
        let reach = self.reach(hit);
        let mut buf = AlignedBuf::zeroed(reach.len);
        for _ in 0..ATTEMPTS {
            if self.device.read(reach.offset, &mut buf).is_ok() {
                let found = &buf[reach.skip..reach.skip + SEAL_BYTES + self.geometry.page_size];
                if let Ok(seal) = self.verify(page, hit, found) {
                    sealed.copy_from_slice(found);
                    return Ok(Reread::Found(seal));
                }
            }
            let version = self.version_in_header(serial, index, page).ok_or_else(|| cause.clone())?;
            if !image.word.may_be(version) {
                return Err(cause);
            }
        }
        if self.is_recorded(page, hit) {
            return Ok(Reread::Stored);
        }
        if self.is_rebuildable() {
            // The header can be read: only this place is bad.
            let kind =
                if cause.kind == TierErrorKind::Damaged { cause.kind } else { TierErrorKind::Unreadable };
            return Err(TierError::new(
                kind,
                format!(
                    "{}. Nothing is lost: close the database and open it without its flash cache, which rebuilds from the \
                     log what is in there",
                    cause.message
                ),
            ));
        }
        let version = self.version_in_header(serial, index, page).ok_or(cause)?;
        Ok(Reread::Lost(version))
    }

    /// Whether the store has the very version of a dirty image that cannot be read. Where it has a
    /// newer one, the image may be read once more and is older: a read must not be answered then,
    /// since the image stays in the directory.
    pub(crate) fn store_has(&self, page: PageId, hit: Hit) -> bool {
        let version = self.version_of_dirty(page, hit);
        version.is_some() && self.store.version_of(page).is_ok_and(|found| found == version)
    }

    /// Whether the store has recorded the version of a dirty image that cannot be read, or a newer
    /// one: what waits in its write buffer a crash would lose.
    pub(crate) fn is_recorded(&self, page: PageId, hit: Hit) -> bool {
        let version = self.version_of_dirty(page, hit);
        version.is_some() && self.store.recorded_version_of(page).is_ok_and(|found| found >= version)
    }

    /// The version of a dirty image that cannot be read, by its group's header.
    fn version_of_dirty(&self, page: PageId, hit: Hit) -> Option<Lsn> {
        let named = self.version_in_header(hit.serial, self.geometry.index_of(hit.slot), page);
        named.filter(|version| hit.word.may_be(*version))
    }

    /// The version that the group's header gives for its image `index`, if the header can be read.
    fn version_in_header(&self, serial: Serial, index: usize, page: PageId) -> Option<Lsn> {
        let mut buf = AlignedBuf::zeroed(self.geometry.header_bytes);
        self.device.read(self.geometry.group_offset(serial), &mut buf).ok()?;
        let header = GroupHeader::read(&self.geometry, self.header.cache, &buf).ok()?;
        let entry = header.entries.get(index)?;
        (header.serial == serial && entry.page == page).then_some(entry.version)
    }

    /// Makes the store note that an image of the front group is lost.
    pub(crate) fn give_up_image(&self, ring: &mut Ring, image: &Leaving) -> Result<(), TierError> {
        let (page, version) = (image.word.page(), image.version);
        let sentence = format!(
            "{page:?} is lost: its version {version} was in the flash cache {} only, at offset {}, which cannot be read any \
             more, and the store had an older one. Restore what it belongs to from a backup, or drop it",
            self.device.info().name,
            self.reach(Hit { slot: image.slot, word: image.word, serial: ring.front }).offset
        );
        if self.store.write_lost(page, version, &sentence)? {
            add(&self.counters.pages_lost, 1);
            self.lost_pages.lock().insert(page);
        }
        ring.written_back_end = ring.written_back_end.max(self.store.records_end());
        Ok(())
    }

    /// Whether a clean page that is offered is one that was lost here, and is therefore the only
    /// intact copy.
    pub(crate) fn rescues(&self, page: PageId) -> bool {
        self.counters.pages_lost.load(firndb_base::sync::atomic::Ordering::Relaxed) > 0
            && self.lost_pages.lock().remove(&page)
    }

    /// Why reading the group did not return the image.
    pub(crate) fn cause_of(
        &self,
        read: Result<(), firndb_device::DeviceError>,
        image: &Leaving,
    ) -> TierError {
        match read {
            Err(error) => TierError::new(TierErrorKind::Failed, error.message),
            Ok(()) => self.damaged(image.word.page(), image.slot),
        }
    }
}
