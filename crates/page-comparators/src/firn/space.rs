//! Where new versions go: to free places wherever they are, or only to whole empty segments.

use super::segments::Segments;
use super::threaded::Threaded;

/// How places are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// The emptiest segments of 64 places, in runs.
    Threaded,
    /// Whole empty segments, which a cleaner makes.
    Segments(SegmentOptions),
}

/// How segments are written and emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentOptions {
    /// Bytes of a segment.
    pub bytes: u64,
    /// Segments open for images by their expected lifetime; those moved have one of their own.
    pub classes: usize,
    /// Whether delta pages have an open segment of their own; else they go with the images that
    /// live shortest.
    pub deltas_apart: bool,
    /// What the cleaner finds images by.
    pub finds: Finds,
}

/// How the cleaner finds what is live in a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finds {
    /// A table of the pages at each place: it empties the best segment of all, one at a time.
    ByPlace,
    /// The page map, walked in circles: before a circle, which begins when less than this share of
    /// all places is empty, it chooses segments, and empties them as it meets their pages.
    ByPage {
        /// Of all places.
        share: f64,
    },
}

/// See the head of the file.
#[derive(Debug)]
pub(super) enum Space {
    Threaded(Threaded),
    Segments(Segments),
}

impl Space {
    pub fn new(pages: u64, page_size: u64, placement: Placement) -> Space {
        match placement {
            Placement::Threaded => Space::Threaded(Threaded::new(pages)),
            Placement::Segments(options) => Space::Segments(Segments::new(pages, page_size, options)),
        }
    }

    pub fn grow(&mut self, pages: u64) {
        match self {
            Space::Threaded(space) => space.grow(pages),
            Space::Segments(space) => space.grow(pages),
        }
    }

    pub fn release(&mut self, place: u64) {
        match self {
            Space::Threaded(space) => space.release(place),
            Space::Segments(space) => space.release(place),
        }
    }

    /// Takes this many places, in the order in which they are written.
    pub fn take(&mut self, count: u64, stream: usize) -> Vec<u64> {
        match self {
            Space::Threaded(space) => space.take(count),
            Space::Segments(space) => space.take(count, stream),
        }
    }

    /// All places, used or not.
    pub fn places(&self) -> u64 {
        match self {
            Space::Threaded(space) => space.places(),
            Space::Segments(space) => space.places(),
        }
    }

    pub fn segments(&mut self) -> Option<&mut Segments> {
        match self {
            Space::Threaded(_) => None,
            Space::Segments(space) => Some(space),
        }
    }
}
