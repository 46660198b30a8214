//! Which bytes of a frame differ from the version that the tier holds.
//!
//! Invariants of a [`ChangeSet`]: its ranges are ascending, disjoint, not adjacent and not empty;
//! there are at most [`ChangeSet::RANGES_MAX`]. It may say more than was changed, never less: the
//! delta layer writes what it names and takes the rest from the base version.

use firndb_base::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::ops::Range;

/// Which bytes of a page a change touched, for the delta layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A few ranges.
    Ranges(ByteRanges),
    /// Most of the page.
    Most,
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

/// Changed bytes of one page: none, a few ranges, or most of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeSet {
    ranges: [(u16, u16); ChangeSet::RANGES_MAX],
    len: u8,
    most: bool,
}

impl ChangeSet {
    /// Ranges kept; more are joined across their smallest gaps.
    pub(crate) const RANGES_MAX: usize = 4;
    /// Nothing was changed.
    pub(crate) const NONE: ChangeSet = ChangeSet { ranges: [(0, 0); Self::RANGES_MAX], len: 0, most: false };
    /// Most of the page was changed, or it is not known what was.
    pub(crate) const MOST: ChangeSet = ChangeSet { most: true, ..ChangeSet::NONE };

    fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges[..usize::from(self.len)]
    }

    /// As the tier wants it: `None` for most of the page.
    pub(crate) fn to_ranges(self) -> Option<Vec<Range<u16>>> {
        (!self.most).then(|| self.ranges().iter().map(|&(start, end)| start..end).collect())
    }

    /// With the bytes of one change added.
    #[must_use]
    pub(crate) fn with_change(self, changed: &Changed, page_size: usize) -> ChangeSet {
        match changed {
            Changed::Most => ChangeSet::MOST,
            Changed::Ranges(_) if self.most => self,
            Changed::Ranges(ranges) => ranges.iter().fold(self, |set, range| {
                assert!(
                    range.start <= range.end && usize::from(range.end) <= page_size,
                    "a change names bytes {range:?} of a page of {page_size}"
                );
                set.with_range((range.start, range.end), page_size)
            }),
        }
    }

    /// With everything of `other` added.
    #[must_use]
    pub(crate) fn with_all(self, other: ChangeSet, page_size: usize) -> ChangeSet {
        if other.most {
            return ChangeSet::MOST;
        }
        other.ranges().iter().fold(self, |set, &range| set.with_range(range, page_size))
    }

    fn with_range(self, added: (u16, u16), page_size: usize) -> ChangeSet {
        if self.most || added.0 == added.1 {
            return self;
        }
        if self.ranges().iter().any(|held| held.0 <= added.0 && added.1 <= held.1) {
            return self;
        }
        // One place more than is kept: an insertion first, then a join if there is one too many.
        let mut merged = [(0u16, 0u16); Self::RANGES_MAX + 1];
        let mut len = 0;
        let mut pending = added;
        for &held in self.ranges() {
            if held.1 < pending.0 {
                merged[len] = held;
                len += 1;
            } else if pending.1 < held.0 {
                merged[len] = pending;
                len += 1;
                pending = held;
            } else {
                pending = (held.0.min(pending.0), held.1.max(pending.1));
            }
        }
        merged[len] = pending;
        len += 1;
        if len > Self::RANGES_MAX {
            let gap = |at: &usize| merged[at + 1].0 - merged[*at].1;
            let closest = (0..len - 1).min_by_key(gap).expect("more than one range is there");
            merged[closest].1 = merged[closest + 1].1;
            merged.copy_within(closest + 2..len, closest + 1);
            len -= 1;
        }
        let covered: usize = merged[..len].iter().map(|range| usize::from(range.1 - range.0)).sum();
        if covered * 2 > page_size {
            return ChangeSet::MOST;
        }
        let mut ranges = [(0, 0); Self::RANGES_MAX];
        ranges[..len].copy_from_slice(&merged[..len]);
        let set = ChangeSet { ranges, len: len as u8, most: false };
        set.check_in_debug();
        set
    }

    /// In debug builds, asserts what the module's head states, but that nothing is missing.
    fn check_in_debug(&self) {
        debug_assert!(self.ranges().iter().all(|range| range.0 < range.1), "no range is empty: {self:?}");
        let apart = |pair: &[(u16, u16)]| pair[0].1 < pair[1].0;
        debug_assert!(self.ranges().windows(2).all(apart), "ranges ascend with gaps: {self:?}");
    }
}

