//! The part of the map that a check has walked, kept current while other threads write.
//!
//! A check walks the map page by page and compares it with the bitmap pages afterwards, and pages
//! move meanwhile. So the check records what it has walked in a *mirror*: every change to map pages
//! that were walked already is followed when it is applied, under the same hold of `state`; the
//! others are read when their turn comes. When the walk has ended the mirror has the places that
//! the map names at that very moment, and stays current while bitmap pages are compared with it,
//! each in one hold of `state`. In this way a check is as exact beside writers as alone. Memory: a
//! bit a place.

use super::geometry::{Geometry, Place};
use super::meta_page::MetaId;
use super::records::Change;
use super::totals::Totals;
use firndb_base::PageId;

/// Contents of the walked part of the map.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// A bit for each place: whether a walked map page names it.
    named: Vec<u64>,
    /// Map pages before this one were walked.
    maps: u64,
    /// Whether one of them could not be read.
    has_skipped: bool,
    /// Bitmap pages before this one were compared.
    groups: u64,
    /// Sums over the walked map pages and the compared groups.
    totals: Totals,
}

impl Mirror {
    /// Marks a place as named; returns whether it was not named before.
    fn name(&mut self, place: Place) -> bool {
        let (word, bit) = ((place.0 / 64) as usize, 1u64 << (place.0 % 64));
        if word >= self.named.len() {
            self.named.resize(word + 1, 0);
        }
        let new = self.named[word] & bit == 0;
        self.named[word] |= bit;
        new
    }
    fn forget(&mut self, place: Place) {
        if let Some(word) = self.named.get_mut((place.0 / 64) as usize) {
            *word &= !(1u64 << (place.0 % 64));
        }
    }
    /// Whether a walked map page names the place.
    pub(crate) fn names(&self, place: Place) -> bool {
        self.named.get((place.0 / 64) as usize).is_some_and(|word| word >> (place.0 % 64) & 1 == 1)
    }
    /// Pages and places of the walked map pages, groups without space among the compared ones.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Counts an allocated page, at `place`, of the map page being walked; returns whether no other
    /// page names that place.
    pub(crate) fn saw(&mut self, place: Option<Place>) -> bool {
        self.totals.pages += 1;
        self.totals.places += u64::from(place.is_some());
        place.is_none_or(|place| self.name(place))
    }
    /// Notes that the map pages before `maps` were walked.
    pub(crate) fn walked(&mut self, maps: u64) {
        self.maps = maps;
    }
    /// Notes that `map` cannot be read.
    pub(crate) fn skipped(&mut self, map: u64) {
        (self.maps, self.has_skipped) = (map + 1, true);
    }
    /// Whether a map page could not be read: what its pages have is not known.
    pub(crate) fn has_skipped(&self) -> bool {
        self.has_skipped
    }
    /// Notes that the bitmap page of `group`, which counts `delta_pages` of these, was compared, or
    /// cannot be.
    pub(crate) fn compared(&mut self, group: u64, backed: bool, delta_pages: u64) {
        self.groups = group + 1;
        self.count_deltas(delta_pages);
        self.totals.unbacked_groups += u64::from(!backed);
    }

    /// Delta pages take places that no page has for its image.
    fn count_deltas(&mut self, delta_pages: u64) {
        self.totals.delta_pages += delta_pages;
        self.totals.places += delta_pages;
    }

    /// Follows a change that was applied. (The pages of a map page that could not be read at its
    /// turn were not counted; then the sums do not matter.)
    pub(crate) fn follow(&mut self, geometry: &Geometry, change: Change) {
        let walked = |page: PageId| matches!(geometry.map_of_page(page), MetaId::Map(map) if map < self.maps);
        match change {
            Change::Allocate { page } | Change::Adopt { page, .. } if walked(page) => self.totals.pages += 1,
            Change::Free { page, place } if walked(page) => {
                self.totals.pages = self.totals.pages.saturating_sub(1);
                if let Some(place) = place {
                    self.totals.places = self.totals.places.saturating_sub(1);
                    self.forget(place);
                }
            }
            Change::Move { page, place, old, .. } if walked(page) => {
                self.name(place);
                match old.place() {
                    Some(old) => self.forget(old),
                    None => self.totals.places += 1,
                }
            }
            Change::DeltaPage { place } if geometry.group_of_place(place) < self.groups => {
                self.count_deltas(1);
            }
            Change::DeltaFreed { place } if geometry.group_of_place(place) < self.groups => {
                self.totals.delta_pages = self.totals.delta_pages.saturating_sub(1);
                self.totals.places = self.totals.places.saturating_sub(1);
            }
            Change::Backing { group, backed } if group < self.groups => match backed {
                true => self.totals.unbacked_groups = self.totals.unbacked_groups.saturating_sub(1),
                false => self.totals.unbacked_groups += 1,
            },
            _ => {}
        }
    }
}
