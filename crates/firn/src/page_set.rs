//! Sets of pages, a bit each.

use firndb_base::PageId;

/// A set of page numbers. Takes a bit for each number up to the greatest in it.
#[derive(Debug, Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    /// Adds a page that exists: numbers are as dense as the store is.
    pub(crate) fn insert(&mut self, page: PageId) {
        let word = (page.0 / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (page.0 % 64);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn contains(&self, page: PageId) -> bool {
        let word = usize::try_from(page.0 / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_in_it_and_nothing_else() {
        let mut set = PageSet::default();
        for page in (0..1000).step_by(7) {
            set.insert(PageId(page));
        }
        for page in 0..2000 {
            assert_eq!(set.contains(PageId(page)), page < 1000 && page % 7 == 0, "{page}");
        }
        assert!(!set.contains(PageId(u64::MAX)));
        assert_eq!(set.len(), 143);
        assert_eq!(set.words.len(), 16, "a bit a page");
    }
}
