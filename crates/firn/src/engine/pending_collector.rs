//! Analysis hands every page change to the collector here; what the tiers may lack becomes
//! [`Pending`].

use crate::engine::page_changes::PageChanges;
use crate::engine::pending::Pending;
use firndb_base::hash::FixedMap;
use firndb_base::{Lsn, PageId};
use firndb_btree::PageChange;
use firndb_log::Kind;
use firndb_tier::Cached;
use firndb_tier::store::PageEvent;
use std::collections::BTreeSet;

/// Collects pending changes from the log, in its order.
#[derive(Debug)]
pub(crate) struct Collector {
    budget: usize,
    pub bytes: usize,
    pages: FixedMap<PageId, PageChanges>,
    pub given_up: BTreeSet<PageId>,
}

impl Collector {
    /// With a budget of about `budget` bytes.
    pub fn new(budget: usize) -> Collector {
        Collector { budget, bytes: 0, pages: FixedMap::default(), given_up: BTreeSet::new() }
    }

    /// Adds the next change in the log. `cached` as for [`Collector::event`].
    pub fn change(
        &mut self,
        lsn: Lsn,
        kind: Kind,
        change: &PageChange<'_>,
        cached: &dyn Fn(PageId) -> Cached,
    ) {
        if change.frees() || change.overwrites() {
            self.forget(change.page);
        }
        if change.frees() || self.given_up.contains(&change.page) {
            return;
        }
        let mut fresh = false;
        let changes = self.pages.entry(change.page).or_insert_with(|| {
            fresh = true;
            PageChanges::new(lsn)
        });
        let before = if fresh { 0 } else { changes.size() };
        assert!(fresh || changes.last < lsn, "the log is read in its order");
        changes.push(lsn, kind, change);
        self.bytes += changes.size() - before;
        if self.bytes > self.budget {
            self.give_up_some(cached);
        }
    }

    /// Takes an event of the page map, which the page map and the cache have taken before. `cached`
    /// returns what the cache holds of a page: while it holds one, only its image counts.
    pub fn event(&mut self, event: PageEvent, cached: &dyn Fn(PageId) -> Cached) {
        match event {
            PageEvent::Incarnation(page) | PageEvent::Freed(page) => self.forget(page),
            PageEvent::Stored { page, version } | PageEvent::Shadowed { page, version } => match cached(page)
            {
                Cached::No => self.is_below(page, version),
                Cached::As(version) => self.is_below(page, version),
                Cached::Somehow => {}
            },
        }
    }

    /// The tiers have the page in this version.
    fn is_below(&mut self, page: PageId, version: Lsn) {
        let Some(changes) = self.pages.get_mut(&page) else { return };
        let before = changes.size();
        if changes.forget_to(version) {
            self.bytes -= before - changes.size();
        } else {
            self.forget(page);
        }
    }

    fn forget(&mut self, page: PageId) {
        if let Some(changes) = self.pages.remove(&page) {
            self.bytes -= changes.size();
        }
    }

    /// Drops the changes that the cache has. Returns of how many pages it has a known version, and
    /// lacks changes.
    ///
    /// Also before the log's end: an image leaves the directory only by a record that makes the
    /// changes in it needless as well, since the page was freed, or since the store has as much.
    fn drop_cached(&mut self, cached: &dyn Fn(PageId) -> Cached) -> u64 {
        let mut pages: Vec<PageId> = self.pages.keys().copied().collect();
        pages.sort_unstable();
        let mut behind = 0;
        for page in pages {
            if let Cached::As(version) = cached(page) {
                self.is_below(page, version);
                behind += u64::from(self.pages.contains_key(&page));
            }
        }
        behind
    }

    /// Drops what the cache has. If that is not enough for a while, gives up the pages with the
    /// most bytes, until half of the budget is free.
    fn give_up_some(&mut self, cached: &dyn Fn(PageId) -> Cached) {
        self.drop_cached(cached);
        if self.bytes <= self.budget / 4 * 3 {
            return;
        }
        let mut sizes: Vec<(usize, PageId)> =
            self.pages.iter().map(|(page, changes)| (changes.size(), *page)).collect();
        sizes.sort_unstable();
        while self.bytes > self.budget / 2
            && let Some((_, page)) = sizes.pop()
        {
            self.forget(page);
            self.given_up.insert(page);
        }
        self.check_in_debug();
    }

    /// In debug builds, asserts that bytes are counted, and that no page is given up and kept.
    fn check_in_debug(&self) {
        debug_assert_eq!(self.bytes, self.pages.values().map(PageChanges::size).sum::<usize>());
        debug_assert!(self.given_up.iter().all(|page| !self.pages.contains_key(page)));
    }

    /// Ends the collection after the last record; the cache knows the versions of `known` pages.
    /// Returns the pending changes, and the pages that are to be redone from the log before
    /// anything is read.
    pub fn finish(mut self, cached: &dyn Fn(PageId) -> Cached, known: u64) -> (Pending, BTreeSet<PageId>) {
        self.check_in_debug();
        let behind = self.drop_cached(cached);
        (Pending::new(self.pages, known.saturating_sub(behind)), self.given_up)
    }
}
