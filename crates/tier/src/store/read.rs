//! Reading pages.
//!
//! The reader checks the map before the read and again after it: if the entry changed meanwhile,
//! the old place may have been reused, and the bytes read are meaningless. Each look is one hold of
//! `state` if the map pages are in memory; nothing is pinned during the read then, and a map page
//! evicted meanwhile is loaded again for the second look. Map pages that a batch had to load stay
//! pinned until its second look.

use super::entry::{Entry, image_checksum};
use super::lost;
use super::meta_page::MetaId;
use super::pins::Pins;
use super::state::{State, Store, count};
use crate::error::{TierError, TierErrorKind};
use crate::granules::{Base, Changes};
use crate::merged_reads::{Piece, read_pieces};
use crate::page_tier::{Found, PageRead, Whereabouts};
use firndb_base::PageId;

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

    /// The entries of `pages`, and pins of the map pages that were not in memory.
    fn entries_of(&self, pages: &[PageId]) -> (Vec<Result<Entry, TierError>>, Option<Pins<'_>>) {
        let look = || {
            let mut state = self.state.lock();
            pages.iter().map(|page| state.entry_in_memory(self, *page)).collect::<Vec<_>>()
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
        let entry = |(page, found): (&PageId, Option<_>)| found.unwrap_or_else(|| self.entry_of(*page));
        (pages.iter().zip(found).map(entry).collect(), pins)
    }

    pub(crate) fn whereabouts(&self, pages: &[PageId], found: &mut Vec<Whereabouts>) {
        found.clear();
        for pages in pages.chunks(PAGES_A_HOLD) {
            let state = self.state.lock();
            found.extend(pages.iter().map(|page| {
                let map = state.cache.peek(self.geometry.map_of_page(*page));
                match map.map(|map| Entry::read(&map.body, self.geometry.slot_of_page(*page))) {
                    Some(Ok(Entry::Placed { place, .. })) => Whereabouts::Store { place: place.0 },
                    Some(Ok(Entry::Allocated { .. })) => Whereabouts::Unwritten,
                    Some(Ok(Entry::Free) | Err(_)) | None => Whereabouts::Unknown,
                }
            }));
        }
    }

    pub(crate) fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        count(&self.counters.pages_read, reads.len());
        for read in reads.iter() {
            assert_eq!(read.buf.len(), self.geometry.page_size, "a page is read whole");
        }
        if let [read] = reads {
            return self.read_one(read);
        }
        let mut left: Vec<usize> = (0..reads.len()).collect();
        while !left.is_empty() {
            left = self.read_round(reads, &left);
        }
    }

    /// Reads one page: without an allocation, and with two holds of `state`, unless its map page
    /// has to be loaded.
    fn read_one(&self, read: &mut PageRead<'_>) {
        let mut entry = self.entry_of(read.page);
        loop {
            let Ok(Entry::Placed { place, .. }) = entry else {
                read.outcome = self.unplaced(read, entry);
                return;
            };
            let outcome = self.device.read(self.geometry.place_offset(place), read.buf);
            count(&self.counters.read_requests, 1);
            read.outcome = outcome
                .map_err(TierError::of_read)
                .and_then(|()| self.verify(read.page, entry.as_ref().expect("it is placed"), read.buf));
            let now = self.entry_of(read.page);
            if now == entry {
                return;
            }
            entry = now;
        }
    }

    /// The outcome for a page that lies at no place.
    fn unplaced(&self, read: &mut PageRead<'_>, entry: Result<Entry, TierError>) -> Result<Found, TierError> {
        match entry? {
            Entry::Free => Err(self.not_allocated(read.page)),
            Entry::Allocated { version } => {
                read.buf.fill(0);
                Ok(Found::without_base(version))
            }
            Entry::Placed { .. } => unreachable!("the caller reads placed pages"),
        }
    }

    /// Reads those of `left`, adjacent places as one request. It returns those that moved
    /// meanwhile and must be read again.
    fn read_round(&self, reads: &mut [PageRead<'_>], left: &[usize]) -> Vec<usize> {
        let pages: Vec<PageId> = left.iter().map(|index| reads[*index].page).collect();
        let (entries, _pins) = self.entries_of(&pages);
        let mut outcomes: Vec<Result<Found, TierError>> = Vec::with_capacity(left.len());
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(left.len());
        let mut wanted = left.iter().enumerate().peekable();
        for (index, read) in reads.iter_mut().enumerate() {
            let Some((tag, _)) = wanted.next_if(|(_, wanted)| **wanted == index) else { continue };
            if let Ok(Entry::Placed { place, .. }) = entries[tag] {
                let (offset, len) = (self.geometry.place_offset(place), self.geometry.page_size);
                pieces.push(Piece { offset, len, into: Some(&mut *read.buf), tag });
                outcomes.push(Err(TierError::unset()));
            } else {
                outcomes.push(self.unplaced(read, entries[tag].clone()));
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let mut placed: Vec<usize> = pieces.iter().map(|piece| piece.tag).collect();
        let requests = read_pieces(&*self.device, &self.read_staging, &mut pieces, &mut |tag, bytes| {
            let entry = entries[tag].as_ref().expect("only placed pages are read");
            outcomes[tag] =
                bytes.map_err(TierError::of_read).and_then(|bytes| self.verify(pages[tag], entry, bytes));
        });
        count(&self.counters.read_requests, requests);
        for (index, outcome) in left.iter().zip(outcomes) {
            reads[*index].outcome = outcome;
        }
        placed.sort_unstable();
        let read: Vec<PageId> = placed.iter().map(|tag| pages[*tag]).collect();
        let (now, _pins) = self.entries_of(&read);
        let moved = placed.iter().zip(now).filter(|(tag, now)| *now != entries[**tag]);
        moved.map(|(tag, _)| left[*tag]).collect()
    }

    /// Checks that `image` is the version of `page` that its entry names.
    fn verify(&self, page: PageId, entry: &Entry, image: &[u8]) -> Result<Found, TierError> {
        let Entry::Placed { place, checksum, version } = *entry else {
            unreachable!("only placed pages are verified")
        };
        if image_checksum(page, version, image) == checksum {
            let base = Some(Base { version, checksum });
            return Ok(Found { version, dirty: false, cached: false, base, changes: Changes::NONE });
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

impl State {
    /// A page's entry if its map page is in memory, or no map page is needed: `Free` for numbers
    /// beyond all groups.
    fn entry_in_memory(&mut self, store: &Store, page: PageId) -> Option<Result<Entry, TierError>> {
        if page.0 == 0 || store.geometry.group_of_page(page) >= self.space.groups() {
            return Some(Ok(Entry::Free));
        }
        let id = store.geometry.map_of_page(page);
        let map = self.cache.get(id)?;
        let entry = Entry::read(&map.body, store.geometry.slot_of_page(page))
            .map_err(|error| TierError::new(TierErrorKind::Damaged, format!("{id:?}, {page:?}: {error}")));
        Some(entry.and_then(|entry| match entry.place() {
            Some(place) if store.geometry.group_of_place(place) >= self.space.groups() => {
                Err(TierError::new(
                    TierErrorKind::Damaged,
                    format!("{id:?} says that {page:?} lies at {place:?}, beyond the end of the store"),
                ))
            }
            _ => Ok(entry),
        }))
    }

    /// A page's entry, from a pinned map page; `Free` for numbers beyond all groups.
    pub(crate) fn entry(&mut self, store: &Store, page: PageId) -> Result<Entry, TierError> {
        self.entry_in_memory(store, page).expect("the caller pinned the map page")
    }
}
