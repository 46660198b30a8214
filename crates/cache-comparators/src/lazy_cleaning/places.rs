//! Places, the page in each, and the LRU-2 order.

use firndb_base::{Lsn, PageId};
use std::collections::{BTreeMap, BTreeSet};

/// One place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) page: PageId,
    pub(crate) version: Lsn,
    pub(crate) checksum: u32,
    pub(crate) dirty: bool,
    /// The first change that the store does not have; meaningless if clean.
    pub(crate) recovery_lsn: Lsn,
    /// The first change that an image under way to the store does not have.
    pub(crate) after_cleaning: Option<Lsn>,
    /// Times of the last use and the one before it.
    pub(crate) last: u64,
    pub(crate) before: u64,
    /// Number of readers.
    pub(crate) users: u32,
    /// Being written, or read for the store.
    pub(crate) moving: bool,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) pages: BTreeMap<PageId, usize>,
    pub(crate) places: Vec<Option<Place>>,
    pub(crate) free: Vec<usize>,
    /// Places by the time of their last use but one, then of their last: the first is the victim.
    pub(crate) order: BTreeSet<(u64, u64, usize)>,
    pub(crate) time: u64,
    pub(crate) dirty: usize,
    /// The place where the cleaner continues.
    pub(crate) cleaner_at: usize,
}

impl State {
    pub(crate) fn place(&mut self, at: usize) -> &mut Place {
        self.places[at].as_mut().expect("the place is in use")
    }
    /// Places that no thread uses, in the order of eviction.
    pub(crate) fn victims(&self) -> impl Iterator<Item = usize> {
        let idle = |at: &usize| {
            let place = self.places[*at].as_ref().expect("ordered places are in use");
            !place.moving && place.users == 0
        };
        self.order.iter().map(|(.., at)| *at).filter(idle)
    }
    pub(crate) fn is_dirty(&self, at: usize) -> bool {
        self.places[at].as_ref().is_some_and(|place| place.dirty)
    }
    /// Ends a use. If the page was freed meanwhile, the last user of its place frees the place.
    pub(crate) fn release(&mut self, at: usize) {
        let place = self.place(at);
        place.users -= 1;
        let (page, idle) = (place.page, place.users == 0 && !place.moving);
        if idle && self.pages.get(&page) != Some(&at) {
            self.forget(at);
        }
    }
    pub(crate) fn touch(&mut self, at: usize) {
        self.time += 1;
        let time = self.time;
        let place = self.places[at].as_mut().expect("the place is in use");
        self.order.remove(&(place.before, place.last, at));
        (place.before, place.last) = (place.last, time);
        self.order.insert((place.before, place.last, at));
    }
    /// Notes that the store has this version of the page in the place.
    pub(crate) fn cleaned(&mut self, at: usize, stored: Lsn) {
        let place = self.place(at);
        if !place.dirty {
            return;
        }
        if place.version == stored {
            place.dirty = false;
            self.dirty -= 1;
        } else if let Some(lsn) = place.after_cleaning {
            place.recovery_lsn = lsn;
        }
    }
    /// Removes the page from the cache.
    pub(crate) fn forget(&mut self, at: usize) {
        let place = self.places[at].take().expect("the place is in use");
        self.order.remove(&(place.before, place.last, at));
        self.dirty -= usize::from(place.dirty);
        if self.pages.get(&place.page) == Some(&at) {
            self.pages.remove(&place.page);
        }
        self.free.push(at);
    }
}
