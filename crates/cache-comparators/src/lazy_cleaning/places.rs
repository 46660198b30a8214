//! Places, the page in each, and the LRU-2 orders: one of the clean pages, from which victims are
//! taken, and one of the dirty pages, which the cleaner follows.

use firndb_base::{Lsn, PageId};
use firndb_tier::{Base, Changes, Written};
use std::collections::{BTreeMap, BTreeSet};

/// Most pages, neighbours in page number, that the cleaner takes for the sake of one cold page.
const NEIGHBOURS_MAX: usize = 32;

/// A place by the time of its page's last use but one, then of its last: the least is the coldest.
type Order = BTreeSet<(u64, u64, usize)>;

/// One place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) page: PageId,
    pub(crate) version: Lsn,
    pub(crate) checksum: u32,
    /// As it came with the image, or as the store returned it when it took the image.
    pub(crate) base: Option<Base>,
    pub(crate) changes: Changes,
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
    /// Being written.
    pub(crate) moving: bool,
    /// A thread is writing it to the store.
    pub(crate) cleaning: bool,
}

impl Place {
    fn order(&self, at: usize) -> (u64, u64, usize) {
        (self.before, self.last, at)
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) pages: BTreeMap<PageId, usize>,
    pub(crate) places: Vec<Option<Place>>,
    pub(crate) free: Vec<usize>,
    clean: Order,
    dirty: Order,
    pub(crate) time: u64,
}

impl State {
    /// Of a cache of `count` places.
    pub(crate) fn empty(count: usize) -> State {
        State { places: vec![None; count], free: (0..count).rev().collect(), ..State::default() }
    }
    pub(crate) fn place(&mut self, at: usize) -> &mut Place {
        self.places[at].as_mut().expect("the place is in use")
    }
    fn known(&self, at: usize) -> &Place {
        self.places[at].as_ref().expect("ordered places are in use")
    }
    /// Number of dirty pages.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }
    /// The places of all dirty pages, in the order of pages.
    pub(crate) fn dirty_by_page(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.dirty.iter().map(|(.., at)| *at).collect();
        places.sort_unstable_by_key(|at| self.known(*at).page);
        places
    }
    /// The coldest clean page that no thread uses.
    pub(crate) fn victim(&self) -> Option<usize> {
        let idle = |at: &usize| !self.known(*at).moving && self.known(*at).users == 0;
        self.clean.iter().map(|(.., at)| *at).find(idle)
    }

    /// Which dirty pages to clean next, `most` or a few more: the coldest, each with the dirty
    /// pages next to it in page number, which lie next to it in the store of an engine that writes
    /// in place (group cleaning). By page number, so that neighbours are in one run of the store.
    pub(crate) fn coldest_dirty(&self, most: usize) -> Vec<usize> {
        let mut chosen: BTreeMap<PageId, usize> = BTreeMap::new();
        for (.., at) in &self.dirty {
            if chosen.len() >= most {
                break;
            }
            let page = self.known(*at).page;
            if !self.is_cleanable(*at) || chosen.contains_key(&page) {
                continue;
            }
            chosen.insert(page, *at);
            let (mut taken, numbers) = (1, page.0);
            let mut extend = |number: u64| {
                let found = self.pages.get(&PageId(number)).filter(|at| self.is_cleanable(**at));
                let fresh =
                    found.filter(|at| taken < NEIGHBOURS_MAX && !chosen.contains_key(&self.known(**at).page));
                fresh.map(|at| {
                    taken += 1;
                    chosen.insert(PageId(number), *at);
                })
            };
            (numbers + 1..).map_while(&mut extend).count();
            (0..numbers).rev().map_while(&mut extend).count();
        }
        chosen.into_values().collect()
    }
    fn is_cleanable(&self, at: usize) -> bool {
        let place = self.known(at);
        place.dirty && !place.moving && !place.cleaning
    }

