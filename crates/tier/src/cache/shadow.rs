//! Shadow entries: the numbers of pages that were not admitted, or were replaced, lately.
//!
//! A clean page that leaves DRAM for the first time in a while is not taken into the cache but gets
//! a shadow entry. If it leaves DRAM again while it has one, it had been read again, and is taken.
//! The cache remembers half as many pages as it has places: with more of them more is written and
//! hardly more found, with fewer less is found (`docs/lab/2026-11-20-cache-studies.md`).
//!
//! Sets of eight numbers, each a queue: eight bytes for each page remembered, four for each place
//! of the cache.

use firndb_base::PageId;
use firndb_base::hash::hash_bytes;

const WAYS: usize = 8;

/// The remembered numbers. Lost at a restart.
#[derive(Debug)]
pub(crate) struct ShadowEntries(Vec<[u64; WAYS]>);

impl ShadowEntries {
    /// Shadow entries for a cache of `slots` places.
    pub(crate) fn new(slots: usize) -> ShadowEntries {
        ShadowEntries(vec![[0; WAYS]; (slots / 2).div_ceil(WAYS).max(1)])
    }

    fn set_of(&mut self, page: PageId) -> &mut [u64; WAYS] {
        let index = hash_bytes(0, &page.0.to_le_bytes()) % self.0.len() as u64;
        &mut self.0[index as usize]
    }

    /// Remembers a page; the oldest entry of its set is dropped.
    pub(crate) fn remember(&mut self, page: PageId) {
        let set = self.set_of(page);
        let from = set.iter().position(|known| *known == page.0).unwrap_or(WAYS - 1);
        set.copy_within(..from, 1);
        set[0] = page.0;
    }

    /// Returns whether the page was remembered, and drops its entry.
    pub(crate) fn recall(&mut self, page: PageId) -> bool {
        let set = self.set_of(page);
        let Some(at) = set.iter().position(|known| *known == page.0) else { return false };
        set.copy_within(at + 1.., at);
        set[WAYS - 1] = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_and_recalled_once() {
        let mut shadow = ShadowEntries::new(16);
        assert_eq!(shadow.0.len(), 1);
        (1..=9).for_each(|page| shadow.remember(PageId(page)));
        assert!(!shadow.recall(PageId(1)), "the ninth took its place");
        assert!(shadow.recall(PageId(2)) && !shadow.recall(PageId(2)));
        shadow.remember(PageId(3));
        shadow.remember(PageId(10));
        shadow.remember(PageId(11));
        assert!(!shadow.recall(PageId(4)), "the oldest, since 3 was remembered anew");
        for page in [3, 5, 6, 7, 8, 9, 10, 11] {
            assert!(shadow.recall(PageId(page)), "{page}");
        }
        assert!((1..20).all(|page| !shadow.recall(PageId(page))));
    }
}
