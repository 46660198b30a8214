//! Versions of cached pages that are known without reading them. While recovering, redo asks for each record.

use firn_base::{Lsn, PageId};
use std::collections::BTreeMap;

/// Versions of the pages that changed since the redo start; of other cached pages it is known that they are
/// older. As many as the log since then can name.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// None: nothing is known, and seals are read.
    redo_start: Option<Lsn>,
    recent: BTreeMap<PageId, Lsn>,
}

impl Versions {
    /// Nothing is known.
    pub(crate) fn unknown() -> Versions {
        Versions::default()
    }
    /// Every cached page's version is noted, or older than `redo_start`.
    pub(crate) fn since(redo_start: Lsn) -> Versions {
        Versions { redo_start: Some(redo_start), recent: BTreeMap::new() }
    }
    /// A cached page has this version now.
    pub(crate) fn note(&mut self, page: PageId, version: Lsn) {
        match self.redo_start {
            Some(redo_start) if version >= redo_start => drop(self.recent.insert(page, version)),
            _ => drop(self.recent.remove(&page)),
        }
    }
    /// Pages noted.
    pub(crate) fn len(&self) -> usize {
        self.recent.len()
    }
    /// The version of a cached page, if it was noted.
    pub(crate) fn of(&self, page: PageId) -> Option<Lsn> {
        self.recent.get(&page).copied()
    }
    /// Whether a cached page is older than `lsn`. `None` if that takes a look at its seal.
    pub(crate) fn is_older_than(&self, page: PageId, lsn: Lsn) -> Option<bool> {
        match (self.recent.get(&page), self.redo_start) {
            (Some(version), _) => Some(*version < lsn),
            (None, Some(redo_start)) if lsn >= redo_start => Some(true),
            _ => None,
        }
    }
    /// All that others noted, who saw later groups if they saw the same page.
    pub(crate) fn extend(&mut self, other: Versions) {
        self.recent.extend(other.recent);
    }
}
