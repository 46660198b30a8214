//! Versions of cached pages that are known without reading the pages. During recovery redo needs
//! them for each record.

use firndb_base::{Lsn, PageId};
use std::collections::BTreeMap;

/// Versions of the pages that changed since the redo start; other cached pages are known to be
/// older. At most as many entries as pages that the log since then names.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// `None`: nothing is known, and seals are read.
    redo_start: Option<Lsn>,
    recent: BTreeMap<PageId, Lsn>,
}

impl Versions {
    /// No versions known.
    pub(crate) fn unknown() -> Versions {
        Versions::default()
    }
    /// Every cached page's version is noted, or older than `redo_start`.
    pub(crate) fn since(redo_start: Lsn) -> Versions {
        Versions { redo_start: Some(redo_start), recent: BTreeMap::new() }
    }
    /// Notes the version that a cached page has now.
    pub(crate) fn note(&mut self, page: PageId, version: Lsn) {
        match self.redo_start {
            Some(redo_start) if version >= redo_start => drop(self.recent.insert(page, version)),
            _ => drop(self.recent.remove(&page)),
        }
    }
    /// Number of pages noted.
    pub(crate) fn len(&self) -> usize {
        self.recent.len()
    }
    /// The version of a cached page, if it was noted.
    pub(crate) fn of(&self, page: PageId) -> Option<Lsn> {
        self.recent.get(&page).copied()
    }
    /// Whether a cached page is older than `lsn`. `None` if only its seal would tell.
    pub(crate) fn is_older_than(&self, page: PageId, lsn: Lsn) -> Option<bool> {
        match (self.recent.get(&page), self.redo_start) {
            (Some(version), _) => Some(*version < lsn),
            (None, Some(redo_start)) if lsn >= redo_start => Some(true),
            _ => None,
        }
    }
    /// Adds the versions that another part noted. Where both noted a page, `other` has seen later
    /// groups.
    pub(crate) fn extend(&mut self, other: Versions) {
        self.recent.extend(other.recent);
    }
}
