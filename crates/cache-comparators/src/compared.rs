//! What a comparison chooses from: Firn's policies and the comparators.

use crate::comparator::Comparator;
use firndb_base::sync::Arc;
use firndb_tier::CacheKind;
use firndb_tier::cache::Face;
use firndb_tier::page_cache::policy::CachePolicy;

/// A flash cache in a comparison: Firn's with a policy, or a comparator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Firn's own, with this policy.
    Firn(CachePolicy),
    /// Another paper's.
    Other(Comparator),
}

impl Compared {
    /// All of them.
    pub const ALL: [Compared; 8] = [
        Compared::Firn(CachePolicy::GroupSecondChance),
        Compared::Firn(CachePolicy::Keeping),
        Compared::Firn(CachePolicy::Selective),
        Compared::Firn(CachePolicy::GroupReplacement),
        Compared::Firn(CachePolicy::Fifo),
        Compared::Other(Comparator::LazyCleaning),
        Compared::Other(Comparator::Temperature),
        Compared::Other(Comparator::ReadLru),
    ];

    /// The name in arguments and reports: the policy's or the kind's.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compared::Firn(policy) => policy.name(),
            Compared::Other(kind) => kind.name(),
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Compared> {
        Compared::ALL.into_iter().find(|compared| compared.name() == name)
    }

    /// The policy, where one of Firn's is asked for: the default for a comparator, which has none.
    #[must_use]
    pub fn policy(self) -> CachePolicy {
        match self {
            Compared::Firn(policy) => policy,
            Compared::Other(_) => CachePolicy::default(),
        }
    }

    /// All kinds, for the options of a database that had any of them; that of a new cache comes
    /// last.
    pub fn kinds(self) -> impl Iterator<Item = Arc<dyn CacheKind>> {
        Comparator::ALL.into_iter().map(|kind| Arc::new(kind) as _).chain([self.kind()])
    }

    /// The kind of cache.
    #[must_use]
    pub fn kind(self) -> Arc<dyn CacheKind> {
        match self {
            Compared::Firn(_) => Arc::new(Face),
            Compared::Other(kind) => Arc::new(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for name in ["fifo", "gr", "gsc", "select", "keep", "lc", "tac", "exadata"] {
            assert_eq!(Compared::named(name).unwrap().name(), name);
        }
        assert_eq!(Compared::named("arc"), None);
    }
}
