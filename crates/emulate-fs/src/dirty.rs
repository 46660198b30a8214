//! The emulated page cache: what was written to a file and has not reached the device.
//!
//! An ordinary write costs the device nothing until the file is synced or has too many dirty bytes;
//! then its pages are written in the order of their addresses, neighbours together, each page once
//! however often it was written.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Page-aligned ranges of a file, apart from each other.
#[derive(Debug, Default)]
pub struct DirtyRanges {
    /// Start and end of each range.
    ranges: BTreeMap<u64, u64>,
    bytes: u64,
}

impl DirtyRanges {
    /// Adds the pages of `range`.
    pub fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut start = range.start - range.start % PAGE;
        let mut end = range.end.next_multiple_of(PAGE);
        // Ranges that touch the new one become part of it.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back()
            && to >= start
        {
            self.ranges.remove(&from);
            self.bytes -= to - from;
            start = start.min(from);
            end = end.max(to);
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
    }

    /// Removes the pages from `from` on: they were cut off.
    pub fn truncate(&mut self, from: u64) {
        let first = from.next_multiple_of(PAGE);
        let cut = self.ranges.split_off(&first);
        self.bytes -= cut.iter().map(|(from, to)| to - from).sum::<u64>();
        if let Some((_, end)) = self.ranges.iter_mut().next_back()
            && *end > first
        {
            self.bytes -= *end - first;
            *end = first;
        }
    }

    /// Removes and returns all ranges.
    pub fn take(&mut self) -> Vec<Range<u64>> {
        self.bytes = 0;
        std::mem::take(&mut self.ranges).into_iter().map(|(from, to)| from..to).collect()
    }

    /// Number of dirty bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_agree_with_a_set_of_pages() {
        for seed in 0..200 {
            let (mut rng, mut ranges, mut pages) = (Rng::new(seed), DirtyRanges::default(), BTreeSet::new());
            for _ in 0..100 {
                let start = rng.below(40 * PAGE);
                if rng.one_in(10) {
                    ranges.truncate(start);
                    pages.retain(|page| page * PAGE < start.next_multiple_of(PAGE));
                } else {
                    let range = start..start + rng.below(6 * PAGE);
                    ranges.add(&range);
                    if !range.is_empty() {
                        pages.extend(range.start / PAGE..range.end.div_ceil(PAGE));
                    }
                }
                assert_eq!(ranges.bytes(), pages.len() as u64 * PAGE, "seed {seed}");
            }
            let taken = ranges.take();
            let of_ranges: BTreeSet<u64> =
                taken.iter().flat_map(|range| range.start / PAGE..range.end / PAGE).collect();
            assert_eq!(of_ranges, pages, "seed {seed}");
            assert!(taken.windows(2).all(|pair| pair[0].end < pair[1].start), "neighbours are joined");
            assert_eq!(ranges.bytes(), 0);
        }
    }
}
