//! The overlay: entries of pages that changed since their map page was written.
//!
//! Invariants:
//! * An entry in the overlay is newer than, or the same as, what the page's map page holds; a map
//!   page in memory or on the device is never changed by a record, only by a sweep.
//! * An entry leaves only when a map page that contains it is durable ([`Overlay::settle`]).
//! * Every entry can be rebuilt: its record is in the map log, or in the log, which is kept for it.
//!
//! Protected by the store's `state`.

use super::entry::Entry;
use super::geometry::Geometry;
use firndb_base::PageId;
use std::collections::BTreeMap;

/// Bytes of DRAM that an entry takes, the tree's share included.
pub(crate) const OVERLAY_ENTRY_BYTES: usize = 64;
/// And those of a map page that has entries.
const WAITING_BYTES: usize = 24;

#[derive(Debug)]
pub(crate) struct Overlay {
    entries: BTreeMap<PageId, Entry>,
    /// How many of them each map page has that has any.
    of_maps: BTreeMap<u64, u32>,
    entries_per_map: u64,
}

impl Overlay {
    pub(crate) fn new(geometry: &Geometry) -> Overlay {
        let entries_per_map = geometry.entries_per_map;
        Overlay { entries: BTreeMap::new(), of_maps: BTreeMap::new(), entries_per_map }
    }

    pub(crate) fn get(&self, page: PageId) -> Option<Entry> {
        self.entries.get(&page).copied()
    }
    pub(crate) fn set(&mut self, page: PageId, entry: Entry) {
        if self.entries.insert(page, entry).is_none() {
            *self.of_maps.entry(page.0 / self.entries_per_map).or_default() += 1;
        }
    }
    /// Number of map pages that have entries here.
    pub(crate) fn maps_waiting(&self) -> usize {
        self.of_maps.len()
    }
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * OVERLAY_ENTRY_BYTES + self.of_maps.len() * WAITING_BYTES
    }

    /// The entries of map page `map`.
    pub(crate) fn of_map(&self, map: u64) -> impl Iterator<Item = (PageId, Entry)> + use<'_> {
        let first = map * self.entries_per_map;
        let pages = PageId(first)..PageId(first + self.entries_per_map);
        self.entries.range(pages).map(|(page, entry)| (*page, *entry))
    }
    /// The map pages from `from` up to and excluding `to` that have entries here, in order.
    pub(crate) fn maps(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<'_> {
        self.of_maps.range(from..to).map(|(map, _)| *map)
    }

    /// Removes what a durable map page contains, unless it has changed since.
    pub(crate) fn settle(&mut self, written: &[(PageId, Entry)]) {
        for (page, entry) in written {
            if self.entries.get(page) == Some(entry) {
                self.entries.remove(page);
                let map = page.0 / self.entries_per_map;
                let left = self.of_maps.get_mut(&map).expect("it counted this entry");
                *left -= 1;
                if *left == 0 {
                    self.of_maps.remove(&map);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Layout;
    use firndb_base::Lsn;

    #[test]
    fn what_changed_since_it_was_copied_stays() {
        let geometry = Geometry::new(1024, Layout { meta_bytes: 1024, maps_per_group: 2 }).unwrap();
        let mut overlay = Overlay::new(&geometry);
        let version = |lsn| Entry::Allocated { version: Lsn(lsn) };
        for page in [1, 2, 39, 40, 200] {
            overlay.set(PageId(page), version(page));
        }
        assert_eq!(overlay.maps(0, 100).collect::<Vec<_>>(), [0, 1, 5]);
        assert_eq!(overlay.maps(1, 5).collect::<Vec<_>>(), [1]);
        let copied: Vec<_> = overlay.of_map(0).collect();
        assert_eq!(copied.len(), 3);
        overlay.set(PageId(2), version(300));
        overlay.settle(&copied);
        assert_eq!(overlay.of_map(0).collect::<Vec<_>>(), [(PageId(2), version(300))]);
        assert_eq!(overlay.bytes(), 3 * (OVERLAY_ENTRY_BYTES + WAITING_BYTES), "of maps 0, 1 and 5");
        assert_eq!(overlay.maps_waiting(), 3);
        let copied: Vec<_> = overlay.of_map(5).collect();
        overlay.settle(&copied);
        assert_eq!(overlay.maps_waiting(), 2);
    }
}
