//! What enters a flash cache of Firn's own kind, and what stays.

/// A flash cache's policy of admission and replacement (FaCE, table 2 and section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// Multi-version FIFO; each page is written, and read when it is replaced, by a request of its
    /// own. Those of a group are in flight together, as those of the paper's processes are.
    Fifo,
    /// Multi-version FIFO, a group of pages at a time (GR).
    GroupReplacement,
    /// As `GroupReplacement`; pages that were read while in the cache stay for another round (GSC).
    GroupSecondChance,
    /// As `GroupSecondChance`; a clean page is admitted only if it left DRAM before, not long ago.
    /// Beyond the paper.
    Selective,
    /// As `Selective`; of each group valid images stay, too, up to the number that had become
    /// invalid, dirty ones first; none while the cache's drive is the bottleneck, if both drives'
    /// profiles are known. Beyond the paper.
    #[default]
    Keeping,
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
        ]
        .into_iter()
        .find(|policy| policy.name() == name)
    }
    /// Whether a clean page is admitted only if it left DRAM, or the cache, before, not long ago.
    pub(crate) fn selects(self) -> bool {
        matches!(self, CachePolicy::Selective | CachePolicy::Keeping)
    }
    /// Whether each page of a group is a request of its own.
    pub(crate) fn is_page_by_page(self) -> bool {
        self == CachePolicy::Fifo
    }
    /// Whether nothing stays while the cache's drive is shorter of time than the store's.
    pub(crate) fn weighs(self) -> bool {
        self == CachePolicy::Keeping
    }
    /// Whether a page that enters while an older version is valid counts as referenced: it was used
    /// again.
    pub(crate) fn inherits(self) -> bool {
        self == CachePolicy::Keeping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_their_names() {
        for name in ["fifo", "gr", "gsc", "select", "keep"] {
            assert_eq!(CachePolicy::named(name).unwrap().name(), name);
        }
        assert_eq!(CachePolicy::named("lc"), None);
    }
}
