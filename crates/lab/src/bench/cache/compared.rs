//! The caches that the figures compare, by their short names.

use firndb::CachePolicy;
use firndb_cache_comparators::{Comparator, Compared};

/// In the figures, the best of the shares of dirty pages that [`super::lazy`] sweeps.
pub const LC: Compared = Compared::Other(Comparator::LC);
pub const TAC: Compared = Compared::Other(Comparator::Temperature);
pub const EXADATA: Compared = Compared::Other(Comparator::ReadLru);
pub const FIFO: Compared = Compared::Firn(CachePolicy::Fifo);
pub const GR: Compared = Compared::Firn(CachePolicy::GroupReplacement);
pub const GSC: Compared = Compared::Firn(CachePolicy::GroupSecondChance);
pub const SELECT: Compared = Compared::Firn(CachePolicy::Selective);
pub const KEEP: Compared = Compared::Firn(CachePolicy::Keeping);
/// FaCE as published, without Firn's write-back ahead.
pub const GR_PAPER: Compared = Compared::Paper(CachePolicy::GroupReplacement);
pub const GSC_PAPER: Compared = Compared::Paper(CachePolicy::GroupSecondChance);
/// What a database has that does not choose.
pub const DEFAULT: Compared = KEEP;

/// All, in the order of the tables.
pub const ALL: [Compared; 10] = [EXADATA, TAC, LC, FIFO, GR_PAPER, GSC_PAPER, GR, GSC, SELECT, KEEP];

/// Those that a user of Firn chooses from.
pub const PRODUCT: [Compared; 5] = [FIFO, GR, GSC, SELECT, KEEP];

/// As in the paper.
pub fn title(policy: Compared) -> &'static str {
    match policy {
        LC => "LC",
        FIFO => "FaCE",
        GR => "FaCE+GR",
        GSC => "FaCE+GSC",
        SELECT => "Firn select",
        KEEP => "Firn keep",
        TAC => "TAC",
        EXADATA => "Exadata",
        GR_PAPER => "FaCE+GR as published",
        GSC_PAPER => "FaCE+GSC as published",
        Compared::Other(_) => "LC at a share of dirty pages",
        Compared::Firn(_) | Compared::Paper(_) => "FaCE as published",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_for_the_default_is_the_default() {
        assert_eq!(DEFAULT, Compared::Firn(CachePolicy::default()));
    }
}
