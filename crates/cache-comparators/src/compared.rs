//! What a comparison chooses from: Firn's policies and the comparators.

use crate::comparator::Comparator;
use crate::paper_face::PaperFace;
use firndb_base::sync::Arc;
use firndb_tier::CacheKind;
use firndb_tier::cache::Face;
use firndb_tier::page_cache::policy::CachePolicy;

/// What follows the policy in the name of FaCE as published.
const PAPER: &str = "-paper";
/// What comes before the share of dirty pages in the name of lazy cleaning.
const LC_AT: &str = "lc:";

/// A flash cache in a comparison: Firn's with a policy, or a comparator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Firn's own, with this policy.
    Firn(CachePolicy),
    /// FaCE as published: this policy, and all is written back by the thread that replaces a group.
    Paper(CachePolicy),
    /// Another paper's.
    Other(Comparator),
}

impl Compared {
    /// Those that a test or a tortured database may have: FaCE as published does nothing that
    /// Firn's does not.
    pub const ALL: [Compared; 8] = [
        Compared::Firn(CachePolicy::GroupSecondChance),
        Compared::Firn(CachePolicy::Keeping),
        Compared::Firn(CachePolicy::Selective),
        Compared::Firn(CachePolicy::GroupReplacement),
        Compared::Firn(CachePolicy::Fifo),
        Compared::Other(Comparator::LC),
        Compared::Other(Comparator::Temperature),
        Compared::Other(Comparator::ReadLru),
    ];

    /// The name in arguments and reports: `gsc`, `gsc-paper`, `lc`, `lc:0.3` (the share of dirty
    /// pages at which its cleaner starts, if it is not the usual one), `tac`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Compared::Firn(policy) => policy.name().into(),
            Compared::Paper(policy) => format!("{}{PAPER}", policy.name()),
            Compared::Other(Comparator::LazyCleaning { dirty_percent_max })
                if self != Compared::Other(Comparator::LC) =>
            {
                format!("{LC_AT}{}", f64::from(dirty_percent_max) / 100.0)
            }
            Compared::Other(kind) => kind.name().into(),
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Compared> {
        if let Some(share) = name.strip_prefix(LC_AT) {
            let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
            return Some(Compared::lazy_cleaning(share));
        }
        if let Some(policy) = name.strip_suffix(PAPER) {
            let published = |policy: &CachePolicy| {
                use CachePolicy::{Fifo, GroupReplacement, GroupSecondChance};
                matches!(policy, Fifo | GroupReplacement | GroupSecondChance)
            };
            return CachePolicy::named(policy).filter(published).map(Compared::Paper);
        }
        Compared::ALL.into_iter().find(|compared| compared.name() == name)
    }

    /// Lazy cleaning whose cleaner starts at this share of dirty pages, to the per cent.
    #[must_use]
    pub fn lazy_cleaning(share: f64) -> Compared {
        let dirty_percent_max = (share.clamp(0.0, 1.0) * 100.0).round() as u8;
        Compared::Other(Comparator::LazyCleaning { dirty_percent_max })
    }

    /// The policy, where one of Firn's is asked for: the default for a comparator, which has none.
    #[must_use]
    pub fn policy(self) -> CachePolicy {
        match self {
            Compared::Firn(policy) | Compared::Paper(policy) => policy,
            Compared::Other(_) => CachePolicy::default(),
        }
    }

    /// All kinds, for the options of a database that had any of them; that of a new cache comes
    /// last.
    pub fn kinds(self) -> impl Iterator<Item = Arc<dyn CacheKind>> {
        let others = Comparator::ALL.into_iter().map(|kind| Arc::new(kind) as _);
        others.chain([Arc::new(PaperFace) as _, self.kind()])
    }

    /// The kind of cache.
    #[must_use]
    pub fn kind(self) -> Arc<dyn CacheKind> {
        match self {
            Compared::Firn(_) => Arc::new(Face),
            Compared::Paper(_) => Arc::new(PaperFace),
            Compared::Other(kind) => Arc::new(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for name in [
            "fifo",
            "gr",
            "gsc",
            "select",
            "keep",
            "fifo-paper",
            "gr-paper",
            "gsc-paper",
            "lc",
            "lc:0.3",
            "lc:1",
            "tac",
            "exadata",
        ] {
            assert_eq!(Compared::named(name).expect(name).name(), name);
        }
        assert_eq!(Compared::named("lc:0.50"), Some(Compared::Other(Comparator::LC)));
        for name in ["arc", "keep-paper", "lc:", "lc:1.1", "lc:-1", "lc:nan", "-paper"] {
            assert_eq!(Compared::named(name), None, "{name}");
        }
    }
}
