//! Replacement order: least recently used, or coldest extent. Pure.

use firndb_base::PageId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pages of an extent; they share its temperature (Canim et al., section 3).
const EXTENT_PAGES: u64 = 32;
/// What a read of a page adds to its extent's temperature: caching saves much of a random read's
/// disk time, and little of a read that follows the page before it, so scans leave the cache alone.
const RANDOM_READ: u64 = 8;
const SEQUENTIAL_READ: u64 = 1;
/// A read is sequential if the page before it is among the last `WINDOW` reads: several scans may
/// run at a time.
const WINDOW: usize = 16;
/// Temperatures are halved after this number of reads for every place.
const READS_A_PLACE: u64 = 8;

/// Replacement order of places. Calls for a place come in pairs: `entered`, then `left`.
pub(crate) trait Order: Send {
    /// DRAM missed this page, wherever the read then finds it.
    fn requested(&mut self, page: PageId);
    /// The page is in this place from now on.
    fn entered(&mut self, page: PageId, at: usize);
    /// The page was in this place before a restart.
    fn restored(&mut self, page: PageId, at: usize);
    /// The page in this place was hit.
    fn found(&mut self, at: usize);
    /// The page has left this place.
    fn left(&mut self, page: PageId, at: usize);
    /// The place to evict for the page when all are taken; `None` if the page is not worth one.
    fn victim(&self, page: PageId) -> Option<usize>;
}

/// Least recently used.
pub(crate) struct Lru {
    time: u64,
    /// Places by the time of their last use.
    order: BTreeMap<u64, usize>,
    /// Time of the last use of each place that is taken.
    last: Vec<Option<u64>>,
}

impl Lru {
    pub(crate) fn new(places: usize) -> Lru {
        Lru { time: 0, order: BTreeMap::new(), last: vec![None; places] }
    }
}

impl Order for Lru {
    fn requested(&mut self, _: PageId) {}
    fn entered(&mut self, _: PageId, at: usize) {
        self.time += 1;
        self.order.insert(self.time, at);
        let before = self.last[at].replace(self.time);
        assert!(before.is_none(), "a place is taken once");
    }
    fn restored(&mut self, page: PageId, at: usize) {
        self.entered(page, at);
    }
    fn found(&mut self, at: usize) {
        self.time += 1;
        let last = self.last[at].replace(self.time).expect("the place is taken");
        self.order.remove(&last);
        self.order.insert(self.time, at);
    }
    fn left(&mut self, _: PageId, at: usize) {
        let last = self.last[at].take().expect("the place is taken");
        self.order.remove(&last);
    }
    fn victim(&self, _: PageId) -> Option<usize> {
        self.order.first_key_value().map(|(_, at)| *at)
    }
}

/// Coldest extent, and of its pages the one that entered first. Memory: about 60 bytes for every
/// extent of the database that was read lately.
pub(crate) struct Temperature {
    extents: BTreeMap<u64, Extent>,
    /// Extents that have pages in the cache, by temperature.
    coldest: BTreeSet<(u64, u64)>,
    recent: VecDeque<PageId>,
    reads: u64,
    halve_after: u64,
}

#[derive(Default)]
struct Extent {
    heat: u64,
    /// In the order of entry.
    places: Vec<usize>,
}

fn extent_of(page: PageId) -> u64 {
    page.0 / EXTENT_PAGES
}

impl Temperature {
    pub(crate) fn new(places: usize) -> Temperature {
        Temperature {
            extents: BTreeMap::new(),
            coldest: BTreeSet::new(),
            recent: VecDeque::with_capacity(WINDOW),
            reads: 0,
            halve_after: READS_A_PLACE * places as u64,
        }
    }

    fn warm(&mut self, number: u64, by: u64) {
        let extent = self.extents.entry(number).or_default();
        let before = extent.heat;
        extent.heat += by;
        if !extent.places.is_empty() {
            self.coldest.remove(&(before, number));
            self.coldest.insert((before + by, number));
        }
    }

    fn halve(&mut self) {
        self.coldest.clear();
        self.extents.retain(|_, extent| {
            extent.heat /= 2;
            extent.heat > 0 || !extent.places.is_empty()
        });
        let resident = self.extents.iter().filter(|(_, extent)| !extent.places.is_empty());
        self.coldest.extend(resident.map(|(number, extent)| (extent.heat, *number)));
    }
}

