//! Checking a cache: reads every valid image.

use super::geometry::Slot;
use super::state::FlashCache;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::PageRead;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// Images read at a time.
const READ_PAGES: usize = 64;

impl FlashCache {
    /// Reads every valid image, and reports each that does not match the directory, or that is
    /// older than the store's version of the page. Returns the number of images read. A page that
    /// moves meanwhile is read where it is then.
    pub(crate) fn check(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        if self.is_lost() {
            return Ok(0);
        }
        // In slot order, `READ_PAGES` at a time: listing all pages at once would take too much
        // memory.
        let mut slots = (0..self.geometry.slots() as u32).map(Slot);
        let page_size = self.geometry.page_size;
        let mut buf = AlignedBuf::zeroed(READ_PAGES * page_size);
        let mut count = 0;
        loop {
            let words = slots.by_ref().map(|slot| self.directory.word(slot));
            let valid = words.filter(|word| word.is_valid()).map(|word| word.page());
            let pages: Vec<PageId> = valid.take(READ_PAGES).collect();
            if pages.is_empty() {
                return Ok(count);
            }
            let unread = || Err(TierError::unset());
            let mut reads: Vec<PageRead<'_>> = pages
                .iter()
                .zip(buf.chunks_mut(page_size))
                .map(|(page, buf)| PageRead { page: *page, buf, outcome: unread() })
                .collect();
            let faults = self.counters.faults.load(firndb_base::sync::atomic::Ordering::Relaxed);
            self.read_batch(&mut reads);
            for read in reads {
                match read.outcome {
                    Ok(found) => {
                        count += 1;
                        if self.is_outdated(read.page, found.version)? {
                            fault(format!(
                                "{:?} is in the flash cache in version {} and in the store in a newer one",
                                read.page, found.version
                            ));
                        }
                    }
                    // A stale image of a page that was freed.
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(_) if self.is_unallocated(read.page) => {}
                    Err(error) => fault(error.to_string()),
                }
            }
            let now = self.counters.faults.load(firndb_base::sync::atomic::Ordering::Relaxed);
            if now > faults {
                fault(format!(
                    "{} pages in the flash cache {} are damaged; the store has them",
                    now - faults,
                    self.device.info().name
                ));
            }
        }
    }

    /// Whether the page is not allocated, so that images of it, from before it was freed, are
    /// stale.
    pub(crate) fn is_unallocated(&self, page: PageId) -> bool {
        matches!(self.store.version_of(page), Ok(None))
    }

    /// Whether the page's valid image is this version, and the store has a newer one.
    fn is_outdated(&self, page: PageId, version: Lsn) -> Result<bool, TierError> {
        if self.store.version_of(page)?.is_none_or(|below| below <= version) {
            return Ok(false);
        }
        // Or the page was between the two: written to the store, and not yet here; or it came here
        // after it was read above.
        let _none_under_way = self.passing.write();
        let below = self.store.version_of(page)?;
        let still = self.hit(page).is_some_and(|hit| hit.word.may_be(version));
        Ok(still && below.is_some_and(|below| below > version))
    }
}
