//! Reading pages.
//!
//! The reader checks the map before the read and again after it: if the entry changed meanwhile,
//! the old place may have been reused, and the bytes read are meaningless. Each look is one hold of
//! `state` if the map pages are in memory; nothing is pinned during the read then, and a map page
//! evicted meanwhile is loaded again for the second look. Map pages that a batch had to load stay
//! pinned until its second look.
//!
//! The cleaner may move an image away and back, in the same version, and another page's image lie
//! there in between. So what looks damaged is read once more before it is reported.

use super::delta::page;
use super::delta::slot::Delta;
use super::entry::{Entry, SlotAt, image_checksum};
use super::geometry::Place;
use super::lost;
use super::meta_page::MetaId;
use super::pins::Pins;
use super::state::{State, Store, count};
use super::tree_loads::Operation;
use crate::error::{TierError, TierErrorKind};
use crate::granules::{Base, Changes};
use crate::merged_reads::{Piece, read_pieces};
use crate::page_tier::{DeltaRead, Found, PageRead, Whereabouts};
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;

/// Pages looked up under one hold of `state`, so that readers of other pages do not wait long.
const PAGES_A_HOLD: usize = 256;

impl Store {
    /// A page's entry; `Free` for numbers beyond all groups.
    pub(crate) fn entry_of(&self, page: PageId) -> Result<Entry, TierError> {
        let in_memory = self.state.lock().entry_in_memory(self, page);
        if let Some(entry) = in_memory {
            return entry;
        }
        let _pins = self.pin(&[self.geometry.map_of_page(page)])?;
        self.state.lock().entry(self, page)
    }

    /// Where a page is.
    pub(super) fn look(&self, page: PageId) -> Result<Looked, TierError> {
        let in_memory = self.state.lock().look_in_memory(self, page);
        if let Some(looked) = in_memory {
            return looked;
        }
        let _pins = self.pin(&[self.geometry.map_of_page(page)])?;
        self.state.lock().look_in_memory(self, page).expect("just pinned")
    }

    /// The newest version that the store holds.
    pub(crate) fn newest_version_of(&self, page: PageId) -> Result<Option<Lsn>, TierError> {
        self.look(page).map(|looked| looked.version())
    }

    /// The page's newest version, if it is more than its image on the device.
    pub(crate) fn delta_version(&self, page: PageId) -> Option<Lsn> {
        self.look(page).ok().filter(Looked::delta_is_elsewhere).and_then(|looked| looked.version())
    }

    /// Where `pages` are, and pins of the map pages that were not in memory.
    pub(super) fn look_all(&self, pages: &[PageId]) -> (Vec<Result<Looked, TierError>>, Option<Pins<'_>>) {
        let look = || {
            let mut state = self.state.lock();
            pages.iter().map(|page| state.look_in_memory(self, *page)).collect::<Vec<_>>()
        };
        let mut found = look();
        let absent = pages.iter().zip(&found).filter(|(_, found)| found.is_none());
        let absent: Vec<MetaId> = absent.map(|(page, _)| self.geometry.map_of_page(*page)).collect();
        let mut pins = None;
        if !absent.is_empty() {
            pins = self.pin(&absent).ok();
            found = look();
        }
        // What is absent still could not be loaded, or was evicted just now: reading each alone
        // shows which.
        let entry = |(page, found): (&PageId, Option<_>)| found.unwrap_or_else(|| self.look(*page));
        (pages.iter().zip(found).map(entry).collect(), pins)
    }

