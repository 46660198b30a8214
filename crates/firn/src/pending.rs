//! What the log has of pages and the tiers may not: collected during analysis, applied to a page when it is brought in.
//!
//! Invariants:
//! * Every change since the redo start that a page, as the tiers have it, may lack is here, or the page was given up to
//!   redo before the database answers. What is dropped is known from the log to be in the tiers, or to belong to an
//!   earlier life of the page, or to be overwritten whole.
//! * A page's changes are in the order of their LSNs, and are taken from here all together.
//! * They leave only after the frame has announced its recovery LSN (`ExclusiveGuard::redo` does), so a checkpoint
//!   that asks here first and the buffer then sees them in one of the two.
//! * No I/O, and no lock of another floor, under the lock here. It is taken with page latches held.

use crate::Error;
use crate::ranks;
use firn_base::codec::{Reader, Writer};
use firn_base::hash::FixedMap;
use firn_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use firn_base::sync::{Mutex, OnceLock};
use firn_base::{Lsn, PageId};
use firn_btree::{PageChange, Redone};
use firn_buffer::{BufferError, BufferErrorKind, BufferPool, ExclusiveGuard, PendingChanges};
use firn_log::{Kind, Record};
use firn_tier::store::PageEvent;
use firn_tier::{Cached, Found};
use std::collections::{BTreeMap, BTreeSet};

/// Memory that a page's entry takes beside its bytes, about.
const PAGE_OVERHEAD: usize = 128;
/// Pages redone by one background step.
const STEP_PAGES: usize = 64;

/// The changes of one page, as bytes: LSN u64, kind u8, length varint and body of each.
#[derive(Debug)]
struct PageChanges {
    first: Lsn,
    last: Lsn,
    bytes: Vec<u8>,
}

impl PageChanges {
    fn size(&self) -> usize {
        PAGE_OVERHEAD + self.bytes.len()
    }

    /// The first change in `reader`, which is taken from it.
    fn next<'a>(reader: &mut Reader<'a>) -> Option<(Lsn, Record<'a>)> {
        if reader.is_empty() {
            return None;
        }
        let mut read = || Ok::<_, firn_base::codec::Malformed>((reader.u64()?, reader.u8()?, reader.blob()?));
        let (lsn, kind, body) = read().expect("written by `Collector::change`");
        Some((Lsn(lsn), Record { kind: Kind(kind), body }))
    }

    /// Drops the changes up to and including `lsn`; whether any are left.
    fn forget_to(&mut self, lsn: Lsn) -> bool {
        if self.last <= lsn {
            return false;
        }
        let mut reader = Reader::new(&self.bytes);
        let mut kept = reader;
        while let Some((first, _)) = PageChanges::next(&mut reader) {
            if first > lsn {
                self.first = first;
                break;
            }
            kept = reader;
        }
        self.bytes.drain(..self.bytes.len() - kept.rest().len());
        true
    }
}

/// Collects what is pending, from the log in its order.
#[derive(Debug)]
pub(crate) struct Collector {
    budget: usize,
    bytes: usize,
    pages: FixedMap<PageId, PageChanges>,
    given_up: BTreeSet<PageId>,
}

impl Collector {
    /// Keeps about `budget` bytes at most.
    pub fn new(budget: usize) -> Collector {
        Collector { budget, bytes: 0, pages: FixedMap::default(), given_up: BTreeSet::new() }
    }

    /// The next change in the log.
    pub fn change(&mut self, lsn: Lsn, kind: Kind, change: &PageChange<'_>) {
        if change.frees() || change.overwrites() {
            self.forget(change.page);
        }
        if change.frees() || self.given_up.contains(&change.page) {
            return;
        }
        let mut fresh = false;
        let changes = self.pages.entry(change.page).or_insert_with(|| {
            fresh = true;
            PageChanges { first: lsn, last: lsn, bytes: Vec::new() }
        });
        let before = if fresh { 0 } else { changes.size() };
        assert!(fresh || changes.last < lsn, "the log is read in its order");
        changes.last = lsn;
        let mut body = Vec::new();
        change.encode_for_redo(&mut body);
        changes.bytes.put_u64(lsn.0);
        changes.bytes.put_u8(kind.0);
        changes.bytes.put_blob(&body);
        self.bytes += changes.size() - before;
        if self.bytes > self.budget {
            self.give_up_some();
        }
    }

