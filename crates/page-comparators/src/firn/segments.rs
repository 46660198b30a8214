//! Placement by whole segments: places are taken from empty segments only, in order, one open
//! segment for each stream of writes. Which segments are to be emptied is decided here; the pages
//! are moved by the model.
//!
//! Invariants: a place that was taken is live until it is released; an open segment is not empty
//! to others, nor a victim.

use super::space::SegmentOptions;
use crate::append_pack::{SEGMENT, STORE_OVER_PAGES, segments_for};
use std::collections::BTreeSet;

/// Empty segments kept beside what a call takes: what the cleaner itself writes to.
const RESERVE: u64 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    live: u64,
    open: bool,
    /// When a place of it was taken last.
    written: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Segments {
    pub options: SegmentOptions,
    /// Places of a segment.
    size: u64,
    segments: Vec<Segment>,
    live: Vec<bool>,
    empty: BTreeSet<u64>,
    /// The open segment of each stream, and the next place in it.
    open: Vec<Option<(u64, u64)>>,
    /// Places taken since the beginning.
    pub now: u64,
}

impl Segments {
    pub fn new(pages: u64, page_size: u64, options: SegmentOptions) -> Segments {
        let size = options.bytes / page_size;
        let streams = options.classes + 2;
        let mut segments = Segments {
            options,
            size,
            segments: Vec::new(),
            live: Vec::new(),
            empty: BTreeSet::new(),
            open: vec![None; streams],
            now: 0,
        };
        segments.grow(pages);
        for place in 0..pages {
            segments.live[place as usize] = true;
            segments.segments[(place / size) as usize].live += 1;
            segments.empty.remove(&(place / size));
        }
        segments
    }

    /// The stream of images of a class, the first living shortest.
    pub fn images(&self, class: usize) -> usize {
        class.min(self.options.classes - 1)
    }
    /// The stream of what is moved.
    pub fn moved(&self) -> usize {
        self.options.classes
    }
    /// The stream of delta pages.
    pub fn deltas(&self) -> usize {
        if self.options.deltas_apart { self.options.classes + 1 } else { 0 }
    }

    /// As many places as threaded placement has.
    pub fn grow(&mut self, pages: u64) {
        let places = segments_for(pages, STORE_OVER_PAGES) * SEGMENT;
        for segment in self.segments.len() as u64..places / self.size {
            self.segments.push(Segment::default());
            self.live.resize(self.live.len() + self.size as usize, false);
            self.empty.insert(segment);
        }
    }

    pub fn places(&self) -> u64 {
        self.live.len() as u64
    }

    pub fn release(&mut self, place: u64) {
        assert!(std::mem::take(&mut self.live[place as usize]), "place {place} is free already");
        let segment = &mut self.segments[(place / self.size) as usize];
        segment.live -= 1;
        if segment.live == 0 && !segment.open {
            self.empty.insert(place / self.size);
        }
    }

    pub fn take(&mut self, count: u64, stream: usize) -> Vec<u64> {
        (0..count).map(|_| self.take_one(stream)).collect()
    }

    fn take_one(&mut self, stream: usize) -> u64 {
        let (segment, at) = match self.open[stream] {
            Some((segment, at)) if at < self.size => (segment, at),
            full => {
                if let Some((segment, _)) = full {
                    let closed = &mut self.segments[segment as usize];
                    closed.open = false;
                    if closed.live == 0 {
                        self.empty.insert(segment);
                    }
                }
                // The next one after the last: neighbours are one stream to the device.
                let after = full.map_or(0, |(segment, _)| segment + 1);
                let next = self.empty.range(after..).next().or(self.empty.first());
                let segment = *next.expect("the cleaner keeps some empty");
                self.empty.remove(&segment);
                self.segments[segment as usize].open = true;
                (segment, 0)
            }
        };
        self.open[stream] = Some((segment, at + 1));
        self.now += 1;
        let place = segment * self.size + at;
        self.segments[segment as usize].live += 1;
        self.segments[segment as usize].written = self.now;
        self.live[place as usize] = true;
        place
    }

    pub fn segment_of(&self, place: u64) -> u64 {
        place / self.size
    }
    /// Places of a segment that are live.
    pub fn live_in(&self, segment: u64) -> impl Iterator<Item = u64> + '_ {
        (segment * self.size..(segment + 1) * self.size).filter(|place| self.live[*place as usize])
    }

    /// Empty segments beyond the reserve.
    pub fn spare(&self) -> u64 {
        (self.empty.len() as u64).saturating_sub(RESERVE)
    }
    /// Whether a call may take this many places before segments must be emptied.
    pub fn has(&self, count: u64) -> bool {
        self.spare() * self.size >= count
    }

    /// What emptying it is worth: free places, by its age, over what is read and written for them.
    fn benefit(&self, segment: u64) -> Option<f64> {
        let found = self.segments[segment as usize];
        let free = self.size - found.live;
        (!found.open && found.live > 0 && free > 0).then(|| {
            let age = (self.now - found.written + 1) as f64;
            free as f64 * age / (self.size + found.live) as f64
        })
    }

    /// The segment to be emptied next.
    pub fn victim(&self) -> Option<u64> {
        let segments = 0..self.segments.len() as u64;
        let worth = segments.filter_map(|segment| Some((segment, self.benefit(segment)?)));
        worth.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(segment, _)| segment)
    }

    /// The segments to be emptied next, so many at most, one at least; and the places free in them.
    pub fn victims(&self, most: u64) -> (BTreeSet<u64>, u64) {
        let segments = 0..self.segments.len() as u64;
        let mut worth: Vec<(f64, u64)> =
            segments.filter_map(|segment| Some((self.benefit(segment)?, segment))).collect();
        worth.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        worth.truncate(most.max(1) as usize);
        let chosen: BTreeSet<u64> = worth.into_iter().map(|(_, segment)| segment).collect();
        let free = chosen.iter().map(|segment| self.size - self.segments[*segment as usize].live).sum();
        (chosen, free)
    }

    /// Asserts what the head states, and that so many places are live.
    #[cfg(test)]
    pub fn check(&self, live: u64) {
        assert_eq!(self.live.iter().filter(|live| **live).count() as u64, live);
        for (number, segment) in (0..).zip(&self.segments) {
            assert_eq!(self.live_in(number).count() as u64, segment.live, "segment {number}");
            let is_open = self.open.iter().flatten().any(|(open, _)| *open == number);
            assert_eq!(segment.open, is_open, "segment {number}");
            assert_eq!(self.empty.contains(&number), segment.live == 0 && !is_open, "segment {number}");
        }
    }
}
