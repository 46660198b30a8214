//! Pages of deltas: which slots of each are live, and which page has the fewest.
//!
//! Invariants: a page of the database has one slot at most; a delta page without live slots is not
//! kept.

use crate::method::entry;
use std::collections::{BTreeMap, BTreeSet};

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct DeltaPages {
    /// The delta page of each page of the database, as its place plus one.
    of: Vec<u64>,
    /// Live pages of each delta page.
    live: BTreeMap<u64, BTreeSet<u64>>,
    by_live: BTreeSet<(usize, u64)>,
}

impl DeltaPages {
    pub fn len(&self) -> u64 {
        self.live.len() as u64
    }

    /// The place of the delta page with this page's slot.
    pub fn of(&mut self, page: u64) -> Option<u64> {
        entry(&mut self.of, page).checked_sub(1)
    }

    /// Voids the page's slot; returns the place of its delta page if it has no live slot left.
    #[must_use = "the place is free"]
    pub fn void(&mut self, page: u64) -> Option<u64> {
        let place = self.of(page)?;
        *entry(&mut self.of, page) = 0;
        let live = self.live.get_mut(&place).expect("the page has a slot there");
        self.by_live.remove(&(live.len(), place));
        assert!(live.remove(&page));
        if live.is_empty() {
            self.live.remove(&place);
            return Some(place);
        }
        self.by_live.insert((live.len(), place));
        None
    }

    /// Adds a delta page with slots of these pages, which have none.
    pub fn add(&mut self, place: u64, pages: BTreeSet<u64>) {
        for &page in &pages {
            assert_eq!(std::mem::replace(entry(&mut self.of, page), place + 1), 0, "page {page} has a slot");
        }
        self.by_live.insert((pages.len(), place));
        assert!(self.live.insert(place, pages).is_none());
    }

    /// The pages that have a slot in the delta page at a place, if there is one.
    pub fn pages_at(&self, place: u64) -> Option<Vec<u64>> {
        self.live.get(&place).map(|pages| pages.iter().copied().collect())
    }

    /// The delta page with the fewest live slots, and their pages.
    pub fn emptiest(&self) -> Option<(u64, Vec<u64>)> {
        let &(_, place) = self.by_live.first()?;
        Some((place, self.live[&place].iter().copied().collect()))
    }
}
