//! What becomes of the images of a group that is replaced: pure functions.
//!
//! FaCE (VLDB 2012), section 3.3: an image that is dirty and valid is written back to the store,
//! others are discarded. With a second chance, an image that is valid and was referenced is
//! enqueued again, except the very first ones if there would be no space left.

use super::directory::Word;

/// A flash cache's policy of admission and replacement (FaCE, table 2 and section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// Multi-version FIFO, page by page.
    Fifo,
    /// Multi-version FIFO, a group of pages at a time (GR).
    GroupReplacement,
    /// As `GroupReplacement`; pages that were read while in the cache stay for another round (GSC).
    GroupSecondChance,
    /// As `GroupSecondChance`; a clean page is admitted only if it left DRAM before, not long ago.
    /// Beyond the paper.
    Selective,
    /// As `Selective`; of each group valid images stay, too, up to the number that had become
    /// invalid, dirty ones first. Beyond the paper.
    #[default]
    Keeping,
    /// LRU-2 in place, written back by a lazy cleaner; empty after every restart (LC, a
    /// comparator).
    LazyCleaning,
    /// Write-through; pages enter when they are read from the store, if their extent is warmer than
    /// the coldest that is cached; a slot directory on flash (TAC, a comparator).
    Temperature,
    /// Clean pages, which enter when they are read from the store; least recently used; empty after
    /// every restart (Exadata's, a comparator).
    ReadLru,
}

impl CachePolicy {
    /// The policy's name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CachePolicy::Fifo => "fifo",
            CachePolicy::GroupReplacement => "gr",
            CachePolicy::GroupSecondChance => "gsc",
            CachePolicy::Selective => "select",
            CachePolicy::Keeping => "keep",
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
            CachePolicy::Keeping,
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
        use CachePolicy::{Fifo, GroupReplacement, GroupSecondChance, Keeping, Selective};
        matches!(self, Fifo | GroupReplacement | GroupSecondChance | Keeping | Selective)
    }
    /// Whether pages enter when they are read from the store.
    #[must_use]
    pub fn caches_on_entry(self) -> bool {
        matches!(self, CachePolicy::Temperature | CachePolicy::ReadLru)
    }
    /// Whether a clean page is admitted only if it left DRAM, or the cache, before, not long ago.
    pub(crate) fn selects(self) -> bool {
        matches!(self, CachePolicy::Selective | CachePolicy::Keeping)
    }
    pub(crate) fn chances(self) -> Chances {
        match self {
            CachePolicy::GroupSecondChance | CachePolicy::Selective => Chances::Referenced,
            CachePolicy::Keeping => Chances::Kept,
            _ => Chances::None,
        }
    }
    /// Whether a page that enters while an older version is valid counts as referenced: it was used
    /// again.
    pub(crate) fn inherits(self) -> bool {
        self == CachePolicy::Keeping
    }
}

/// Which images of a group that is replaced stay for another round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chances {
    None,
    /// Referenced images.
    Referenced,
    /// Referenced images, and other valid ones as long as no more stay than had become invalid. In
    /// a cache that is large for the hot set, most images are old versions, and FIFO would evict
    /// valid pages to keep those. So the ring is cleaned as a log-structured store is; as at most
    /// half of a group is images that stay, a page taken in costs at most two written. Dirty images
    /// stay before clean ones.
    Kept,
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

/// Decides on a group, front first; at most `again_max` images are enqueued again.
pub(crate) fn choose(words: &[Word], chances: Chances, again_max: usize) -> Vec<Fate> {
    let mut again_max = if chances == Chances::None { 0 } else { again_max };
    let mut fates = vec![Fate::Discard; words.len()];
    let mut stay = 0;
    // From the rear, so that images at the front are the ones that must go.
    for (word, fate) in words.iter().zip(&mut fates).rev() {
        if !word.is_valid() {
            continue;
        }
        if word.is_referenced() && again_max > 0 {
            again_max -= 1;
            stay += 1;
            *fate = Fate::Again;
        } else if word.is_dirty() {
            *fate = Fate::WriteBack;
        }
    }
    if chances == Chances::Kept {
        let invalid = words.iter().filter(|word| !word.is_valid()).count();
        let mut more = invalid.saturating_sub(stay).min(again_max);
        // Dirty ones first: dropping a clean one is free, and the thread that replaces the group
        // waits for write-backs.
        for dirty in [true, false] {
            let others = words.iter().zip(&mut fates).rev();
            let others = others.filter(|(word, fate)| word.is_valid() && **fate != Fate::Again);
            for (_, fate) in others.filter(|(word, _)| word.is_dirty() == dirty).take(more) {
                *fate = Fate::Again;
                more -= 1;
            }
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::PageId;

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
        assert_eq!(choose(&words, Chances::None, 9), [WriteBack, Discard, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, Chances::Referenced, 9), [Again, Again, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, Chances::Referenced, 1), [WriteBack, Again, WriteBack, Discard, Discard]);
        assert_eq!(choose(&words, Chances::Referenced, 0), choose(&words, Chances::None, 9));
        assert_eq!(
            choose(&[words[0]; 4], Chances::Referenced, 3),
            [WriteBack, Again, Again, Again],
            "the very front gives way"
        );
    }

    #[test]
    fn as_many_stay_as_had_become_invalid_and_all_that_were_referenced() {
        let word = |valid, dirty, referenced| Word::of(PageId(1), valid, dirty, referenced);
        let (old, hot) = (word(false, true, false), word(true, true, true));
        let (clean, dirty) = (word(true, false, false), word(true, true, false));
        use Fate::{Again, Discard, WriteBack};
        let kept = |words: &[Word], again_max| choose(words, Chances::Kept, again_max);
        assert_eq!(kept(&[clean, old, dirty, old], 9), [Again, Discard, Again, Discard], "space for all");
        assert_eq!(kept(&[dirty, clean, dirty, old], 9), [WriteBack, Discard, Again, Discard], "for one");
        assert_eq!(
            kept(&[dirty, hot, hot, old], 9),
            [WriteBack, Again, Again, Discard],
            "the hot come first"
        );
        assert_eq!(kept(&[clean, old, dirty, old], 1), [Discard, Discard, Again, Discard]);
        assert_eq!(
            kept(&[dirty, old, clean], 9),
            [Again, Discard, Discard],
            "the dirty come before the clean"
        );
        assert_eq!(kept(&[clean, dirty], 9), [Discard, WriteBack], "nothing had become invalid");
    }

    #[test]
    fn policies_are_found_by_their_names() {
        for name in ["fifo", "gr", "gsc", "select", "keep", "lc", "tac", "exadata"] {
            assert_eq!(CachePolicy::named(name).unwrap().name(), name);
        }
        assert_eq!(CachePolicy::named("arc"), None);
    }
}
