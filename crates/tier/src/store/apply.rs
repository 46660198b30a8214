//! Applying a map record to the cached metadata pages: one function for normal operation and for
//! redo, so that they cannot differ.
//!
//! A record is applied to each metadata page it concerns if that page's LSN is less than the
//! record's. Since records are applied in the order of their LSNs, a page contains either all of a
//! record that concerns it, or nothing; so redo, begun anywhere at or before the oldest change that
//! is missing, ends in the same state.

use super::bitmap::{self, Which};
use super::entry::{Entry, SlotAt};
use super::geometry::{Geometry, Place};
use super::meta_cache::{MetaCache, MetaPage};
use super::meta_page::MetaId;
use super::records::Change;
use super::totals::Totals;
use crate::error::{TierError, TierErrorKind};
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};

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
            Change::Delta { page, .. } => ids.push(geometry.map_of_page(page)),
            Change::DeltaPage { place } | Change::DeltaFreed { place } => {
                ids.push(geometry.bitmap_of_place(place));
            }
            Change::Backing { group, .. } => ids.push(MetaId::Bitmap(group)),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Applies the changes of the record at `lsn`. All of `concerned`'s pages that exist are in
/// `cache`; `groups` is the number of groups, and changes to groups beyond are skipped (the caller
/// knows whether that is right). An error means that a page is not in the state that the record
/// presupposes: the pages are then undefined. Returns the slots that entries no longer name.
pub(crate) fn apply(
    geometry: &Geometry,
    cache: &mut MetaCache,
    groups: u64,
    lsn: Lsn,
    changes: &[Change],
) -> Result<Vec<SlotAt>, Malformed> {
    let behind: Vec<MetaId> = concerned(geometry, changes)
        .into_iter()
        .filter(|id| geometry.group_of_meta(*id).is_none_or(|group| group < groups))
        .filter(|id| cache.get(*id).expect("the caller loaded what is concerned").lsn < lsn)
        .collect();
    let mut pages = Pages { geometry, cache, behind: &behind, died: Vec::new() };
    for change in changes {
        pages.apply(lsn, change)?;
    }
    let died = pages.died;
    for id in behind.iter() {
        cache.changed(*id, lsn);
    }
    Ok(died)
}

/// Checks that the present metadata pages allow `changes`, so that a record of these can be applied
/// and redone. They do not allow them if damage has made entries, bitmaps and totals contradict
/// each other. All of `concerned`'s pages are in `cache`.
///
/// Errors: the index of a change that does not fit, and what of it.
pub(crate) fn check(
    geometry: &Geometry,
    cache: &mut MetaCache,
    changes: &[Change],
) -> Result<(), (usize, Malformed)> {
    let mut totals = Totals::read(&cached(cache, MetaId::Totals).body);
    let mut bits = Vec::with_capacity(2 * changes.len());
    for (index, change) in changes.iter().enumerate() {
        let misfit = |what: &'static str| (index, Malformed { what });
        if let Some(page) = change.page() {
            let old =
                Entry::read(&cached(cache, geometry.map_of_page(page)).body, geometry.slot_of_page(page))
                    .map_err(|error| (index, error))?;
            entry_after(change, Lsn::ZERO, old).ok_or(misfit(ENTRY))?;
        }
        for bit in bits_of(geometry, change) {
            let body = &cached(cache, bit.id).body;
            if bitmap::get(geometry, body, bit.which, bit.index) == bit.value {
                return Err(misfit(BIT));
            }
            bits.push((bit.id, bit.which, bit.index, index));
        }
        if let Change::Backing { group, backed } = *change
            && bitmap::is_backed(&cached(cache, MetaId::Bitmap(group)).body) == backed
        {
            return Err(misfit(BACKED));
        }
        totals = totals_after(change, totals).ok_or(misfit(TOTALS))?;
    }
    // Two entries may name one place.
    bits.sort_unstable();
    match bits.windows(2).find(|pair| (pair[0].0, pair[0].1, pair[0].2) == (pair[1].0, pair[1].1, pair[1].2))
    {
        None => Ok(()),
        Some(pair) => Err((pair[1].3, Malformed { what: BIT })),
    }
}

const ENTRY: &str = "a map entry that does not fit the record";
const BIT: &str = "a bit that was already as the record makes it";
const BACKED: &str = "a group given back or taken again twice";
const TOTALS: &str = "totals that do not fit the record";

/// The error for a page of which the entry, the bitmaps and the totals do not fit together
/// ([`check`]).
pub(crate) fn contradiction(page: PageId, error: Malformed) -> TierError {
    let message = format!(
        "the metadata of {page:?} contradicts itself: {}. Run a check, then restore the database from a backup",
        error.what
    );
    TierError::new(TierErrorKind::Damaged, message)
}

fn cached(cache: &mut MetaCache, id: MetaId) -> &mut MetaPage {
    cache.get(id).expect("the caller loaded what is concerned")
}