    /// Puts a page into a free place, as clean and being written; returns the place.
    pub(crate) fn occupy(&mut self, page: PageId, version: Lsn) -> Option<usize> {
        let at = self.free.pop()?;
        self.time += 1;
        let place = Place {
            page,
            version,
            checksum: 0,
            base: None,
            changes: Changes::ALL,
            dirty: false,
            recovery_lsn: Lsn::MAX,
            after_cleaning: None,
            last: self.time,
            before: 0,
            users: 0,
            moving: true,
            cleaning: false,
        };
        self.places[at] = Some(place);
        self.clean.insert(place.order(at));
        self.pages.insert(page, at);
        Some(at)
    }
    /// Notes whether the store lacks the page's newest version.
    pub(crate) fn set_dirty(&mut self, at: usize, dirty: bool) {
        let place = self.place(at);
        place.dirty = dirty;
        let order = place.order(at);
        self.clean.remove(&order);
        self.dirty.remove(&order);
        if dirty { &mut self.dirty } else { &mut self.clean }.insert(order);
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
        let place = self.place(at);
        let (was, dirty) = (place.order(at), place.dirty);
        (place.before, place.last) = (place.last, time);
        let order = place.order(at);
        let orders = if dirty { &mut self.dirty } else { &mut self.clean };
        orders.remove(&was);
        orders.insert(order);
    }
    /// Notes that the store has this version of the page in the place, and what it returned.
    pub(crate) fn cleaned(&mut self, at: usize, stored: Lsn, written: Option<Written>) {
        let place = self.place(at);
        if !place.dirty {
            return;
        }
        if place.version == stored {
            if let Some(Written::Taken { base, changes }) = written {
                (place.base, place.changes) = (base, changes);
            }
            self.set_dirty(at, false);
        } else if let Some(lsn) = place.after_cleaning {
            place.recovery_lsn = lsn;
        }
    }
    /// Removes the page from the cache.
    pub(crate) fn forget(&mut self, at: usize) {
        let place = self.places[at].take().expect("the place is in use");
        let orders = if place.dirty { &mut self.dirty } else { &mut self.clean };
        orders.remove(&place.order(at));
        if self.pages.get(&place.page) == Some(&at) {
            self.pages.remove(&place.page);
        }
        self.free.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Idle dirty pages of these numbers, the coldest first.
    fn dirty(numbers: &[u64]) -> State {
        let mut state = State::empty(200);
        for number in numbers {
            let at = state.occupy(PageId(*number), Lsn(1)).expect("a free place");
            state.place(at).moving = false;
            state.set_dirty(at, true);
        }
        state
    }
    fn pages(state: &State, places: &[usize]) -> Vec<u64> {
        places.iter().map(|at| state.known(*at).page.0).collect()
    }
    fn at(state: &State, number: u64) -> usize {
        state.pages[&PageId(number)]
    }

    #[test]
    fn the_coldest_dirty_pages_come_with_the_dirty_pages_next_to_them() {
        let mut state = dirty(&[50, 20, 90, 21, 19, 22, 51, 10]);
        let chosen = |state: &State, most| pages(state, &state.coldest_dirty(most));
        assert_eq!(chosen(&state, 1), [50, 51]);
        assert_eq!(chosen(&state, 3), [19, 20, 21, 22, 50, 51], "in the order of pages, whole groups");
        assert_eq!(chosen(&state, 7), [19, 20, 21, 22, 50, 51, 90]);
        assert_eq!(chosen(&state, 100).len(), 8);
        // What was used twice is hot, however long ago its neighbours were used.
        let hot = at(&state, 50);
        state.touch(hot);
        assert_eq!(chosen(&state, 1), [19, 20, 21, 22]);
        // A clean page, and one that a thread is writing, end a group.
        let clean = at(&state, 21);
        state.cleaned(clean, Lsn(1), None);
        let moving = at(&state, 19);
        state.place(moving).moving = true;
        assert_eq!(chosen(&state, 1), [20]);
        let cleaning = at(&state, 20);
        state.place(cleaning).cleaning = true;
        assert_eq!(chosen(&state, 1), [90]);
    }

    #[test]
    fn a_group_of_neighbours_has_a_bound() {
        let numbers: Vec<u64> = (100..180).collect();
        assert_eq!(dirty(&numbers).coldest_dirty(1).len(), NEIGHBOURS_MAX);
    }

    #[test]
    fn the_victim_is_the_coldest_clean_page_that_is_idle() {
        let mut state = dirty(&[1, 2, 3, 4]);
        assert_eq!(state.victim(), None, "all are dirty");
        for number in [2, 3, 4] {
            let place = at(&state, number);
            state.cleaned(place, Lsn(1), None);
        }
        assert_eq!(state.victim(), Some(at(&state, 2)), "not the colder dirty one");
        let used = at(&state, 2);
        state.place(used).users += 1;
        assert_eq!(state.victim(), Some(at(&state, 3)));
        let again = at(&state, 3);
        state.touch(again);
        assert_eq!(state.victim(), Some(at(&state, 4)));
        state.forget(at(&state, 4));
        assert_eq!(state.victim(), Some(at(&state, 3)));
        assert_eq!((state.dirty_count(), state.pages.len()), (1, 3));
    }
}