    pub(crate) fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        found.clear();
        for pages in pages.chunks(PAGES_A_HOLD) {
            let state = self.state.lock();
            found.extend(pages.iter().map(|page| {
                let map = state.cache.peek(self.geometry.map_of_page(*page));
                let in_map = || map.map(|map| Entry::read(&map.body, self.geometry.slot_of_page(*page)));
                match state.overlay.get(*page).map(Ok).or_else(in_map) {
                    Some(Ok(Entry::Placed { place, .. } | Entry::Delta { place, .. })) => {
                        Whereabouts::Store { place: place.0 }
                    }
                    Some(Ok(Entry::Allocated { .. })) => Whereabouts::Unwritten,
                    Some(Ok(Entry::Free) | Err(_)) | None => Whereabouts::Unknown,
                }
            }));
        }
    }

    pub(crate) fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        let under_way = self.begin(Operation::Read, reads.len());
        self.read_for_itself(reads);
        under_way.iter().for_each(|it| it.count_read(reads));
    }

    /// Reads pages that no layer above asked for, so that they do not count as the load of trees.
    pub(crate) fn read_for_itself(&self, reads: &mut [PageRead<'_>]) {
        count(&self.counters.pages_read, reads.len());
        for read in reads.iter() {
            assert_eq!(read.buf.len(), self.geometry.page_size, "a page is read whole");
        }
        match reads {
            [read] => self.read_one(read),
            _ => self.read_placed(reads),
        }
    }

    /// Reads pages until each was found where its entry said before and after.
    pub(super) fn read_placed(&self, reads: &mut [PageRead<'_>]) {
        let mut left: Vec<usize> = (0..reads.len()).collect();
        while !left.is_empty() {
            left = self.read_round(reads, &left);
        }
        let mut damaged: Vec<usize> = (0..reads.len()).filter(|at| is_damaged(&reads[*at])).collect();
        damaged.retain(|at| match self.look(reads[*at].page) {
            Ok(looked) => !self.read_mended(&mut reads[*at], &looked),
            Err(_) => true,
        });
        while !damaged.is_empty() {
            damaged = self.read_round(reads, &damaged);
        }
    }

    /// Reads one page: without an allocation, and with two holds of `state`, unless its map page
    /// has to be loaded, or it has a delta.
    pub(super) fn read_one(&self, read: &mut PageRead<'_>) {
        let mut looked = self.look(read.page);
        let mut doubted = false;
        loop {
            let place = match &looked {
                Ok(Looked { entry: Entry::Placed { place, .. }, waits: None }) => *place,
                Ok(Looked { entry: Entry::Placed { .. } | Entry::Delta { .. }, .. }) => {
                    return self.read_placed(std::slice::from_mut(read));
                }
                _ => {
                    read.outcome = self.unplaced(read, looked);
                    return;
                }
            };
            let outcome = self.device.read(self.geometry.place_offset(place), read.buf);
            count(&self.counters.read_requests, 1);
            read.outcome = outcome.map_err(TierError::of_read).and_then(|()| {
                let looked = looked.as_ref().expect("it is placed");
                self.verify(read.page, &looked.entry, read.buf)
            });
            let now = self.look(read.page);
            if same(&now, &looked) {
                if doubted || !is_damaged(read) {
                    return;
                }
                doubted = true;
                if now.as_ref().is_ok_and(|now| self.read_mended(read, now)) {
                    return;
                }
            }
            looked = now;
        }
    }

    /// Mends a page that was read damaged. Returns whether it has been read by that: so what is
    /// right is known even if it cannot be written anew.
    #[cold]
    fn read_mended(&self, read: &mut PageRead<'_>, looked: &Looked) -> bool {
        let mut bytes = AlignedBuf::zeroed(self.geometry.page_size);
        let is_right = self.mend(read.page, looked, &mut bytes);
        let is_image = matches!(looked, Looked { entry: Entry::Placed { .. }, waits: None });
        if !is_right || !is_image || !same(&self.look(read.page), &Ok(looked.clone())) {
            return false;
        }
        read.buf.copy_from_slice(&bytes);
        read.outcome = self.verify(read.page, &looked.entry, read.buf);
        true
    }

    /// Has the device mend what of a page it holds more than once, if it does; returns whether all
    /// is right then. The page's image is in `bytes` then.
    ///
    /// The device excludes writes of the place before it asks what is right. If the page has moved
    /// since `looked`, another may lie at the place: then nothing is right, and that one stays.
    #[cold]
    pub(super) fn mend(&self, page: PageId, looked: &Looked, bytes: &mut [u8]) -> bool {
        let Ok(_pin) = self.pin(&[self.geometry.map_of_page(page)]) else { return false };
        let is_there = || {
            let now = self.state.lock().look_in_memory(self, page);
            now.is_some_and(|now| same(&now, &Ok(looked.clone())))
        };
        let mut is_delta_whole = true;
        let image = match (&looked.waits, looked.entry) {
            (Some(delta), entry) => {
                entry.place().map(|place| (place, delta.base.version, delta.base.checksum))
            }
            (None, Entry::Placed { place, version, checksum }) => Some((place, version, checksum)),
            (None, entry) => {
                // The delta names its image's version.
                let Some(at) = entry.slot() else { return false };
                let mut found = None;
                let offset = self.geometry.place_offset(at.place);
                // What makes this slot right may be wrong in another's: then nothing is made of it.
                is_delta_whole = self.device.read_otherwise(offset, bytes, &mut |bytes| {
                    let here = self.find_delta(page, &entry, bytes).ok();
                    let is_whole = here.is_some() && page::is_whole(bytes, at.place) && is_there();
                    found = here.or_else(|| found.take());
                    is_whole
                });
                let base = found.map(|delta| delta.base);
                entry.place().zip(base).map(|(place, base)| (place, base.version, base.checksum))
            }
        };
        let Some((place, version, checksum)) = image else { return false };
        let offset = self.geometry.place_offset(place);
        let is_right = &mut |bytes: &[u8]| {
            let is_image = image_checksum(page, version, bytes) == checksum
                || lost::sentence_of(page, version, checksum, bytes).is_some();
            is_image && is_there()
        };
        self.device.read_otherwise(offset, bytes, is_right) && is_delta_whole
    }

    /// The outcome for a page that lies at no place.
    fn unplaced(
        &self,
        read: &mut PageRead<'_>,
        looked: Result<Looked, TierError>,
    ) -> Result<Found, TierError> {
        match looked?.entry {
            Entry::Free => Err(self.not_allocated(read.page)),
            Entry::Allocated { version } => {
                read.buf.fill(0);
                Ok(Found::without_base(version))
            }
            Entry::Placed { .. } | Entry::Delta { .. } => unreachable!("the caller reads placed pages"),
        }
    }

    /// Reads those of `left`, images and delta pages side by side, adjacent places as one request.
    /// It returns those that moved meanwhile and must be read again.
    fn read_round(&self, reads: &mut [PageRead<'_>], left: &[usize]) -> Vec<usize> {
        let pages: Vec<PageId> = left.iter().map(|index| reads[*index].page).collect();
        let (looked, _pins) = self.look_all(&pages);
        let mut outcomes: Vec<Result<Found, TierError>> = Vec::with_capacity(left.len());
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(left.len());
        let mut wanted = left.iter().enumerate().peekable();
        for (index, read) in reads.iter_mut().enumerate() {
            let Some((tag, _)) = wanted.next_if(|(_, wanted)| **wanted == index) else { continue };
            let Some(place) = looked[tag].as_ref().ok().and_then(|looked| looked.entry.place()) else {
                outcomes.push(self.unplaced(read, looked[tag].clone()));
                continue;
            };
            let (offset, len) = (self.geometry.place_offset(place), self.geometry.page_size);
            pieces.push(Piece { offset, len, into: Some(&mut *read.buf), tag });
            outcomes.push(Err(TierError::unset()));
            if let Some(at) = looked[tag].as_ref().ok().and_then(Looked::slot) {
                let offset = self.geometry.place_offset(at.place);
                // Delta pages have the tags after those of the images.
                pieces.push(Piece { offset, len, into: None, tag: left.len() + tag });
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let mut placed: Vec<usize> =
            pieces.iter().map(|piece| piece.tag).filter(|tag| *tag < left.len()).collect();
        count(&self.counters.delta_pages_read, pieces.len() - placed.len());
        let mut deltas: Vec<Option<Result<Delta, TierError>>> = Vec::new();
        if looked.iter().flatten().any(|looked| looked.delta_is_elsewhere()) {
            deltas.resize_with(left.len(), || None);
        }
        let requests = read_pieces(&*self.device, &self.read_staging, &mut pieces, &mut |tag, bytes| {
            let bytes = bytes.map_err(TierError::of_read);
            let Some(tag) = tag.checked_sub(left.len()) else {
                let looked = looked[tag].as_ref().expect("only placed pages are read");
                outcomes[tag] = match looked.delta_is_elsewhere() {
                    // Verified below, with the version that the delta names.
                    true => bytes.map(|_| Found::without_base(Lsn::ZERO)),
                    false => bytes.and_then(|bytes| self.verify(pages[tag], &looked.entry, bytes)),
                };
                return;
            };
            let entry = &looked[tag].as_ref().expect("only placed pages are read").entry;
            deltas[tag] = Some(bytes.and_then(|bytes| self.find_delta(pages[tag], entry, bytes)));
        });
        count(&self.counters.read_requests, requests);
        placed.sort_unstable();
        for tag in placed.iter().copied() {
            let looked = looked[tag].as_ref().expect("only placed pages are read");
            if outcomes[tag].is_ok() && looked.delta_is_elsewhere() {
                let (delta, delta_read) = match (&looked.waits, deltas[tag].take()) {
                    (Some(waits), _) => (Ok(waits.clone()), DeltaRead::No),
                    (None, Some(read)) => (read, self.delta_read()),
                    (None, None) => unreachable!("its delta page was read with it"),
                };
                let buf = &mut *reads[left[tag]].buf;
                let found = delta.and_then(|delta| self.merge(pages[tag], &looked.entry, &delta, buf));
                outcomes[tag] = found.map(|found| Found { delta_read, ..found });
            }
        }
        for (index, outcome) in left.iter().zip(outcomes) {
            reads[*index].outcome = outcome;
        }
        let read: Vec<PageId> = placed.iter().map(|tag| pages[*tag]).collect();
        let (now, _pins) = self.look_all(&read);
        let moved = placed.iter().zip(now).filter(|(tag, now)| !same(now, &looked[**tag]));
        moved.map(|(tag, _)| left[*tag]).collect()
    }

    /// The delta of `page` in its delta page, of which `bytes` were read.
    fn find_delta(&self, page: PageId, entry: &Entry, bytes: &[u8]) -> Result<Delta, TierError> {
        let Entry::Delta { version, checksum, at: SlotAt { place, slot }, .. } = *entry else {
            unreachable!("only deltas are looked for")
        };
        let found = page::slot(bytes, slot)
            .and_then(|bytes| Delta::decode(bytes, place, self.geometry.page_size))
            .ok()
            .filter(|(of, delta)| *of == page && delta.version == version && delta.base.checksum == checksum);
        found.map(|(_, delta)| delta).ok_or_else(|| {
            TierError::new(
                TierErrorKind::Damaged,
                format!(
                    "the delta of {page:?} in slot {slot} of {place:?} of {} (offset {}) is damaged: it is not version {version}. Restore it from a backup",
                    self.device.info().name,
                    self.geometry.place_offset(place)
                ),
            )
        })
    }

    /// Makes the image that was read, the delta's base, the page.
    pub(super) fn merge(
        &self,
        page: PageId,
        entry: &Entry,
        delta: &Delta,
        image: &mut [u8],
    ) -> Result<Found, TierError> {
        let place = entry.place().expect("only placed pages are read");
        let (version, checksum) = (delta.base.version, delta.base.checksum);
        self.verify(page, &Entry::Placed { version, place, checksum }, image)?;
        delta.apply(image);
        let base = Some(delta.base);
        Ok(Found { base, changes: delta.changes, ..Found::without_base(delta.version) })
    }

    /// Checks that `image` is the version of `page` that its entry names.
    pub(super) fn verify(&self, page: PageId, entry: &Entry, image: &[u8]) -> Result<Found, TierError> {
        let Entry::Placed { place, checksum, version } = *entry else {
            unreachable!("only placed pages are verified")
        };
        if image_checksum(page, version, image) == checksum {
            let base = Some(Base { version, checksum });
            return Ok(Found { base, changes: Changes::NONE, ..Found::without_base(version) });
        }
        if let Some(sentence) = lost::sentence_of(page, version, checksum, image) {
            return Err(TierError::new(TierErrorKind::Damaged, sentence));
        }
        Err(TierError::new(
            TierErrorKind::Damaged,
            format!(
                "{page:?} at {place:?} of {} (offset {}) is damaged: it is not version {version}. Restore it from a backup",
                self.device.info().name,
                self.geometry.place_offset(place)
            ),
        ))
    }
}

/// Where a page is, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    pub(super) entry: Entry,
    /// What waits in the write buffer; newer than the entry.
    pub(super) waits: Option<Delta>,
}

impl Looked {
    fn version(&self) -> Option<Lsn> {
        self.waits.as_ref().map(|delta| delta.version).or(self.entry.version())
    }
    /// The slot to read.
    pub(super) fn slot(&self) -> Option<SlotAt> {
        if self.waits.is_some() { None } else { self.entry.slot() }
    }
    /// Whether the image is not the whole page.
    pub(super) fn delta_is_elsewhere(&self) -> bool {
        self.waits.is_some() || self.entry.slot().is_some()
    }
}

/// Whether the page has to be read once more before it is reported.
pub(super) fn is_damaged(read: &PageRead<'_>) -> bool {
    read.outcome.as_ref().is_err_and(|error| error.kind == TierErrorKind::Damaged)
}

/// Whether a page was in the same version at the same places both times.
pub(super) fn same(now: &Result<Looked, TierError>, before: &Result<Looked, TierError>) -> bool {
    match (now, before) {
        (Ok(now), Ok(before)) => now.entry == before.entry && now.version() == before.version(),
        (Err(now), Err(before)) => now == before,
        _ => false,
    }
}

impl State {
    /// Where a page is, if its entry is known without reading.
    fn look_in_memory(&mut self, store: &Store, page: PageId) -> Option<Result<Looked, TierError>> {
        let entry = self.entry_in_memory(store, page)?;
        let waits = self.deltas.buffer.get(page).map(|held| held.delta.clone());
        Some(entry.map(|entry| Looked { entry, waits }))
    }

    /// A page's entry if it is known without reading: `Free` for numbers beyond all groups.
    pub(crate) fn entry_in_memory(
        &mut self,
        store: &Store,
        page: PageId,
    ) -> Option<Result<Entry, TierError>> {
        if page.0 == 0 || store.geometry.group_of_page(page) >= self.space.groups() {
            return Some(Ok(Entry::Free));
        }
        let id = store.geometry.map_of_page(page);
        let entry = self
            .known_entry(&store.geometry, page)?
            .map_err(|error| TierError::new(TierErrorKind::Damaged, format!("{id:?}, {page:?}: {error}")));
        let groups = self.space.groups();
        let beyond = |place: &Place| store.geometry.group_of_place(*place) >= groups;
        Some(entry.and_then(|entry| {
            match entry.place().into_iter().chain(entry.slot().map(|at| at.place)).find(beyond) {
                Some(place) => Err(TierError::new(
                    TierErrorKind::Damaged,
                    format!("{id:?} says that {page:?} lies at {place:?}, beyond the end of the store"),
                )),
                _ => Ok(entry),
            }
        }))
    }

    /// A page's entry, which is known; `Free` for numbers beyond all groups.
    pub(crate) fn entry(&mut self, store: &Store, page: PageId) -> Result<Entry, TierError> {
        self.entry_in_memory(store, page).expect("the caller knows it, or pinned the map page")
    }
}
