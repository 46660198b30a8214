//! Reading pages.
//!
//! The reader checks the map before the read and again after it: if the entry changed meanwhile,
//! the old place may have been reused, and the bytes read are meaningless.

use super::entry::{Entry, image_checksum};
use super::lost;
use super::meta_page::MetaId;
use super::state::{State, Store, count};
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::{Found, PageRead, Whereabouts};
use firndb_base::{Lsn, PageId};
use firndb_device::{Io, IoOp};

/// Pages looked up under one hold of `state`, so that readers of other pages do not wait long.
const PAGES_A_HOLD: usize = 256;

impl Store {
    /// Whether the page's group exists now.
    fn page_in_range(&self, page: PageId) -> bool {
        page.0 != 0 && self.geometry.group_of_page(page) < self.state.lock().space.groups()
    }

    /// A page's entry; `Free` for numbers beyond all groups.
    pub(crate) fn entry_of(&self, page: PageId) -> Result<Entry, TierError> {
        if !self.page_in_range(page) {
            return Ok(Entry::Free);
        }
        let _pins = self.pin(&[self.geometry.map_of_page(page)])?;
        self.state.lock().entry(self, page)
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
        let mut left: Vec<usize> = Vec::with_capacity(reads.len());
        for (index, read) in reads.iter_mut().enumerate() {
            assert_eq!(read.buf.len(), self.geometry.page_size, "a page is read whole");
            if self.page_in_range(read.page) {
                left.push(index);
            } else {
                read.outcome = Err(self.not_allocated(read.page));
            }
        }
        while !left.is_empty() {
            let ids: Vec<MetaId> =
                left.iter().map(|index| self.geometry.map_of_page(reads[*index].page)).collect();
            match self.pin(&ids) {
                Ok(_pins) => left = self.read_round(reads, &left),
                Err(error) if left.len() == 1 => {
                    reads[left[0]].outcome = Err(error);
                    return;
                }
                // Reading each alone shows which of them failed.
                Err(_) => {
                    return left
                        .iter()
                        .for_each(|index| self.read_batch(std::slice::from_mut(&mut reads[*index])));
                }
            }
        }
    }

    /// Reads those of `left`; their map pages are pinned. It returns those that must be read again.
    fn read_round(&self, reads: &mut [PageRead<'_>], left: &[usize]) -> Vec<usize> {
        let entries: Vec<Result<Entry, TierError>> = {
            let mut state = self.state.lock();
            left.iter().map(|index| state.entry(self, reads[*index].page)).collect()
        };
        let mut batch = Vec::with_capacity(left.len());
        let mut wanted = left.iter().zip(&entries).peekable();
        for (index, read) in reads.iter_mut().enumerate() {
            let Some((_, entry)) = wanted.next_if(|(wanted, _)| **wanted == index) else { continue };
            if let Ok(Entry::Placed { place, .. }) = entry {
                let offset = self.geometry.place_offset(*place);
                batch.push(Io { offset, op: IoOp::Read(&mut *read.buf), outcome: Ok(()) });
            }
        }
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        let mut outcomes = outcomes.into_iter();
        for (index, entry) in left.iter().zip(&entries) {
            let read = &mut reads[*index];
            read.outcome = match entry {
                Err(error) => Err(error.clone()),
                Ok(Entry::Free) => Err(self.not_allocated(read.page)),
                Ok(Entry::Allocated { version }) => {
                    read.buf.fill(0);
                    Ok(Found { version: *version, dirty: false, cached: false })
                }
                Ok(entry @ Entry::Placed { version, .. }) => {
                    let outcome = outcomes.next().expect("one for each placed page");
                    outcome.map_err(TierError::of_read).and_then(|()| verify(self, read, *entry, *version))
                }
            };
        }
        let mut state = self.state.lock();
        let moved = |(index, entry): (&usize, &Result<Entry, TierError>)| {
            let entry = entry.as_ref().ok()?;
            (state.entry(self, reads[*index].page).as_ref() != Ok(entry)).then_some(*index)
        };
        left.iter().zip(&entries).filter_map(moved).collect()
    }
}

fn verify(store: &Store, read: &PageRead<'_>, entry: Entry, version: Lsn) -> Result<Found, TierError> {
    let Entry::Placed { place, checksum, .. } = entry else { unreachable!("only placed pages are verified") };
    if image_checksum(read.page, version, read.buf) == checksum {
        return Ok(Found { version, dirty: false, cached: false });
    }
    if let Some(sentence) = lost::sentence_of(read.page, version, checksum, read.buf) {
        return Err(TierError::new(TierErrorKind::Damaged, sentence));
    }
    Err(TierError::new(
        TierErrorKind::Damaged,
        format!(
            "{:?} at {place:?} of {} (offset {}) is damaged: it is not version {version}. Restore it from a backup",
            read.page,
            store.device.info().name,
            store.geometry.place_offset(place)
        ),
    ))
}

impl State {
    /// A page's entry, from a pinned map page.
    pub(crate) fn entry(&mut self, store: &Store, page: PageId) -> Result<Entry, TierError> {
        let id = store.geometry.map_of_page(page);
        let map = self.cache.get(id).expect("the caller pinned the map page");
        let entry = Entry::read(&map.body, store.geometry.slot_of_page(page))
            .map_err(|error| TierError::new(TierErrorKind::Damaged, format!("{id:?}, {page:?}: {error}")))?;
        match entry.place() {
            Some(place) if store.geometry.group_of_place(place) >= self.space.groups() => {
                Err(TierError::new(
                    TierErrorKind::Damaged,
                    format!("{id:?} says that {page:?} lies at {place:?}, beyond the end of the store"),
                ))
            }
            _ => Ok(entry),
        }
    }
}
