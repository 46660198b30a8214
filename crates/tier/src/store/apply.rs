//! Applying a map record: entries go into the overlay, bits and totals into their pages, which are
//! in memory.
//!
//! While the store works, a record is checked against what is there before it is logged
//! ([`check`]). Redo ([`redo`]) repeats records that were checked once. It takes each fact (an
//! entry, a bit) as the last record says it, for it sees every record since the oldest that a page
//! may lack; so it reads no page, and may be repeated.

use super::bitmap::{self, Which};
use super::deferred::{Deferred, Fact};
use super::entry::{Entry, SlotAt};
use super::geometry::{Geometry, Place};
use super::meta_cache::{MetaCache, MetaPage};
use super::meta_page::MetaId;
use super::overlay::Overlay;
use super::records::{Change, Old};
use super::totals::Totals;
use crate::error::{TierError, TierErrorKind};
use firndb_base::codec::Malformed;
use firndb_base::{Lsn, PageId};

/// The metadata pages that `changes` change in memory, each once, in order: all that they concern
/// but map pages.
pub(crate) fn concerned(geometry: &Geometry, changes: &[Change]) -> Vec<MetaId> {
    let mut ids = vec![MetaId::Totals];
    for change in changes {
        ids.extend(bits_of(geometry, change).map(|bit| bit.id));
        if let Change::Backing { group, .. } = *change {
            ids.push(MetaId::Bitmap(group));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A page's entry if it is known without reading: from the overlay, or else from its map page.
pub(crate) fn known_entry(
    geometry: &Geometry,
    cache: &mut MetaCache,
    overlay: &Overlay,
    page: PageId,
) -> Option<Result<Entry, Malformed>> {
    if let Some(entry) = overlay.get(page) {
        return Some(Ok(entry));
    }
    let map = cache.get(geometry.map_of_page(page))?;
    Some(Entry::read(&map.body, geometry.slot_of_page(page)))
}

/// Applies the changes of the record at `lsn`, which were checked. `concerned`'s pages are in
/// `cache`, but for bitmap pages that cannot be read: their bits are kept apart. A page that
/// another thread could read since it was checked takes what the record says, as by redo. An error
/// means that a group or the totals are not in the state that the record presupposes: the pages are
/// then undefined. Returns the slots that entries of pages no longer name.
pub(crate) fn apply(
    geometry: &Geometry,
    (cache, overlay, deferred): (&mut MetaCache, &mut Overlay, &mut Deferred),
    lsn: Lsn,
    changes: &[Change],
) -> Result<Vec<(PageId, SlotAt)>, Malformed> {
    let mut totals = Totals::read(&cached(cache, MetaId::Totals).body);
    let mut died = Vec::new();
    for change in changes {
        if let Some((page, entry)) = entry_after(change, lsn) {
            if let Some(Ok(old)) = known_entry(geometry, cache, overlay, page)
                && fits(change, old)
            {
                died.extend(old.slot().map(|at| (page, at)));
            }
            overlay.set(page, entry);
        }
        for bit in bits_of(geometry, change) {
            match (bit.id, cache.get(bit.id)) {
                (MetaId::Bitmap(group), None) => deferred.note(group, lsn, bit.fact()),
                (_, page) => {
                    let body = &mut page.expect("the totals page has no bits").body;
                    let _ = bitmap::set(geometry, body, bit.which, bit.index, bit.value);
                }
            }
        }
        if let Change::Backing { group, backed } = *change {
            let body = &mut cached(cache, MetaId::Bitmap(group)).body;
            if bitmap::is_backed(body) == backed {
                return Err(Malformed { what: BACKED });
            }
            bitmap::set_backed(body, backed);
        }
        totals = totals_after(change, totals).ok_or(Malformed { what: TOTALS })?;
    }
    totals.write(&mut cached(cache, MetaId::Totals).body);
    let concerned = concerned(geometry, changes);
    for id in concerned {
        if cache.contains(id) {
            cache.changed(id, lsn);
        }
    }
    Ok(died)
}

/// Repeats the record at `lsn`. Changes to map and bitmap pages that are not `wanted` are left out:
/// the caller knows whether that is right. With `count`, the totals are counted on, unless they
/// contain the record.
pub(crate) fn redo(
    geometry: &Geometry,
    (cache, overlay, deferred): (&mut MetaCache, &mut Overlay, &mut Deferred),
    wanted: &dyn Fn(MetaId) -> bool,
    (lsn, changes): (Lsn, &[Change]),
    count: bool,
) -> Result<(), Malformed> {
    let mut fact = |cache: &mut MetaCache, id: MetaId, fact: Fact| match (id, cache.get(id)) {
        (_, Some(page)) => {
            match fact {
                Fact::Bit { which, index, value } => {
                    let _ = bitmap::set(geometry, &mut page.body, which, index, value);
                }
                Fact::Backed(backed) => bitmap::set_backed(&mut page.body, backed),
            }
            if page.lsn < lsn {
                cache.changed(id, lsn);
            }
        }
        (MetaId::Bitmap(group), None) => deferred.note(group, lsn, fact),
        _ => unreachable!("facts are of bitmap pages"),
    };
    for change in changes {
        if let Some((page, entry)) = entry_after(change, lsn)
            && wanted(geometry.map_of_page(page))
        {
            // What redo has seen of the page must fit; what it has not seen was checked once.
            if overlay.get(page).is_some_and(|old| !fits(change, old)) {
                return Err(Malformed { what: ENTRY });
            }
            overlay.set(page, entry);
        }
        for bit in bits_of(geometry, change).filter(|bit| wanted(bit.id)) {
            fact(cache, bit.id, bit.fact());
        }
        if let Change::Backing { group, backed } = *change
            && wanted(MetaId::Bitmap(group))
        {
            fact(cache, MetaId::Bitmap(group), Fact::Backed(backed));
        }
    }
    let page = cached(cache, MetaId::Totals);
    if page.lsn < lsn {
        if count {
            let totals = changes.iter().try_fold(Totals::read(&page.body), |totals, change| {
                totals_after(change, totals).ok_or(Malformed { what: TOTALS })
            })?;
            totals.write(&mut page.body);
        }
        cache.changed(MetaId::Totals, lsn);
    }
    Ok(())
}

/// Checks that what is present allows `changes`, so that a record of these can be applied and
/// redone. It does not if damage has made entries, bitmaps and totals contradict each other.
/// `concerned`'s pages are in `cache`, but for bitmap pages that cannot be read, and the entries of
/// pages that move or become free are known, but for a move with `Old::Unknown`.
///
/// Errors: the index of a change that does not fit, and what of it.
pub(crate) fn check(
    geometry: &Geometry,
    (cache, overlay): (&mut MetaCache, &Overlay),
    changes: &[Change],
) -> Result<(), (usize, Malformed)> {
    let mut totals = Totals::read(&cached(cache, MetaId::Totals).body);
    let mut bits = Vec::with_capacity(2 * changes.len());
    for (index, change) in changes.iter().enumerate() {
        let misfit = |what: &'static str| (index, Malformed { what });
        if let Some(page) = change.page()
            && let Some(old) = known_entry(geometry, cache, overlay, page)
        {
            // (The page that becomes allocated is free by its bit, if its entry is not known.)
            if !fits(change, old.map_err(|error| (index, error))?) {
                return Err(misfit(ENTRY));
            }
        }
        for bit in bits_of(geometry, change) {
            let is = |page: &MetaPage| bitmap::get(geometry, &page.body, bit.which, bit.index);
            if cache.peek(bit.id).is_some_and(|page| is(page) == bit.value) {
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

/// The entry that the record at `lsn` gives a page: it follows from the record alone.
fn entry_after(change: &Change, lsn: Lsn) -> Option<(PageId, Entry)> {
    match *change {
        Change::Allocate { page } => Some((page, Entry::Allocated { version: lsn })),
        Change::Adopt { page, version } => Some((page, Entry::Allocated { version })),
        Change::Free { page, .. } => Some((page, Entry::Free)),
        Change::Move { page, version, place, checksum, .. } => {
            Some((page, Entry::Placed { version, place, checksum }))
        }
        Change::Delta { page, version, place, checksum, at, rent } => {
            Some((page, Entry::Delta { version, place, checksum, at, rent }))
        }
        Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => None,
    }
}

/// Whether a page's entry is in the state that the change expects.
fn fits(change: &Change, old: Entry) -> bool {
    match *change {
        Change::Allocate { .. } | Change::Adopt { .. } => old == Entry::Free,
        Change::Free { place, .. } => old != Entry::Free && old.place() == place,
        Change::Move { version, old: from, .. } => {
            let is_there = from == Old::Unknown || old.place() == from.place();
            is_there && old.version().is_some_and(|before| before <= version)
        }
        Change::Delta { version, place, checksum, .. } => match old {
            Entry::Placed { version: before, place: at, checksum: of }
            | Entry::Delta { version: before, place: at, checksum: of, .. } => {
                before <= version && (at, of) == (place, checksum)
            }
            _ => false,
        },
        Change::DeltaPage { .. } | Change::DeltaFreed { .. } | Change::Backing { .. } => true,
    }
}

/// A bit of a bitmap page, and what a record makes of it.
struct Bit {
    id: MetaId,
    which: Which,
    index: u64,
    value: bool,
}

impl Bit {
    fn fact(&self) -> Fact {
        Fact::Bit { which: self.which, index: self.index, value: self.value }
    }
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
            [Some(place_bit(place, true)), old.place().map(|place| place_bit(place, false))]
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
            totals.places = totals.places.checked_add(u64::from(old.place().is_none()))?;
            totals.unnamed = totals.unnamed.checked_add(u64::from(old == Old::Unknown))?;
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
