//! What a map record does to the cached metadata pages: one function for the run and for redo, so that they
//! cannot differ.
//!
//! A record is applied to each metadata page it concerns if that page's LSN is less than the record's. Since
//! records are applied in the order of their LSNs, a page contains either all of a record that concerns it,
//! or nothing; so redo, begun anywhere at or before the oldest change that is missing, ends in the same state.

use super::bitmap::{self, Which};
use super::entry::Entry;
use super::geometry::{Geometry, Place};
use super::meta_cache::MetaCache;
use super::meta_page::MetaId;
use super::records::Change;
use super::totals::Totals;
use firn_base::codec::Malformed;
use firn_base::{Lsn, PageId};

/// The metadata pages that `changes` concern, each once, in order.
pub(crate) fn concerned(geometry: &Geometry, changes: &[Change]) -> Vec<MetaId> {
    let mut ids = vec![MetaId::Totals];
    for change in changes {
        match *change {
            Change::Allocate { page } | Change::Adopt { page, .. } => {
                ids.extend([geometry.map_of_page(page), geometry.bitmap_of_page(page)])
            }
            Change::Free { page, place } => {
                ids.extend([geometry.map_of_page(page), geometry.bitmap_of_page(page)]);
                ids.extend(place.map(|place| geometry.bitmap_of_place(place)));
            }
            Change::Move { page, place, old, .. } => {
                ids.extend([geometry.map_of_page(page), geometry.bitmap_of_place(place)]);
                ids.extend(old.map(|old| geometry.bitmap_of_place(old)));
            }
            Change::Backing { group, .. } => ids.push(MetaId::Bitmap(group)),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Applies the changes of the record at `lsn`. All of `concerned`'s pages that exist are in `cache`; `groups`
/// is how many groups there are, and changes to others are left out (the caller knows whether that is right).
/// An error says that a page is not in the state in which the record met it: the pages are then undefined.
pub(crate) fn apply(
    geometry: &Geometry,
    cache: &mut MetaCache,
    groups: u64,
    lsn: Lsn,
    changes: &[Change],
) -> Result<(), Malformed> {
    let behind: Vec<MetaId> = concerned(geometry, changes)
        .into_iter()
        .filter(|id| geometry.group_of_meta(*id).is_none_or(|group| group < groups))
        .filter(|id| cache.get(*id).expect("the caller loaded what is concerned").lsn < lsn)
        .collect();
    let mut pages = Pages { geometry, cache, behind: &behind };
    for change in changes {
        pages.apply(lsn, *change)?;
    }
    for id in behind.iter() {
        cache.changed(*id, lsn);
    }
    Ok(())
}

struct Pages<'a> {
    geometry: &'a Geometry,
    cache: &'a mut MetaCache,
    behind: &'a [MetaId],
}

impl Pages<'_> {
    fn apply(&mut self, lsn: Lsn, change: Change) -> Result<(), Malformed> {
        match change {
            Change::Allocate { page } => self.allocate(page, lsn),
            Change::Adopt { page, version } => self.allocate(page, version),
            Change::Free { page, place } => {
                self.entry(page, |old| (old != Entry::Free && old.place() == place).then_some(Entry::Free))?;
                self.page_bit(page, false)?;
                if let Some(place) = place {
                    self.place_bit(place, false)?;
                }
                let places = u64::from(place.is_some());
                self.totals(|totals| {
                    totals.pages = totals.pages.checked_sub(1)?;
                    totals.places = totals.places.checked_sub(places)?;
                    Some(())
                })
            }
            Change::Move { page, version, place, checksum, old } => {
                let new = Entry::Placed { version, place, checksum };
                self.entry(page, |entry| {
                    let fits =
                        entry.place() == old && entry.version().is_some_and(|before| before <= version);
                    fits.then_some(new)
                })?;
                self.place_bit(place, true)?;
                if let Some(old) = old {
                    self.place_bit(old, false)?;
                }
                let added = u64::from(old.is_none());
                self.totals(|totals| totals.places.checked_add(added).map(|places| totals.places = places))
            }
            Change::Backing { group, backed } => {
                if let Some(body) = self.body(MetaId::Bitmap(group)) {
                    if bitmap::is_backed(body) == backed {
                        return Err(Malformed { what: "a group given back or taken again twice" });
                    }
                    bitmap::set_backed(body, backed);
                }
                self.totals(|totals| {
                    let groups = totals.unbacked_groups;
                    totals.unbacked_groups =
                        if backed { groups.checked_sub(1)? } else { groups.checked_add(1)? };
                    Some(())
                })
            }
        }
    }

    fn allocate(&mut self, page: PageId, version: Lsn) -> Result<(), Malformed> {
        self.entry(page, |old| (old == Entry::Free).then_some(Entry::Allocated { version }))?;
        self.page_bit(page, true)?;
        self.totals(|totals| totals.pages.checked_add(1).map(|pages| totals.pages = pages))
    }

    /// The body of a page that does not have the record yet.
    fn body(&mut self, id: MetaId) -> Option<&mut [u8]> {
        self.behind.binary_search(&id).ok()?;
        Some(&mut self.cache.get(id).expect("pages behind are cached").body)
    }
    fn entry(&mut self, page: PageId, change: impl FnOnce(Entry) -> Option<Entry>) -> Result<(), Malformed> {
        let slot = self.geometry.slot_of_page(page);
        let Some(body) = self.body(self.geometry.map_of_page(page)) else { return Ok(()) };
        let old = Entry::read(body, slot)?;
        let new = change(old).ok_or(Malformed { what: "a map entry that does not fit the record" })?;
        new.write(body, slot);
        Ok(())
    }
    fn page_bit(&mut self, page: PageId, value: bool) -> Result<(), Malformed> {
        let (id, index) = (self.geometry.bitmap_of_page(page), self.geometry.index_of_page(page));
        self.bit(id, Which::Pages, index, value)
    }
    fn place_bit(&mut self, place: Place, value: bool) -> Result<(), Malformed> {
        let (id, index) = (self.geometry.bitmap_of_place(place), self.geometry.index_of_place(place));
        self.bit(id, Which::Places, index, value)
    }
    fn bit(&mut self, id: MetaId, which: Which, index: u64, value: bool) -> Result<(), Malformed> {
        let geometry = *self.geometry;
        let Some(body) = self.body(id) else { return Ok(()) };
        if !bitmap::set(&geometry, body, which, index, value) {
            return Err(Malformed { what: "a bit that was already as the record makes it" });
        }
        Ok(())
    }
    fn totals(&mut self, change: impl FnOnce(&mut Totals) -> Option<()>) -> Result<(), Malformed> {
        let Some(body) = self.body(MetaId::Totals) else { return Ok(()) };
        let mut totals = Totals::read(body);
        change(&mut totals).ok_or(Malformed { what: "totals that do not fit the record" })?;
        totals.write(body);
        Ok(())
    }
}
