//! Pages that were turned away or given up lately: their numbers only.
//!
//! A clean page that leaves DRAM for the first time in a while is not taken into the cache but remembered here; if it
//! leaves DRAM again while it is remembered, it had been read again, and is taken. Half as many pages are remembered as the cache has
//! places: with more of them more is written and hardly more found, with fewer less is found (`docs/cache.md`).
//!
//! Sets of eight numbers, each a queue: eight bytes for each page remembered, four for each place of the cache.

use firn_base::PageId;
use firn_base::hash::hash_bytes;

const WAYS: usize = 8;

/// The numbers. Forgotten by a restart.
#[derive(Debug)]
pub(crate) struct Ghosts(Vec<[u64; WAYS]>);

impl Ghosts {
    /// For a cache of so many places.
    pub(crate) fn new(slots: usize) -> Ghosts {
        Ghosts(vec![[0; WAYS]; (slots / 2).div_ceil(WAYS).max(1)])
    }

    fn set_of(&mut self, page: PageId) -> &mut [u64; WAYS] {
        let index = hash_bytes(0, &page.0.to_le_bytes()) % self.0.len() as u64;
        &mut self.0[index as usize]
    }

    /// Remembers a page, instead of the one of its set that was remembered first.
    pub(crate) fn remember(&mut self, page: PageId) {
        let set = self.set_of(page);
        let from = set.iter().position(|known| *known == page.0).unwrap_or(WAYS - 1);
        set.copy_within(..from, 1);
        set[0] = page.0;
    }

    /// Whether the page was remembered; it is not any more.
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
        let mut ghosts = Ghosts::new(16);
        assert_eq!(ghosts.0.len(), 1);
        (1..=9).for_each(|page| ghosts.remember(PageId(page)));
        assert!(!ghosts.recall(PageId(1)), "the ninth took its place");
        assert!(ghosts.recall(PageId(2)) && !ghosts.recall(PageId(2)));
        ghosts.remember(PageId(3));
        ghosts.remember(PageId(10));
        ghosts.remember(PageId(11));
        assert!(!ghosts.recall(PageId(4)), "the oldest, since 3 was remembered anew");
        for page in [3, 5, 6, 7, 8, 9, 10, 11] {
            assert!(ghosts.recall(PageId(page)), "{page}");
        }
        assert!((1..20).all(|page| !ghosts.recall(PageId(page))));
    }
}