    /// What a record of the page map says, shown to the page map and the cache before. `cached` answers what the
    /// cache knows of a page: while it holds one, only its image counts.
    pub fn event(&mut self, event: PageEvent, cached: &dyn Fn(PageId) -> Cached) {
        match event {
            PageEvent::Life(page) => self.forget(page),
            PageEvent::Stored { page, version } => match cached(page) {
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

    /// Gives up the pages with the most bytes, until half of the budget is free.
    fn give_up_some(&mut self) {
        let mut sizes: Vec<(usize, PageId)> =
            self.pages.iter().map(|(page, changes)| (changes.size(), *page)).collect();
        sizes.sort_unstable();
        while self.bytes > self.budget / 2
            && let Some((_, page)) = sizes.pop()
        {
            self.forget(page);
            self.given_up.insert(page);
        }
    }

    /// All log has been seen; the cache knows the versions of `known` pages. Answers what is pending, and
    /// the pages that are to be redone from the log before anything is read.
    pub fn finish(mut self, cached: &dyn Fn(PageId) -> Cached, known: u64) -> (Pending, BTreeSet<PageId>) {
        let mut pages: Vec<PageId> = self.pages.keys().copied().collect();
        pages.sort_unstable();
        let mut behind = 0;
        for page in pages {
            if let Cached::As(version) = cached(page) {
                self.is_below(page, version);
                behind += u64::from(self.pages.contains_key(&page));
            }
        }
        let by_lsn: BTreeMap<Lsn, PageId> =
            self.pages.iter().map(|(page, changes)| (changes.first, *page)).collect();
        assert_eq!(by_lsn.len(), self.pages.len(), "a record changes one page");
        let pending = Pending {
            at_opening: by_lsn.len() as u64,
            current: known.saturating_sub(behind),
            left: AtomicU64::new(by_lsn.len() as u64),
            waiting: ranks::REDO.mutex(Waiting { pages: self.pages, by_lsn, in_background: BTreeSet::new() }),
            counts: Counts::default(),
            poison: OnceLock::new(),
        };
        (pending, self.given_up)
    }
}

struct Waiting {
    pages: FixedMap<PageId, PageChanges>,
    /// By the first change of each; kept while its changes are being applied.
    by_lsn: BTreeMap<Lsn, PageId>,
    /// Pages that the background step asks for just now.
    in_background: BTreeSet<PageId>,
}

impl Waiting {
    /// A page is up to date, or nobody's.
    fn done(&mut self, page: PageId, first: Lsn) {
        self.pages.remove(&page);
        let was = self.by_lsn.remove(&first);
        assert_eq!(was, Some(page), "what is pending leaves once");
    }
}

/// How often what happened.
#[derive(Debug, Default)]
struct Counts {
    changes: AtomicU64,
    on_demand: AtomicU64,
    in_background: AtomicU64,
    obsolete: AtomicU64,
    from_cache: AtomicU64,
    from_store: AtomicU64,
}

/// What redo on demand has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoCounts {
    /// Pages that changed since the redo start and were found in the flash cache in their newest version; by its directory,
    /// without reading them.
    pub pages_current: u64,
    /// Pages with changes that the tiers might lack, when the database answered.
    pub pages_pending: u64,
    /// Of these, pages that are still to be redone.
    pub pages_left: u64,
    /// Pages that were redone because somebody asked for them.
    pub pages_on_demand: u64,
    /// Pages that were redone in the background.
    pub pages_in_background: u64,
    /// Pages that needed nothing: freed, or made anew, or found up to date.
    pub pages_obsolete: u64,
    /// Of the pages redone on demand and in the background, those read from the flash cache.
    pub pages_from_cache: u64,
    /// And those read from the store.
    pub pages_from_store: u64,
}

type PoisonFn = dyn Fn(&BufferError) + Send + Sync;

/// What is pending.
pub(crate) struct Pending {
    at_opening: u64,
    /// Pages that changed since the redo start and are in the cache in their newest version.
    current: u64,
    /// Pages waiting; changes under the lock.
    left: AtomicU64,
    waiting: Mutex<Waiting>,
    counts: Counts,
    poison: OnceLock<Box<PoisonFn>>,
}

impl Pending {
    /// Whether nothing is pending any more.
    pub fn is_empty(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    /// Pages waiting.
    pub fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// The log is needed from here on. To be asked before the buffer is.
    pub fn oldest(&self) -> Option<Lsn> {
        self.waiting.lock().by_lsn.first_key_value().map(|(lsn, _)| *lsn)
    }

    /// Called when a page cannot be redone: nothing may be built on what is missing.
    pub fn on_damage(&self, poison: impl Fn(&BufferError) + Send + Sync + 'static) {
        assert!(self.poison.set(Box::new(poison)).is_ok(), "set once, when the database is assembled");
    }

    /// Changes repeated so far.
    pub fn changes_redone(&self) -> u64 {
        self.counts.changes.load(Relaxed)
    }

    pub fn counts(&self) -> RedoCounts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        RedoCounts {
            pages_current: self.current,
            pages_pending: self.at_opening,
            pages_left: self.left(),
            pages_on_demand: read(&self.counts.on_demand),
            pages_in_background: read(&self.counts.in_background),
            pages_obsolete: read(&self.counts.obsolete),
            pages_from_cache: read(&self.counts.from_cache),
            pages_from_store: read(&self.counts.from_store),
        }
    }

    /// Has the pages with the oldest changes redone, a few of them.
    ///
    /// Errors: those of the pages; what could not be redone stays pending.
    pub fn step(&self, pool: &BufferPool) -> Result<(), Error> {
        let pages: Vec<PageId> = {
            let mut waiting = self.waiting.lock();
            let pages: Vec<PageId> = waiting.by_lsn.values().take(STEP_PAGES).copied().collect();
            waiting.in_background.extend(&pages);
            pages
        };
        pool.prefetch(&pages);
        let outcome = pages.iter().try_for_each(|page| self.bring_in(*page, pool));
        let mut waiting = self.waiting.lock();
        for page in &pages {
            waiting.in_background.remove(page);
        }
        outcome
    }

    fn bring_in(&self, page: PageId, pool: &BufferPool) -> Result<(), Error> {
        if !self.waiting.lock().pages.contains_key(&page) {
            return Ok(());
        }
        match pool.shared(page) {
            // In a frame it is up to date: see `arrive` in the buffer. If it still waits, a transaction made it anew.
            Ok(_) => {}
            Err(error) if error.kind == BufferErrorKind::NotAllocated => {}
            // There is nothing to repeat its changes on, and whoever reads the page is told.
            Err(_) if pool.tier().page_is_lost(page) => {}
            Err(error) => return Err(Error::from(error)),
        }
        let mut waiting = self.waiting.lock();
        if let Some(first) = waiting.pages.get(&page).map(|changes| changes.first) {
            self.ended(&mut waiting, page, first);
            self.counts.obsolete.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn ended(&self, waiting: &mut Waiting, page: PageId, first: Lsn) {
        waiting.done(page, first);
        self.left.store(waiting.by_lsn.len() as u64, Relaxed);
    }

    fn apply(&self, bytes: &[u8], page: &mut ExclusiveGuard<'_>) -> Result<u64, BufferError> {
        let mut applied = 0;
        let mut reader = Reader::new(bytes);
        while let Some((lsn, record)) = PageChanges::next(&mut reader) {
            match firn_btree::redo_latched(page, lsn, record) {
                Ok(redone) => applied += u64::from(redone == Redone::Applied),
                Err(error) => return Err(BufferError::new(BufferErrorKind::Damaged, error.message)),
            }
        }
        Ok(applied)
    }
}

impl PendingChanges for Pending {
    fn redo(&self, page: &mut ExclusiveGuard<'_>, found: Found) -> Result<(), BufferError> {
        if self.is_empty() {
            return Ok(());
        }
        let id = page.page();
        // The entry stays until the frame has announced its recovery LSN. Nobody else brings the page in meanwhile.
        let (first, last, bytes) = match self.waiting.lock().pages.get_mut(&id) {
            Some(changes) => (changes.first, changes.last, std::mem::take(&mut changes.bytes)),
            None => return Ok(()),
        };
        let applied = if last <= found.version { Ok(0) } else { self.apply(&bytes, page) };
        let mut waiting = self.waiting.lock();
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => {
                waiting.pages.get_mut(&id).expect("it waits until it is redone").bytes = bytes;
                drop(waiting);
                if let Some(poison) = self.poison.get() {
                    poison(&error);
                }
                return Err(error);
            }
        };
        self.ended(&mut waiting, id, first);
        let add = |count: &AtomicU64, by: u64| {
            count.fetch_add(by, Relaxed);
        };
        add(&self.counts.changes, applied);
        if applied == 0 {
            add(&self.counts.obsolete, 1);
            return Ok(());
        }
        let in_background = waiting.in_background.contains(&id);
        add(if in_background { &self.counts.in_background } else { &self.counts.on_demand }, 1);
        add(if found.cached { &self.counts.from_cache } else { &self.counts.from_store }, 1);
        Ok(())
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("left", &self.left()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOVE: u8 = 0x23;
    const DROP: u8 = 0x2b;

    /// Shows a change of `page` at `lsn`, with an attachment of some bytes.
    fn change(collector: &mut Collector, lsn: u64, kind: u8, page: u8, attachment: u8) {
        let mut body = vec![page, 1, attachment];
        body.resize(body.len() + usize::from(attachment), 0xaa);
        if kind == REMOVE {
            body.push(7);
        }
        let decoded = PageChange::decode(Record { kind: Kind(kind), body: &body }).expect("well-formed");
        collector.change(Lsn(lsn), Kind(kind), &decoded);
    }

    fn lsns(pending: &Pending, page: u64) -> Vec<u64> {
        let waiting = pending.waiting.lock();
        let Some(changes) = waiting.pages.get(&PageId(page)) else { return Vec::new() };
        let mut reader = Reader::new(&changes.bytes);
        std::iter::from_fn(|| PageChanges::next(&mut reader)).map(|(lsn, _)| lsn.0).collect()
    }

    #[test]
    fn what_the_tiers_have_by_the_log_is_dropped() {
        let mut collector = Collector::new(1 << 20);
        for lsn in 100..110 {
            (1..=5).for_each(|page| change(&mut collector, lsn * 10 + u64::from(page), REMOVE, page, 3));
        }
        let store = |_| Cached::No;
        collector.event(PageEvent::Stored { page: PageId(1), version: Lsn(1051) }, &store);
        collector.event(PageEvent::Stored { page: PageId(2), version: Lsn(1092) }, &store);
        collector.event(PageEvent::Life(PageId(3)), &store);
        change(&mut collector, 1100, DROP, 4, 0);
        collector.event(PageEvent::Stored { page: PageId(77), version: Lsn(5) }, &store);
        let known = |page| if page == PageId(5) { Cached::As(Lsn(1085)) } else { Cached::No };
        let (pending, given_up) = collector.finish(&known, 1);
        assert_eq!(lsns(&pending, 1), [1061, 1071, 1081, 1091]);
        assert_eq!(lsns(&pending, 2), [], "its last change is stored");
        assert_eq!(lsns(&pending, 3), [], "another life of it");
        assert_eq!(lsns(&pending, 4), [], "freed");
        assert_eq!(lsns(&pending, 5), [1095]);
        assert_eq!((pending.left(), pending.oldest()), (2, Some(Lsn(1061))));
        assert!(given_up.is_empty());
    }

    /// The store took a version from past a cache that was leaving; a crash has brought the older image back.
    #[test]
    fn what_the_store_has_counts_for_nothing_while_the_cache_has_the_page() {
        let mut collector = Collector::new(1 << 20);
        for lsn in 100..110 {
            (1..=3).for_each(|page| change(&mut collector, lsn * 10 + u64::from(page), REMOVE, page, 0));
        }
        let cached = |page: PageId| match page.0 {
            1 => Cached::Somehow,
            2 => Cached::As(Lsn(1032)),
            _ => Cached::No,
        };
        (1..=3).for_each(|page| {
            collector.event(PageEvent::Stored { page: PageId(page), version: Lsn(1095) }, &cached)
        });
        let (pending, _) = collector.finish(&cached, 1);
        assert_eq!(lsns(&pending, 1).len(), 10);
        assert_eq!(lsns(&pending, 2), [1042, 1052, 1062, 1072, 1082, 1092]);
        assert_eq!(lsns(&pending, 3), []);
    }

    #[test]
    fn changes_are_kept_without_what_undo_needs() {
        let mut collector = Collector::new(1 << 20);
        change(&mut collector, 10, REMOVE, 9, 100);
        assert_eq!(collector.bytes, PAGE_OVERHEAD + 8 + 1 + 1 + 4);
        collector.event(PageEvent::Life(PageId(9)), &|_| Cached::No);
        assert_eq!(collector.bytes, 0);
    }

    #[test]
    fn over_the_budget_the_pages_with_the_most_changes_are_given_up() {
        let mut collector = Collector::new(3000);
        let mut lsn = 0;
        let mut next = || {
            lsn += 1;
            lsn
        };
        for _ in 0..60 {
            change(&mut collector, next(), REMOVE, 1, 0);
            change(&mut collector, next(), REMOVE, 2, 0);
        }
        (3..=10).for_each(|page| change(&mut collector, next(), REMOVE, page, 0));
        assert!(collector.bytes <= 3000);
        assert!(!collector.given_up.is_empty());
        change(&mut collector, next(), REMOVE, 1, 0);
        change(&mut collector, next(), REMOVE, 2, 0);
        let (pending, given_up) = collector.finish(&|_| Cached::No, 0);
        assert!(given_up.iter().all(|page| page.0 <= 2), "{given_up:?}");
        (3..=10).for_each(|page| assert_eq!(lsns(&pending, page).len(), 1));
        for page in given_up {
            assert_eq!(lsns(&pending, page.0), [], "given up is given up");
        }
    }
}
