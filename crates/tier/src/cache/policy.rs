//! What becomes of the images of a group that is replaced: pure functions.
//!
//! FaCE (VLDB 2012), section 3.3: an image that is dirty and valid is written back to the store,
//! others are discarded. With a second chance, an image that is valid and was referenced is
//! enqueued again, except the very first ones if there would be no space left.

use super::word::Word;
use crate::page_cache::policy::CachePolicy;

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

impl From<CachePolicy> for Chances {
    fn from(policy: CachePolicy) -> Chances {
        match policy {
            CachePolicy::GroupSecondChance | CachePolicy::Selective => Chances::Referenced,
            CachePolicy::Keeping => Chances::Kept,
            _ => Chances::None,
        }
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
}