/// A change set inside a frame. The atomics only avoid `unsafe`: the thread that holds the latch or
/// flag that protects the cell reads and writes it alone.
pub(crate) struct ChangeSetCell {
    ranges: [AtomicU32; ChangeSet::RANGES_MAX],
    /// Number of ranges, or [`ChangeSetCell::MOST`].
    len: AtomicU32,
}

impl ChangeSetCell {
    const MOST: u32 = u32::MAX;

    pub(crate) fn new() -> ChangeSetCell {
        ChangeSetCell { ranges: [const { AtomicU32::new(0) }; ChangeSet::RANGES_MAX], len: AtomicU32::new(0) }
    }

    pub(crate) fn get(&self) -> ChangeSet {
        match self.len.load(Relaxed) {
            Self::MOST => ChangeSet::MOST,
            len => {
                let mut set = ChangeSet { len: len as u8, ..ChangeSet::NONE };
                for (range, cell) in set.ranges.iter_mut().zip(&self.ranges).take(len as usize) {
                    let packed = cell.load(Relaxed);
                    *range = ((packed >> 16) as u16, packed as u16);
                }
                set
            }
        }
    }

    pub(crate) fn set(&self, set: ChangeSet) {
        for (cell, range) in self.ranges.iter().zip(set.ranges()) {
            cell.store(u32::from(range.0) << 16 | u32::from(range.1), Relaxed);
        }
        self.len.store(if set.most { Self::MOST } else { u32::from(set.len) }, Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a case like any other")]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    const PAGE: usize = 4096;

    fn set_of(ranges: &[Range<u16>]) -> ChangeSet {
        ChangeSet::NONE.with_change(&Changed::Ranges(ranges.iter().cloned().collect()), PAGE)
    }

    #[test]
    fn ranges_that_touch_are_joined_and_the_closest_are_joined_when_there_are_too_many() {
        type Case = (&'static [Range<u16>], &'static [Range<u16>]);
        let cases: [Case; 6] = [
            (&[], &[]),
            (&[7..7], &[]),
            (&[10..20, 20..30], &[10..30]),
            (&[50..60, 10..20, 15..55], &[10..60]),
            (&[10..20, 100..110, 200..210, 300..310, 305..320], &[10..20, 100..110, 200..210, 300..320]),
            (&[10..20, 100..110, 118..120, 200..210, 300..310], &[10..20, 100..120, 200..210, 300..310]),
        ];
        for (added, expected) in cases {
            assert_eq!(set_of(added).to_ranges().as_deref(), Some(expected), "{added:?}");
        }
        assert_eq!(set_of(&[0..2048, 2048..2049]), ChangeSet::MOST);
        assert_eq!(set_of(&[0..10]).with_change(&Changed::Most, PAGE), ChangeSet::MOST);
        assert_eq!(ChangeSet::MOST.with_all(set_of(&[0..10]), PAGE), ChangeSet::MOST);
    }

    #[test]
    fn random_changes_are_always_covered_and_survive_the_cell() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut touched = vec![false; PAGE];
            let mut set = ChangeSet::NONE;
            let cell = ChangeSetCell::new();
            for _ in 0..rng.between(1, 12) {
                let start = rng.below(PAGE as u64) as u16;
                let end = (u64::from(start) + rng.below(200)).min(PAGE as u64) as u16;
                touched[usize::from(start)..usize::from(end)].fill(true);
                set = if rng.one_in(2) {
                    set.with_all(set_of(std::slice::from_ref(&(start..end))), PAGE)
                } else {
                    set.with_change(&Changed::Ranges(std::iter::once(start..end).collect()), PAGE)
                };
                cell.set(set);
                assert_eq!(cell.get(), set, "seed {seed}");
            }
            let Some(ranges) = set.to_ranges() else { continue };
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}: {ranges:?}");
            for (at, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
                assert!(ranges.iter().any(|range| range.contains(&(at as u16))), "seed {seed}: byte {at}");
            }
        }
    }
}
