//! Places, the page in each, and the images that wait to be written.

use super::order::Order;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::AlignedBuf;
use firndb_tier::{Base, Changes, Found};
use std::collections::{BTreeMap, VecDeque};

/// A page in its place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) page: PageId,
    pub(crate) version: Lsn,
    pub(crate) checksum: u32,
    /// What the store had on its device when this version entered. Not in TAC's directory on
    /// flash: unknown of an image that a restart found.
    pub(crate) base: Option<Base>,
    pub(crate) changes: Changes,
    /// Drawn when this version entered: shows whether a place still holds what it held.
    pub(crate) stamp: u64,
    /// The store's map has named this version since it entered; readers accept it from then on.
    pub(crate) proven: bool,
    /// It was on flash before this opening: if a crash damaged it, that is no fault to report.
    pub(crate) restored: bool,
    /// The image, until it is written.
    pub(crate) waiting: Option<Arc<AlignedBuf>>,
}

/// An image that waits to be written.
pub(crate) struct Waiting {
    pub(crate) at: usize,
    pub(crate) stamp: u64,
    pub(crate) image: Arc<AlignedBuf>,
}

pub(crate) struct State {
    pages: BTreeMap<PageId, usize>,
    places: Vec<Option<Place>>,
    free: Vec<usize>,
    pub(crate) order: Box<dyn Order>,
    stamp: u64,
    /// Places with an image to write, and its stamp; some may hold another image meanwhile.
    queue: VecDeque<(usize, u64)>,
    /// Whether the directory on flash has an entry for the place, correct or not.
    listed: Vec<bool>,
}

impl State {
    pub(crate) fn new(places: usize, order: Box<dyn Order>) -> State {
        State {
            pages: BTreeMap::new(),
            places: vec![None; places],
            free: (0..places).rev().collect(),
            order,
            stamp: 0,
            queue: VecDeque::new(),
            listed: vec![false; places],
        }
    }

    /// Takes the entries of the directory on flash. Of two places for a page, the one with the
    /// older version is not used.
    pub(crate) fn restore(&mut self, found: Vec<(usize, PageId, Lsn, u32)>) {
        for (at, page, version, checksum) in found {
            self.listed[at] = true;
            if let Some(other) = self.pages.get(&page).copied() {
                let known = self.places[other].as_ref().expect("a page's place is taken");
                if known.version >= version {
                    continue;
                }
                self.forget(page);
            }
            self.stamp += 1;
            let stamp = self.stamp;
            let place = Place {
                page,
                version,
                checksum,
                base: None,
                changes: Changes::ALL,
                stamp,
                proven: false,
                restored: true,
                waiting: None,
            };
            self.places[at] = Some(place);
            self.pages.insert(page, at);
            self.order.restored(page, at);
        }
        self.free = (0..self.places.len()).rev().filter(|at| self.places[*at].is_none()).collect();
    }

    pub(crate) fn slots(&self) -> usize {
        self.places.len()
    }
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageId> {
        self.pages.keys().copied()
    }
    pub(crate) fn pages_count(&self) -> usize {
        self.pages.len()
    }
    pub(crate) fn place(&self, at: usize) -> Option<&Place> {
        self.places[at].as_ref()
    }
    /// The place of a page.
    pub(crate) fn find(&self, page: PageId) -> Option<(usize, &Place)> {
        let at = *self.pages.get(&page)?;
        Some((at, self.places[at].as_ref().expect("a page's place is taken")))
    }
    /// The place, if it still holds what it held.
    pub(crate) fn still(&mut self, at: usize, stamp: u64) -> Option<&mut Place> {
        self.places[at].as_mut().filter(|place| place.stamp == stamp)
    }
    /// Images that wait; some may be obsolete.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// A place for a page that has none: a free one, or that of a page that is worth less. Returns
    /// it, and whether another page was evicted.
    pub(crate) fn admit(&mut self, page: PageId) -> Option<(usize, bool)> {
        assert!(!self.pages.contains_key(&page), "{page:?} has a place");
        if let Some(at) = self.free.pop() {
            return Some((at, false));
        }
        let victim = self.order.victim(page)?;
        let gone = self.places[victim].as_ref().expect("a victim's place is taken").page;
        self.forget(gone);
        self.free.pop().map(|at| (at, true))
    }

    /// Puts a version of a page, that the store has as `found` says, in a place that is empty or
    /// its own. Returns the stamp.
    pub(crate) fn put(
        &mut self,
        at: usize,
        page: PageId,
        found: Found,
        checksum: u32,
        image: Arc<AlignedBuf>,
    ) -> u64 {
        let Found { version, base, changes, .. } = found;
        self.stamp += 1;
        let stamp = self.stamp;
        let place = Place {
            page,
            version,
            checksum,
            base,
            changes,
            stamp,
            proven: false,
            restored: false,
            waiting: Some(image),
        };
        match self.places[at].replace(place) {
            None => {
                let other = self.pages.insert(page, at);
                assert!(other.is_none(), "{page:?} has one place");
                self.order.entered(page, at);
            }
            Some(before) => assert!(before.page == page, "a place is emptied before another page gets it"),
        }
        self.queue.push_back((at, stamp));
        stamp
    }

    /// Removes the page from its place.
    pub(crate) fn forget(&mut self, page: PageId) {
        if let Some(at) = self.pages.remove(&page) {
            self.places[at] = None;
            self.order.left(page, at);
            self.free.push(at);
        }
    }

    /// The next images to write, at most `most`.
    pub(crate) fn take_waiting(&mut self, most: usize) -> Vec<Waiting> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some((at, stamp)) = self.queue.pop_front() else { break };
            let image = self.still(at, stamp).and_then(|place| place.waiting.clone());
            taken.extend(image.map(|image| Waiting { at, stamp, image }));
        }
        taken
    }
    /// Notes that the image is on flash.
    pub(crate) fn written(&mut self, at: usize, stamp: u64) {
        if let Some(place) = self.still(at, stamp) {
            place.waiting = None;
        }
    }
    pub(crate) fn is_listed(&self, at: usize) -> bool {
        self.listed[at]
    }
    pub(crate) fn set_listed(&mut self, at: usize) {
        self.listed[at] = true;
    }
}
