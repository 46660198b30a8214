//! Page numbers: reserved, then allocated; available again once what freed them is durable.

use super::{Space, mask_of};
use crate::store::bitmap::{self, Which};
use crate::store::geometry::{Geometry, SEGMENT_PLACES};
use firndb_base::PageId;

impl Space {
    /// The learned group to take page numbers from: the lowest, which keeps the map dense. Ask
    /// [`Space::next_for_page`] first.
    pub(crate) fn group_for_page(&self) -> Option<u64> {
        self.with_pages.first().copied()
    }

    /// Reserves the lowest available page number of a learned group; `None` if its bitmap page has
    /// fewer than was learned, since it is damaged.
    pub(crate) fn reserve_page(&mut self, geometry: &Geometry, group: u64, body: &[u8]) -> Option<PageId> {
        let base = group * geometry.places_per_group;
        let first = if self.no_page_before.0 == group { self.no_page_before.1 } else { 0 };
        for segment in (first..geometry.segments()).chain(0..first) {
            let free = !bitmap::word(geometry, body, Which::Pages, segment) & geometry.segment_mask(segment);
            if free == 0 {
                continue;
            }
            let start = base + segment as u64 * SEGMENT_PLACES;
            let range = start..start + SEGMENT_PLACES;
            let held = mask_of(&self.reserved, range.clone()) | mask_of(&self.freed_pages, range);
            let free = free & !held;
            if free != 0 {
                self.no_page_before = (group, segment);
                let page = PageId(start + u64::from(free.trailing_zeros()));
                assert!(self.reserved.insert(page.0));
                self.change(group, |space| space.pages -= 1);
                return Some(page);
            }
        }
        None
    }

    /// Releases a reserved page number.
    pub(crate) fn unreserve(&mut self, geometry: &Geometry, page: PageId) {
        assert!(self.reserved.remove(&page.0), "{page:?} was not reserved");
        self.page_is_available(geometry, page);
    }

    /// Notes that a reserved page number is allocated: the bitmap keeps it from now on.
    pub(crate) fn allocated(&mut self, page: PageId) {
        assert!(self.reserved.remove(&page.0), "{page:?} was not reserved");
    }

    /// Counts a page number that is neither reserved nor held any more.
    pub(super) fn page_is_available(&mut self, geometry: &Geometry, page: PageId) {
        let group = geometry.group_of_page(page);
        let segment = (page.0 - group * geometry.places_per_group) / SEGMENT_PLACES;
        if self.no_page_before.0 == group {
            self.no_page_before.1 = self.no_page_before.1.min(segment as usize);
        }
        self.change(group, |space| space.pages += 1);
    }

    /// Forgets in which of a group's segments no page number is available.
    pub(super) fn look_from_first_segment(&mut self, group: u64) {
        if self.no_page_before.0 == group {
            self.no_page_before.1 = 0;
        }
    }
}