impl Order for Temperature {
    fn requested(&mut self, page: PageId) {
        let follows = self.recent.iter().any(|recent| recent.0 + 1 == page.0);
        self.warm(extent_of(page), if follows { SEQUENTIAL_READ } else { RANDOM_READ });
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(page);
        self.reads += 1;
        if self.reads.is_multiple_of(self.halve_after) {
            self.halve();
        }
    }
    fn entered(&mut self, page: PageId, at: usize) {
        let extent = self.extents.entry(extent_of(page)).or_default();
        extent.places.push(at);
        self.coldest.insert((extent.heat, extent_of(page)));
    }
    fn restored(&mut self, page: PageId, at: usize) {
        // An extent with many pages left in the cache was a warm one.
        self.warm(extent_of(page), RANDOM_READ);
        self.entered(page, at);
    }
    fn found(&mut self, _: usize) {}
    fn left(&mut self, page: PageId, at: usize) {
        let extent = self.extents.get_mut(&extent_of(page)).expect("its extent has a page here");
        let index = extent.places.iter().position(|place| *place == at).expect("the place is taken");
        extent.places.remove(index);
        if extent.places.is_empty() {
            self.coldest.remove(&(extent.heat, extent_of(page)));
        }
    }
    fn victim(&self, page: PageId) -> Option<usize> {
        let wanted = self.extents.get(&extent_of(page)).map_or(0, |extent| extent.heat);
        let (heat, number) = self.coldest.first()?;
        (*heat < wanted).then(|| self.extents[number].places[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(3);
        assert_eq!(lru.victim(PageId(9)), None);
        for at in 0..3 {
            lru.entered(PageId(at as u64), at);
        }
        lru.found(0);
        assert_eq!(lru.victim(PageId(9)), Some(1));
        lru.left(PageId(1), 1);
        assert_eq!(lru.victim(PageId(9)), Some(2));
        lru.found(2);
        assert_eq!(lru.victim(PageId(9)), Some(0));
    }

    /// Page numbers within the extent of this number; far enough apart not to be a scan.
    fn page(extent: u64, index: u64) -> PageId {
        PageId(extent * EXTENT_PAGES + 2 * index)
    }

    #[test]
    fn a_page_comes_in_for_one_of_a_colder_extent_only() {
        let mut heat = Temperature::new(1000);
        for (at, extent) in [1, 1, 2].into_iter().enumerate() {
            heat.requested(page(extent, at as u64));
            heat.entered(page(extent, at as u64), at);
        }
        heat.requested(page(3, 0));
        assert_eq!(heat.victim(page(3, 0)), None, "as warm as the coldest");
        heat.requested(page(3, 1));
        assert_eq!(heat.victim(page(3, 1)), Some(2), "of extent 2");
        heat.requested(page(2, 5));
        assert_eq!(heat.victim(page(3, 1)), None, "all are as warm");
        heat.requested(page(3, 2));
        assert_eq!(heat.victim(page(3, 1)), Some(0), "of extents as warm the first, of its pages the oldest");
        heat.left(page(1, 0), 0);
        assert_eq!(heat.victim(page(3, 1)), Some(1));
        heat.left(page(1, 1), 1);
        assert_eq!(heat.victim(page(3, 1)), Some(2), "extent 1 has none left");
    }

    #[test]
    fn scans_warm_little_and_what_was_warm_long_ago_cools() {
        let mut heat = Temperature::new(100);
        for index in 0..EXTENT_PAGES {
            heat.requested(PageId(EXTENT_PAGES + index));
        }
        assert_eq!(heat.extents[&1].heat, RANDOM_READ + (EXTENT_PAGES - 1) * SEQUENTIAL_READ);
        heat.entered(PageId(EXTENT_PAGES), 0);
        for index in 0..100 * READS_A_PLACE - EXTENT_PAGES {
            heat.requested(page(100 + index, 0));
        }
        assert_eq!(heat.extents[&1].heat, (RANDOM_READ + (EXTENT_PAGES - 1) * SEQUENTIAL_READ) / 2);
        for index in 0..100 * READS_A_PLACE * 8 {
            heat.requested(page(10_000 + index % 40, 0));
        }
        assert_eq!(heat.extents[&1].heat, 0);
        assert_eq!(heat.extents.len(), 41, "what is cold and not here is forgotten");
    }
}