/// A page's entry after the record at `lsn`; `None` if the entry is not in the state that the
/// record expects.
fn entry_after(change: &Change, lsn: Lsn, old: Entry) -> Option<Entry> {
    match *change {
        Change::Allocate { .. } => (old == Entry::Free).then_some(Entry::Allocated { version: lsn }),
        Change::Adopt { version, .. } => (old == Entry::Free).then_some(Entry::Allocated { version }),
        Change::Free { place, .. } => (old != Entry::Free && old.place() == place).then_some(Entry::Free),
        Change::Move { version, place, checksum, old: from, .. } => {
            let fits = old.place() == from && old.version().is_some_and(|before| before <= version);
            fits.then_some(Entry::Placed { version, place, checksum })
        }
        Change::Delta { version, at, rent, .. } => match old {
            Entry::Placed { version: before, place, checksum }
            | Entry::Delta { version: before, place, checksum, .. }
                if before <= version =>
            {
                Some(Entry::Delta { version, place, checksum, at, rent })
            }
            _ => None,
        },
        Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => Some(old),
    }
}

/// A bit of a bitmap page, and what a record makes of it.
struct Bit {
    id: MetaId,
    which: Which,
    index: u64,
    value: bool,
}

/// The bits that a record turns over.
fn bits_of(geometry: &Geometry, change: &Change) -> impl Iterator<Item = Bit> + use<> {
    let page_bit = |page: PageId, value: bool| Bit {
        id: geometry.bitmap_of_page(page),
        which: Which::Pages,
        index: geometry.index_of_page(page),
        value,
    };
    let place_bit = |place: Place, value: bool| Bit {
        id: geometry.bitmap_of_place(place),
        which: Which::Places,
        index: geometry.index_of_place(place),
        value,
    };
    let delta_bit = |place: Place, value: bool| Bit { which: Which::Deltas, ..place_bit(place, value) };
    let bits = match *change {
        Change::Allocate { page } | Change::Adopt { page, .. } => [Some(page_bit(page, true)), None],
        Change::Free { page, place } => {
            [Some(page_bit(page, false)), place.map(|place| place_bit(place, false))]
        }
        Change::Move { place, old, .. } => {
            [Some(place_bit(place, true)), old.map(|place| place_bit(place, false))]
        }
        Change::DeltaPage { place } => [Some(place_bit(place, true)), Some(delta_bit(place, true))],
        Change::DeltaFreed { place } => [Some(place_bit(place, false)), Some(delta_bit(place, false))],
        Change::Delta { .. } | Change::Backing { .. } => [None, None],
    };
    bits.into_iter().flatten()
}

/// The totals after a change; `None` if they pass what a number holds.
fn totals_after(change: &Change, mut totals: Totals) -> Option<Totals> {
    match *change {
        Change::Allocate { .. } | Change::Adopt { .. } => totals.pages = totals.pages.checked_add(1)?,
        Change::Free { place, .. } => {
            totals.pages = totals.pages.checked_sub(1)?;
            totals.places = totals.places.checked_sub(u64::from(place.is_some()))?;
        }
        Change::Move { old, .. } => {
            totals.places = totals.places.checked_add(u64::from(old.is_none()))?;
        }
        Change::DeltaPage { .. } => {
            totals.places = totals.places.checked_add(1)?;
            totals.delta_pages = totals.delta_pages.checked_add(1)?;
        }
        Change::DeltaFreed { .. } => {
            totals.places = totals.places.checked_sub(1)?;
            totals.delta_pages = totals.delta_pages.checked_sub(1)?;
        }
        Change::Delta { .. } => {}
        Change::Backing { backed: true, .. } => {
            totals.unbacked_groups = totals.unbacked_groups.checked_sub(1)?;
        }
        Change::Backing { backed: false, .. } => {
            totals.unbacked_groups = totals.unbacked_groups.checked_add(1)?;
        }
    }
    Some(totals)
}

struct Pages<'a> {
    geometry: &'a Geometry,
    cache: &'a mut MetaCache,
    behind: &'a [MetaId],
    died: Vec<SlotAt>,
}

impl Pages<'_> {
    fn apply(&mut self, lsn: Lsn, change: &Change) -> Result<(), Malformed> {
        let geometry = self.geometry;
        if let Some(page) = change.page()
            && let Some(body) = self.body(geometry.map_of_page(page))
        {
            let slot = geometry.slot_of_page(page);
            let old = Entry::read(body, slot)?;
            let new = entry_after(change, lsn, old).ok_or(Malformed { what: ENTRY })?;
            new.write(body, slot);
            self.died.extend(old.slot());
        }
        for bit in bits_of(geometry, change) {
            if let Some(body) = self.body(bit.id)
                && !bitmap::set(geometry, body, bit.which, bit.index, bit.value)
            {
                return Err(Malformed { what: BIT });
            }
        }
        if let Change::Backing { group, backed } = *change
            && let Some(body) = self.body(MetaId::Bitmap(group))
        {
            if bitmap::is_backed(body) == backed {
                return Err(Malformed { what: BACKED });
            }
            bitmap::set_backed(body, backed);
        }
        if let Some(body) = self.body(MetaId::Totals) {
            totals_after(change, Totals::read(body)).ok_or(Malformed { what: TOTALS })?.write(body);
        }
        Ok(())
    }

    /// The body of a page that does not contain the record yet.
    fn body(&mut self, id: MetaId) -> Option<&mut [u8]> {
        self.behind.binary_search(&id).ok()?;
        Some(&mut self.cache.get(id).expect("pages behind are cached").body)
    }
}
