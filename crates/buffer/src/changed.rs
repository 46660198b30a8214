//! What a change reports of the bytes it touched, and what a frame keeps of it.

use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firndb_tier::Changes;
use std::ops::Range;

/// Which bytes of a page a change touched. It may name more than was changed, never less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A few ranges.
    Ranges(ByteRanges),
    /// Most of the page, or it is not known which bytes.
    Most,
}

impl Changed {
    /// The granules of a page of `page_size` bytes that were touched.
    #[inline]
    pub(crate) fn granules(&self, page_size: usize) -> Changes {
        let Changed::Ranges(ranges) = self else { return Changes::ALL };
        let of = |range: Range<u16>| Changes::of(range.start.into()..range.end.into(), page_size);
        ranges.iter().fold(Changes::NONE, |all, range| all | of(range))
    }

    /// Asserts that no byte differs that is not named.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_names_all(&self, before: &[u8], after: &[u8]) {
        let Changed::Ranges(ranges) = self else { return };
        let mut expected = before.to_vec();
        for range in ranges.iter() {
            let range = usize::from(range.start)..usize::from(range.end);
            expected[range.clone()].copy_from_slice(&after[range]);
        }
        let missed = || expected.iter().zip(after).position(|(expected, after)| expected != after);
        assert!(expected == after, "byte {:?} was changed, and only {ranges:?} reported", missed());
    }
}

/// A few ranges of a page's bytes, without memory of their own. May name more than it was given,
/// never less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRanges {
    ranges: [(u16, u16); ByteRanges::MAX],
    len: u8,
}

impl ByteRanges {
    /// Ranges kept apart; what comes after them widens the last.
    pub const MAX: usize = 6;

    /// Adds a range.
    pub fn push(&mut self, range: Range<u16>) {
        let len = usize::from(self.len);
        if len < ByteRanges::MAX {
            self.ranges[len] = (range.start, range.end);
            self.len += 1;
        } else {
            let last = &mut self.ranges[ByteRanges::MAX - 1];
            *last = (last.0.min(range.start), last.1.max(range.end));
        }
    }

    /// In the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = Range<u16>> {
        self.ranges[..usize::from(self.len)].iter().map(|&(start, end)| start..end)
    }
}

impl FromIterator<Range<u16>> for ByteRanges {
    fn from_iter<I: IntoIterator<Item = Range<u16>>>(ranges: I) -> ByteRanges {
        let mut list = ByteRanges::default();
        ranges.into_iter().for_each(|range| list.push(range));
        list
    }
}

/// A set inside a frame. The atomics only avoid `unsafe`: the thread that holds the latch or flag
/// that protects the cell reads and writes it alone.
pub(crate) struct ChangesCell([AtomicU64; 2]);

impl ChangesCell {
    pub(crate) fn new(changes: Changes) -> ChangesCell {
        ChangesCell(changes.words().map(AtomicU64::new))
    }
    pub(crate) fn get(&self) -> Changes {
        let [low, high] = &self.0;
        Changes::from_words([low.load(Relaxed), high.load(Relaxed)])
    }
    pub(crate) fn set(&self, changes: Changes) {
        let [low, high] = &self.0;
        low.store(changes.words()[0], Relaxed);
        high.store(changes.words()[1], Relaxed);
    }
    pub(crate) fn add(&self, changes: Changes) {
        self.set(self.get() | changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn every_byte_reported_is_in_a_granule_and_most_is_all() {
        const PAGE: usize = 4096;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut ranges = ByteRanges::default();
            let cell = ChangesCell::new(Changes::NONE);
            let mut touched = vec![false; PAGE];
            for _ in 0..rng.between(1, 12) {
                let start = rng.below(PAGE as u64) as u16;
                let end = (u64::from(start) + rng.below(200)).min(PAGE as u64) as u16;
                touched[usize::from(start)..usize::from(end)].fill(true);
                ranges.push(start..end);
                if rng.one_in(3) {
                    cell.add(Changed::Ranges(std::mem::take(&mut ranges)).granules(PAGE));
                }
            }
            cell.add(Changed::Ranges(ranges).granules(PAGE));
            for (at, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
                assert!(cell.get().covers(Changes::of(at..at + 1, PAGE)), "seed {seed}: byte {at}");
            }
            assert_eq!(Changed::Most.granules(PAGE), Changes::ALL);
        }
    }
}
