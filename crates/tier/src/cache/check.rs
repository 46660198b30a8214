//! Checking a cache: reads every valid image.

use super::FlashCache;
use super::geometry::Slot;
use crate::{PageRead, PageTier, TierError, TierErrorKind};
use firn_base::{Lsn, PageId};
use firn_device::AlignedBuf;

/// Images read at a time.
const READ_PAGES: usize = 64;

impl FlashCache {
    /// Reads every valid image, and tells of each that is not what the directory says, or whose page the store
    /// knows in a newer version. Answers how many were read. What moves meanwhile is read where it is then.
    pub(crate) fn check_images(&self, fault: &mut dyn FnMut(String)) -> Result<u64, TierError> {
        let mut pages: Vec<(PageId, Slot)> = Vec::new();
        if !self.is_lost() {
            self.directory.for_each_valid(|slot, word| pages.push((word.page(), slot)));
        }
        // In the order in which they lie.
        pages.sort_unstable_by_key(|(_, slot)| *slot);
        let page_size = self.geometry.page_size;
        let mut buf = AlignedBuf::zeroed(READ_PAGES * page_size);
        let mut count = 0;
        for chunk in pages.chunks(READ_PAGES) {
            let unread = || Err(TierError::new(TierErrorKind::Failed, "not read"));
            let mut reads: Vec<PageRead<'_>> = chunk
                .iter()
                .zip(buf.chunks_mut(page_size))
                .map(|((page, _), buf)| PageRead { page: *page, buf, outcome: unread() })
                .collect();
            let faults = self.counters.faults.load(firn_base::sync::atomic::Ordering::Relaxed);
            self.read_pages(&mut reads);
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
                    // An image of a page that was freed, and is nobody's.
                    Err(error) if error.kind == TierErrorKind::NotAllocated => {}
                    Err(error) => fault(error.message),
                }
            }
            let now = self.counters.faults.load(firn_base::sync::atomic::Ordering::Relaxed);
            if now > faults {
                fault(format!(
                    "{} clean pages in the flash cache {} are damaged; the store has them",
                    now - faults,
                    self.device.info().name
                ));
            }
        }
        Ok(count)
    }

    /// Whether the page's valid image is this version, and the store has a newer one.
    fn is_outdated(&self, page: PageId, version: Lsn) -> Result<bool, TierError> {
        if self.store.version_of(page)?.is_none_or(|below| below <= version) {
            return Ok(false);
        }
        // Or it was on its way: written to the store, and not yet here; or it came here after it was read above.
        let _none_under_way = self.passing.write();
        let below = self.store.version_of(page)?;
        let still = self.hit(page).is_some_and(|hit| hit.word.may_be(version));
        Ok(still && below.is_some_and(|below| below > version))
    }
}
