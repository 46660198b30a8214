//! What becomes of the images of a group that is replaced: pure.
//!
//! FaCE (VLDB 2012), section 3.3: an image that is dirty and valid goes back to the store, others are
//! discarded; with a second chance, one that is valid and was referenced is enqueued again, but for the very
//! first ones if there would be no room left.

use super::directory::Word;

/// How a flash cache takes pages in and lets them go (FaCE, table 2 and section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// Multi-version FIFO, page by page.
    Fifo,
    /// Multi-version FIFO, a group of pages at a time (GR).
    GroupReplacement,
    /// The same; pages that were read while in the cache stay for another round (GSC).
    #[default]
    GroupSecondChance,
    /// The same; a clean page is taken only if it left DRAM before not long ago. Beyond the paper.
    Selective,
    /// LRU-2 in place, written back by a lazy cleaner; forgotten at every restart (LC, a comparator).
    LazyCleaning,
    /// Write-through; pages enter when they are read from the store, if their extent is warmer than the coldest that is
    /// cached; a slot directory on flash (TAC, a comparator).
    Temperature,
    /// Clean pages, that enter when they are read from the store; least recently used; forgotten at every restart
    /// (Exadata's, a comparator).
    ReadLru,
}

impl CachePolicy {
    /// A word for people and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CachePolicy::Fifo => "fifo",
            CachePolicy::GroupReplacement => "gr",
            CachePolicy::GroupSecondChance => "gsc",
            CachePolicy::Selective => "select",
            CachePolicy::LazyCleaning => "lc",
            CachePolicy::Temperature => "tac",
            CachePolicy::ReadLru => "exadata",
        }
    }
    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<CachePolicy> {
        [
            CachePolicy::Fifo,
            CachePolicy::GroupReplacement,
            CachePolicy::GroupSecondChance,
            CachePolicy::Selective,
            CachePolicy::LazyCleaning,
            CachePolicy::Temperature,
            CachePolicy::ReadLru,
        ]
        .into_iter()
        .find(|policy| policy.name() == name)
    }
    /// Whether it is one of FaCE's own, between which a cache may change at any opening.
    #[must_use]
    pub fn is_multi_version_fifo(self) -> bool {
        matches!(
            self,
            CachePolicy::Fifo
                | CachePolicy::GroupReplacement
                | CachePolicy::GroupSecondChance
                | CachePolicy::Selective
        )
    }
    /// Whether pages enter when they are read from the store.
    #[must_use]
    pub fn caches_on_entry(self) -> bool {
        matches!(self, CachePolicy::Temperature | CachePolicy::ReadLru)
    }
    pub(crate) fn gives_second_chances(self) -> bool {
        matches!(self, CachePolicy::GroupSecondChance | CachePolicy::Selective)
    }
}

/// What becomes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Forgotten.
    Discard,
    /// Written to the store, then forgotten.
    WriteBack,
    /// Enqueued again.
    Again,
}

/// Decides on a group, front first; at most `room` images come again.
pub(crate) fn choose(words: &[Word], second_chance: bool, room: usize) -> Vec<Fate> {
    let mut room = if second_chance { room } else { 0 };
    let mut fates = vec![Fate::Discard; words.len()];
    // From the rear, so that it is the front that gives way.
    for (word, fate) in words.iter().zip(&mut fates).rev() {
        if !word.is_valid() {
            continue;
        }
        if word.is_referenced() && room > 0 {
            room -= 1;
            *fate = Fate::Again;
        } else if word.is_dirty() {
            *fate = Fate::WriteBack;
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::PageId;

    #[test]
    fn each_kind_of_image_has_its_fate() {
        let word = |valid, dirty, referenced| Word::of(PageId(1), valid, dirty, referenced);
        let words = [
            word(true, true, true),
            word(true, false, true),
            word(true, true, false),
            word(true, false, false),
            word(false, true, true),
        ];
        use Fate::{Again, Discard, WriteBack};
        assert_eq!(choose(&words, false, 9), [WriteBack, Discard, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, true, 9), [Again, Again, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, true, 1), [WriteBack, Again, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, true, 0), choose(&words, false, 9));
        assert_eq!(
            choose(&[words[0]; 4], true, 3),
            [WriteBack, Again, Again, Again],
            "the very front gives way"
        );
    }

    #[test]
    fn policies_are_found_by_their_names() {
        for name in ["fifo", "gr", "gsc", "select", "lc", "tac", "exadata"] {
            assert_eq!(CachePolicy::named(name).unwrap().name(), name);
        }
        assert_eq!(CachePolicy::named("arc"), None);
    }
}
