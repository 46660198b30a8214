//! Threaded placement, as Firn's store has it: free places of segments of 64 places, and a
//! batch goes to the emptiest ones.
//!
//! Invariant: a set bit in `free` is a free place; `by_free` has every segment once, under its
//! number of free places.

use crate::append_pack::{SEGMENT, STORE_OVER_PAGES, segments_for};
use std::collections::BTreeSet;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Threaded {
    free: Vec<u64>,
    by_free: BTreeSet<(u32, u64)>,
}

impl Threaded {
    /// For a number of pages, each in the place of its number.
    pub fn new(pages: u64) -> Threaded {
        let mut space = Threaded { free: Vec::new(), by_free: BTreeSet::new() };
        space.grow(pages);
        for place in 0..pages {
            space.set(place, false);
        }
        space
    }

    /// Adds the segments that this number of pages allows.
    pub fn grow(&mut self, pages: u64) {
        for segment in self.free.len() as u64..segments_for(pages, STORE_OVER_PAGES) {
            self.free.push(u64::MAX);
            self.by_free.insert((SEGMENT as u32, segment));
        }
    }

    fn set(&mut self, place: u64, free: bool) {
        let (segment, bit) = (place / SEGMENT, 1 << (place % SEGMENT));
        let bits = &mut self.free[segment as usize];
        assert_eq!(*bits & bit == 0, free, "place {place} is free or used already");
        self.by_free.remove(&(bits.count_ones(), segment));
        *bits ^= bit;
        self.by_free.insert((bits.count_ones(), segment));
    }

    pub fn release(&mut self, place: u64) {
        self.set(place, true);
    }

    /// This many free places, those of a segment in order; they are taken.
    pub fn take(&mut self, count: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        while (taken.len() as u64) < count {
            let &(free, segment) = self.by_free.last().expect("there are segments");
            assert!(free > 0, "places are a quarter more than pages");
            let bits = self.free[segment as usize];
            let left = (count - taken.len() as u64) as usize;
            let places: Vec<u64> = (0..SEGMENT).filter(|at| bits >> at & 1 == 1).take(left).collect();
            for at in places {
                self.set(segment * SEGMENT + at, false);
                taken.push(segment * SEGMENT + at);
            }
        }
        taken
    }

    /// All places, used or not.
    pub fn places(&self) -> u64 {
        self.free.len() as u64 * SEGMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_from_the_emptiest_segment_and_none_is_given_twice() {
        let mut space = Threaded::new(640);
        let first = space.take(10);
        assert_eq!(first, (first[0]..first[0] + 10).collect::<Vec<_>>(), "a run in an empty segment");
        space.release(5);
        space.release(7);
        let rest = space.places() - 640 - 10 + 2;
        let all: BTreeSet<u64> = space.take(rest).into_iter().collect();
        assert_eq!(all.len() as u64, rest);
        assert!(all.contains(&5) && all.contains(&7) && all.is_disjoint(&first.into_iter().collect()));
    }
}
