//! A page tier in memory, for tests of the layers above; `small_store`, for tests of caches.

#[cfg(any(test, feature = "testing"))]
pub mod at_scale;
pub mod delta_page;
#[cfg(any(test, feature = "testing"))]
pub mod small_store;

use crate::error::{TierError, TierErrorKind};
use crate::granules::{Base, Changes};
use crate::page_tier::{
    Allocation, Found, PageRead, PageTier, PageWrite, Prepared, TierStatistics, Whereabouts, Written,
};
use firndb_base::checksum::crc32c;
use firndb_base::sync::Mutex;
use firndb_base::{Lsn, PageId};
use firndb_log::{Appended, Kind, LogClass, LogError, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Pages in a map. Keeps every written page, and does not model crashes.
pub struct MemoryTier {
    page_size: usize,
    state: Mutex<State>,
}

/// What became of a written page, without its base: for tests that compare outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// As [`Written::Taken`].
    Taken,
    /// As [`Written::Declined`].
    Declined,
}

impl From<Written> for Took {
    fn from(written: Written) -> Took {
        if written.is_taken() { Took::Taken } else { Took::Declined }
    }
}

/// LSN and image of a page's newest version; no image if it was never written.
type Version = (Lsn, Option<Box<[u8]>>);

#[derive(Default)]
struct State {
    next: u64,
    pages: BTreeMap<PageId, Version>,
    damaged: BTreeSet<PageId>,
    unreadable: BTreeSet<PageId>,
    statistics: TierStatistics,
}

impl MemoryTier {
    /// An empty tier.
    #[must_use]
    pub fn new(page_size: usize) -> MemoryTier {
        MemoryTier { page_size, state: Mutex::default() }
    }

    /// New pages get the numbers after this one, which must not be in use.
    pub fn hand_out_after(&self, page: PageId) {
        self.state.lock().next = page.0;
    }

    /// Makes every later read of the page fail.
    pub fn damage(&self, page: PageId) {
        self.state.lock().damaged.insert(page);
    }

    /// Makes every later read of the page fail, until [`MemoryTier::can_read`].
    pub fn cannot_read(&self, page: PageId) {
        self.state.lock().unreadable.insert(page);
    }

    /// Ends what [`MemoryTier::cannot_read`] began.
    pub fn can_read(&self, page: PageId) {
        self.state.lock().unreadable.remove(&page);
    }

    /// Frees the page, although other pages may still refer to it.
    pub fn forget(&self, page: PageId) {
        assert!(self.state.lock().pages.remove(&page).is_some(), "{page:?} was not allocated");
    }
}

/// A page's base after this image was written.
fn base(version: Lsn, image: &[u8]) -> Base {
    Base { version, checksum: crc32c(image) }
}

fn found(version: Lsn, image: Option<&[u8]>) -> Found {
    let Some(image) = image else { return Found::without_base(version) };
    Found { base: Some(base(version, image)), changes: Changes::NONE, ..Found::without_base(version) }
}

impl PageTier for MemoryTier {
    fn page_size(&self) -> usize {
        self.page_size
    }
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        let mut state = self.state.lock();
        for read in reads {
            state.statistics.pages_read += 1;
            if state.damaged.contains(&read.page) {
                read.outcome =
                    Err(TierError::new(TierErrorKind::Damaged, format!("{:?} is damaged", read.page)));
                continue;
            }
            if state.unreadable.contains(&read.page) {
                let message = format!("{:?} cannot be read now", read.page);
                read.outcome = Err(TierError::new(TierErrorKind::Unreadable, message));
                continue;
            }
            read.outcome = match state.pages.get(&read.page) {
                None => Err(TierError::new(
                    TierErrorKind::NotAllocated,
                    format!("{:?} is not allocated", read.page),
                )),
                Some((version, image)) => {
                    match image {
                        Some(image) => read.buf.copy_from_slice(image),
                        None => read.buf.fill(0),
                    }
                    Ok(found(*version, image.as_deref()))
                }
            };
        }
    }
    fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        let state = self.state.lock();
        found.clear();
        found.extend(pages.iter().map(|page| match state.pages.get(page) {
            None => Whereabouts::Unknown,
            Some((_, None)) => Whereabouts::Unwritten,
            Some((_, Some(_))) => Whereabouts::Store { place: page.0 },
        }));
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        let mut state = self.state.lock();
        for write in writes {
            if !write.dirty {
                write.outcome = Ok(Written::Declined);
                continue;
            }
            state.statistics.pages_written += 1;
            write.outcome = match state.pages.get_mut(&write.page) {
                None => Err(TierError::new(
                    TierErrorKind::NotAllocated,
                    format!("{:?} is not allocated", write.page),
                )),
                Some(entry) => {
                    assert!(write.version >= entry.0, "a version never goes back");
                    *entry = (write.version, Some(write.data.into()));
                    let base = Some(base(write.version, write.data));
                    Ok(Written::Taken { base, changes: Changes::NONE })
                }
            };
        }
    }
    fn make_batch_space(&self) -> usize {
        16
    }
    fn reserve(&self, _: LogClass) -> Result<PageId, TierError> {
        let mut state = self.state.lock();
        state.next += 1;
        Ok(PageId(state.next))
    }
    fn unreserve(&self, _: PageId) {}
    fn prepare(&self, _: &[PageId]) -> Result<Prepared<'_>, TierError> {
        Ok(Prepared::default())
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        let mut state = self.state.lock();
        if let Some(page) = change.free.iter().find(|page| !state.pages.contains_key(page)) {
            return Err(TierError::new(TierErrorKind::NotAllocated, format!("{page:?} is not allocated")));
        }
        let appended = append(Record { kind: Kind::PAGES_PUBLISHED, body: &[] })?;
        for &page in change.allocate {
            assert!(
                state.pages.insert(page, (appended.first, None)).is_none(),
                "{page:?} was allocated already"
            );
        }
        for page in change.free {
            state.pages.remove(page);
            state.damaged.remove(page);
        }
        Ok(appended)
    }
    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }
    fn version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        Ok(self.state.lock().pages.get(&page).map(|(version, _)| *version))
    }
    fn oldest_needed_lsn(&self) -> Option<Lsn> {
        None
    }
    fn statistics(&self) -> TierStatistics {
        let state = self.state.lock();
        TierStatistics { pages_allocated: state.pages.len() as u64, ..state.statistics }
    }
}
