//! Making empty segments: what is live in others is read and written elsewhere.
//!
//! A page that is moved is written as it is now, with what its delta says: its image has to be
//! written anyway. The slots of delta pages are gathered as their own cleaner does.

use super::space::Finds;
use super::{Content, Firn, Medium, entry, region};
use std::collections::BTreeSet;

/// Images that the cleaner writes together.
const TOGETHER: usize = 64;

/// A walk through the page map.
#[derive(Debug)]
pub(super) struct Circle {
    victims: BTreeSet<u64>,
    /// The next page.
    at: u64,
    /// Places taken when it began; since then, for what it moved.
    began: u64,
    moved: u64,
    /// Places that others may take until it ends.
    others: u64,
}

impl Firn {
    /// Empties segments until this many places can be taken.
    pub(super) fn make_space(&mut self, count: u64, medium: &mut Medium<'_>) {
        let Some(segments) = self.space.segments() else { return };
        match segments.options.finds {
            Finds::ByPlace => {
                while !self.segments().has(count) {
                    let victim = self.segments().victim().expect("places are a quarter more than pages");
                    self.empty(victim, medium);
                }
            }
            Finds::ByPage { share } => {
                self.walk(share, count, medium);
                while !self.segments().has(count) {
                    self.walk(share, u64::MAX, medium);
                }
            }
        }
    }

    fn segments(&mut self) -> &mut super::segments::Segments {
        self.space.segments().expect("only then there is something to clean")
    }

    fn empty(&mut self, victim: u64, medium: &mut Medium<'_>) {
        let places: Vec<u64> = self.segments().live_in(victim).collect();
        let (deltas, images): (Vec<u64>, Vec<u64>) =
            places.into_iter().partition(|place| self.deltas.pages_at(*place).is_some());
        let images: Vec<u64> = images.into_iter().map(|place| self.page_at[place as usize] - 1).collect();
        self.move_images(&images, medium);
        self.move_deltas(deltas, medium);
    }

    /// Writes the slots of delta pages to others.
    fn move_deltas(&mut self, places: impl IntoIterator<Item = u64>, medium: &mut Medium<'_>) {
        let mut gathered = Vec::new();
        for place in places {
            // Their pages may just have been written whole.
            if let Some(pages) = self.deltas.pages_at(place) {
                self.gather(place, pages, &mut gathered, medium);
            }
        }
        self.write_deltas(gathered, medium);
    }

    /// Takes the slots of a delta page off it, to be written to another.
    pub(super) fn gather(
        &mut self,
        place: u64,
        pages: Vec<u64>,
        gathered: &mut Vec<u64>,
        medium: &mut Medium<'_>,
    ) {
        medium.read_page(Content::Delta, region::IMAGES, place);
        for page in pages {
            let found = *entry(&mut self.pages, page);
            if found.buffered > 0 {
                self.unbuffer(page);
            } else {
                medium.moved(self.slot_bytes(found.changed));
            }
            self.void(page);
            gathered.push(page);
        }
    }

    fn move_images(&mut self, images: &[u64], medium: &mut Medium<'_>) {
        for pages in images.chunks(TOGETHER) {
            for &page in pages {
                let found = *entry(&mut self.pages, page);
                medium.read_page(Content::Image, region::IMAGES, found.base - 1);
                if let Some(place) = self.deltas.of(page).filter(|_| found.buffered == 0) {
                    medium.read_page(Content::Delta, region::IMAGES, place);
                }
                medium.moved(self.page_size);
                self.release_old(page);
            }
            let stream = self.segments().moved();
            self.place_images(pages, stream, medium);
        }
    }

    /// Whether this share of all places is empty.
    fn is_enough(&mut self, share: f64) -> bool {
        let segments = self.segments();
        let wanted = (segments.places() as f64 * share) as u64;
        segments.spare() > 0 && segments.has(wanted)
    }

    /// Goes on through the page map, at least as far as the places taken since it began allow; as
    /// far as is needed to take `count` of them.
    fn walk(&mut self, share: f64, count: u64, medium: &mut Medium<'_>) {
        let pages = self.pages.len() as u64;
        let mut circle = match self.circle.take() {
            Some(circle) => circle,
            None if self.is_enough(share) => return,
            None => self.new_circle(),
        };
        let taken = (self.segments().now - circle.began - circle.moved).saturating_add(count);
        let part = taken as f64 / circle.others.max(1) as f64;
        let due = if part >= 1.0 { pages } else { (pages as f64 * part) as u64 };
        let (mut images, mut deltas) = (Vec::new(), BTreeSet::new());
        // What is written for it comes in batches.
        while circle.at < due || (circle.at < pages && images.len() % TOGETHER > 0) {
            let base = self.pages[circle.at as usize].base;
            let delta = self.deltas.of(circle.at);
            let mut is_victim = |place: u64| circle.victims.contains(&self.segments().segment_of(place));
            if base > 0 && is_victim(base - 1) {
                images.push(circle.at);
            } else if let Some(place) = delta.filter(|place| is_victim(*place)) {
                deltas.insert(place);
            }
            circle.at += 1;
        }
        let before = self.segments().now;
        self.move_images(&images, medium);
        self.move_deltas(deltas, medium);
        circle.moved += self.segments().now - before;
        if circle.at < pages {
            self.circle = Some(circle);
        }
    }

    /// Chooses as many segments as are empty: what is moved out of one, and what others take of its
    /// free places until the circle ends, is a segment in all.
    fn new_circle(&mut self) -> Circle {
        let segments = self.segments();
        let (victims, free) = segments.victims(segments.spare());
        Circle { victims, at: 0, began: segments.now, moved: 0, others: free / 2 }
    }
}
