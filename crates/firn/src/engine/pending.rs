//! Page changes that the log has and the tiers may lack: collected during analysis, applied to a
//! page when it is read.
//!
//! Invariants:
//! * Every change since the redo start that a page, as the tiers have it, may lack is here, or the
//!   page was handed to redo before transactions run. A dropped change is known from the log to be
//!   in the tiers, or to belong to an earlier incarnation of the page, or to be overwritten whole.
//! * A page's changes are in the order of their LSNs, and are taken from here all together.
//! * They leave only after the frame has announced its recovery LSN (`ExclusiveGuard::redo` does),
//!   so a checkpoint that asks here first and the buffer then sees them in one of the two; or after
//!   the record that frees the page has been appended, so that the checkpoint's record, which comes
//!   later, makes that durable before log is truncated.
//! * Pending pages and pages set aside are known from one place, under the lock here: whether
//!   recovery is complete, and whether the database may be marked as closed cleanly, follows from
//!   the state at one moment.
//! * No I/O, and no lock of another layer, under that lock. It is taken with page latches held.
//!
//! A page that is damaged, or cannot be read, is *set aside*: background redo passes it over, and
//! recovery is complete without it. Its changes stay here, so
//! * a reader of the page gets the damage as an error, or the page redone if it can be read by
//!   then. That holds also where the stored image can be read and is too old (a lost write): no
//!   reader gets that image;
//! * the log is retained from its first change on, and the next opening tries again: a file that
//!   was restored in place is redone.
//!
//! Pages whose changes exceed their memory budget are redone before transactions run. If such a
//! page could not be read then, its changes are *in the log only*: the next access that can read
//! the stored image fetches them from there ([`Pending::fetch`]), and the page is redone as any
//! other. So a read error that passes damages no page.
//!
//! A page that is freed meanwhile is pending no more, whether or not it was set aside: a table with
//! damaged pages can be dropped, after which the database can be backed up and closed cleanly.
//!
//! Log is not retained for such a page for ever. When the log is nearly full, or is about to wrap
//! around, the page that retains it is *given up* ([`Pending::give_up`]): a mark takes the place of
//! the page, as its newest version, and is written as any dirty page. So the page is never taken
//! for the older version that is stored, should that be readable once more. After a crash before
//! the mark is written, the log has the last of its changes at least, and no image to repeat it on.
//!
//! A page whose first change here writes it whole needs no stored image, and is redone from the log
//! alone.

use crate::engine::page_changes::PageChanges;
use crate::engine::pending_log::PendingLog;
use crate::engine::recovery_report::RedoCounts;
use crate::error::Error;
use crate::ranks;
use firndb_base::codec::Reader;
use firndb_base::hash::FixedMap;
use firndb_base::sync::atomic::AtomicU64;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::sync::{Mutex, OnceLock};
use firndb_base::{Lsn, PageId};
use firndb_btree::{PageChange, Redone};
use firndb_buffer::{BufferError, BufferErrorKind, BufferPool, ExclusiveGuard, PendingChanges, Repeated};
use firndb_log::{LogError, LogErrorKind};
use firndb_tier::store::Store;
use firndb_tier::{Found, PageTier};
use std::collections::{BTreeMap, BTreeSet};

/// Pages redone by one background step.
const STEP_PAGES: usize = 64;
/// Bytes of changes of other pages, which will be read next, that one pass over the log fetches at
/// most beside those of the page that it is made for.
const FETCH_ALONG_BYTES: usize = 4 << 20;
/// Reads of an unreadable page before it is set aside.
pub(crate) const READS: u32 = 3;

struct Waiting {
    pages: FixedMap<PageId, PageChanges>,
    /// By the first change of each; an entry stays while its changes are being applied.
    by_lsn: BTreeSet<(Lsn, PageId)>,
    /// Pages that the background step reads at present.
    in_background: BTreeSet<PageId>,
    /// Pages that background redo passes over, and why. All of them are among `pages`.
    set_aside: BTreeMap<PageId, BufferError>,
    /// The log is being read from this LSN on.
    read_from: Option<Lsn>,
}

impl Waiting {
    /// A page is up to date, or is not allocated any more.
    fn done(&mut self, page: PageId, first: Lsn) {
        self.pages.remove(&page);
        self.set_aside.remove(&page);
        assert!(self.by_lsn.remove(&(first, page)), "what is pending leaves once");
    }
}

/// Counters, as in [`RedoCounts`].
#[derive(Debug, Default)]
struct Counts {
    changes: AtomicU64,
    on_demand: AtomicU64,
    in_background: AtomicU64,
    obsolete: AtomicU64,
    from_cache: AtomicU64,
    from_store: AtomicU64,
}

/// A page that could not be redone, and why.
pub(crate) type Failed = (PageId, BufferError);

/// A page that could not be redone before transactions ran, the last of its changes, and why.
pub(crate) struct Unredone {
    pub page: PageId,
    pub last: Lsn,
    pub error: BufferError,
}

/// What is pending.
pub(crate) struct Pending {
    at_opening: u64,
    /// Pages that changed since the redo start and are in the cache in their newest version.
    current: u64,
    log: OnceLock<PendingLog>,
    /// Held by the thread that reads changes from the log.
    fetching: Mutex<()>,
    waiting: Mutex<Waiting>,
    counts: Counts,
}

impl Pending {
    /// For the changes of `pages`; the cache has the newest version of `current` other changed
    /// pages.
    pub fn new(pages: FixedMap<PageId, PageChanges>, current: u64) -> Pending {
        let by_lsn: BTreeSet<(Lsn, PageId)> =
            pages.iter().map(|(page, changes)| (changes.first, *page)).collect();
        Pending {
            at_opening: by_lsn.len() as u64,
            current,
            log: OnceLock::new(),
            fetching: ranks::FETCH.mutex(()),
            waiting: ranks::REDO.mutex(Waiting {
                pages,
                by_lsn,
                in_background: BTreeSet::new(),
                set_aside: BTreeMap::new(),
                read_from: None,
            }),
            counts: Counts::default(),
        }
    }

    /// Hands in the open log, before transactions run.
    pub fn read_from(&self, log: PendingLog) {
        assert!(self.log.set(log).is_ok(), "the log is opened once");
    }

    /// Whether nothing is pending any more.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().by_lsn.is_empty()
    }

    /// Pages that are pending.
    pub fn left(&self) -> u64 {
        self.waiting.lock().by_lsn.len() as u64
    }

    /// The log is needed from this LSN on. To be called before the buffer's function of this kind.
    pub fn oldest(&self) -> Option<Lsn> {
        let waiting = self.waiting.lock();
        waiting.by_lsn.first().map(|(lsn, _)| *lsn).into_iter().chain(waiting.read_from).min()
    }

    /// Whether background redo has nothing to do: all pending pages are set aside.
    pub fn is_at_rest(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.by_lsn.len() == waiting.set_aside.len()
    }

    /// The first page that is pending, and the reason: usually, why it is set aside.
    pub fn first_left(&self) -> Option<Failed> {
        let waiting = self.waiting.lock();
        if let Some((page, error)) = waiting.set_aside.first_key_value() {
            return Some((*page, error.clone()));
        }
        let (_, page) = waiting.by_lsn.first()?;
        Some((*page, BufferError::new(BufferErrorKind::Unreadable, "it has not been redone yet")))
    }

    /// The pages that are set aside, and why.
    pub fn set_aside(&self) -> Vec<Failed> {
        let waiting = self.waiting.lock();
        waiting.set_aside.iter().map(|(page, error)| (*page, error.clone())).collect()
    }

    /// Takes over pages whose redo before the opening's end failed; they need log from `first` on.
    /// Called before transactions run.
    pub fn add_failed(&self, first: Lsn, failed: Vec<Unredone>) {
        let mut waiting = self.waiting.lock();
        for Unredone { page, last, error } in failed {
            let changes = PageChanges::in_log(first, last);
            assert!(waiting.pages.insert(page, changes).is_none(), "what was given up is not pending");
            waiting.by_lsn.insert((first, page));
            waiting.set_aside.insert(page, error);
        }
    }

    /// Changes repeated so far.
    pub fn changes_redone(&self) -> u64 {
        self.counts.changes.load(Relaxed)
    }

    pub fn counts(&self) -> RedoCounts {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (pages_left, pages_set_aside) = {
            let waiting = self.waiting.lock();
            (waiting.by_lsn.len() as u64, waiting.set_aside.len() as u64)
        };
        RedoCounts {
            pages_current: self.current,
            pages_pending: self.at_opening,
            pages_left,
            pages_set_aside,
            pages_on_demand: read(&self.counts.on_demand),
            pages_in_background: read(&self.counts.in_background),
            pages_obsolete: read(&self.counts.obsolete),
            pages_from_cache: read(&self.counts.from_cache),
            pages_from_store: read(&self.counts.from_store),
        }
    }

    /// Redoes some pages, those with the oldest changes first. Returns those that it has set aside,
    /// which the caller must report whatever else happened.
    ///
    /// Errors: those that are not a page's own (no frame); pages that were not redone stay pending.
    pub fn step(&self, pool: &BufferPool) -> (Vec<Failed>, Result<(), Error>) {
        let pages: Vec<PageId> = {
            let mut waiting = self.waiting.lock();
            let Waiting { by_lsn, set_aside, in_background, .. } = &mut *waiting;
            let next = by_lsn.iter().map(|(_, page)| *page).filter(|page| !set_aside.contains_key(page));
            let pages: Vec<PageId> = next.take(STEP_PAGES).collect();
            in_background.extend(&pages);
            pages
        };
        pool.prefetch(&pages);
        let mut failed = Vec::new();
        let outcome = pages.iter().try_for_each(|page| {
            failed.extend(self.bring_in(*page, pool)?.map(|error| (*page, error)));
            Ok(())
        });
        let mut waiting = self.waiting.lock();
        for page in &pages {
            waiting.in_background.remove(page);
        }
        // Another thread may have read it meanwhile.
        failed.retain(|(page, _)| waiting.pages.contains_key(page));
        waiting.set_aside.extend(failed.iter().cloned());
        (failed, outcome)
    }

    /// Brings a page up to date by reading it; returns why not, if the page is the cause.
    fn bring_in(&self, page: PageId, pool: &BufferPool) -> Result<Option<BufferError>, Error> {
        if !self.waiting.lock().pages.contains_key(&page) {
            return Ok(None);
        }
        let mut outcome = pool.shared(page).map(drop);
        for _ in 1..READS {
            match &outcome {
                // A device may be away for a moment, and a single read may fail.
                Err(error) if error.concerns_the_page() => outcome = pool.shared(page).map(drop),
                _ => break,
            }
        }
        match outcome {
            // In a frame it is up to date: see `arrive` in the buffer. If it is still pending, a
            // transaction allocated it anew.
            Ok(()) => {}
            Err(error) if error.kind == BufferErrorKind::NotAllocated => {}
            // There is no image to repeat its changes on, and its readers get an error, in every
            // later incarnation.
            Err(_) if pool.tier().page_is_lost(page) => {}
            Err(error) if error.concerns_the_page() => return Ok(Some(error)),
            Err(error) => return Err(Error::from(error)),
        }
        self.is_obsolete(page);
        Ok(None)
    }

    /// The page's changes are not needed any more.
    fn is_obsolete(&self, page: PageId) {
        let mut waiting = self.waiting.lock();
        if let Some(first) = waiting.pages.get(&page).map(|changes| changes.first) {
            waiting.done(page, first);
            self.counts.obsolete.fetch_add(1, Relaxed);
        }
    }

    /// Gives up the pages that are set aside and retain the log from before `lsn`, after one more
    /// try to redo each. Returns those given up, which the caller must report whatever else
    /// happened: from now on they are marks.
    pub fn give_up(&self, pool: &BufferPool, store: &Store, lsn: Lsn) -> (Vec<Failed>, Result<(), Error>) {
        let held: Vec<(PageId, Lsn)> = {
            let waiting = self.waiting.lock();
            let held = waiting.set_aside.keys().map(|page| (*page, &waiting.pages[page]));
            held.filter(|(_, changes)| changes.first < lsn)
                .map(|(page, changes)| (page, changes.last))
                .collect()
        };
        let mut given_up = Vec::new();
        let outcome = held.into_iter().try_for_each(|(page, last)| {
            let Some(error) = self.bring_in(page, pool)? else { return Ok(()) };
            // No mark could be written for a page whose entry in the map is not known.
            if store.version_of(page).is_err() {
                return Ok(());
            }
            // A page that only could not be read, and can be read by now, is redone by its next
            // reader, or by the next opening.
            let keep_readable = error.kind == BufferErrorKind::Unreadable;
            if pool.replace_unreadable(page, last, keep_readable, firndb_btree::give_up_page)? {
                self.is_obsolete(page);
                given_up.push((page, error));
            }
            Ok(())
        });
        (given_up, outcome)
    }

    /// Repeats changes, the last of which is that at `last`; returns how many the page lacked.
    fn apply(&self, bytes: &[u8], last: Lsn, page: &mut ExclusiveGuard<'_>) -> Result<u64, BufferError> {
        let mut applied = 0;
        let mut reader = Reader::new(bytes);
        while let Some((lsn, record)) = PageChanges::next(&mut reader) {
            match firndb_btree::redo_latched(page, lsn, record) {
                Ok(redone) => applied += u64::from(redone == Redone::Applied),
                Err(error) => return Err(BufferError::new(BufferErrorKind::Damaged, error.message)),
            }
        }
        if page.version() < last {
            let message = format!(
                "{:?} is at {:?} after redo, and was changed at {last:?}: the log between them is missing",
                page.page(),
                page.version()
            );
            return Err(BufferError::new(BufferErrorKind::Damaged, message));
        }
        Ok(applied)
    }
}

impl PendingChanges for Pending {
    fn redo(&self, page: &mut ExclusiveGuard<'_>, found: Found) -> Result<Repeated, BufferError> {
        let id = page.page();
        // The entry stays until the frame has announced its recovery LSN. No other thread reads the
        // page meanwhile.
        let (first, last, bytes) = match self.waiting.lock().pages.get_mut(&id) {
            Some(changes) if changes.in_log && changes.last > found.version => {
                return Ok(Repeated::NotInMemory);
            }
            Some(changes) => (changes.first, changes.last, std::mem::take(&mut changes.bytes)),
            None => return Ok(Repeated::All),
        };
        let applied = if last <= found.version { Ok(0) } else { self.apply(&bytes, last, page) };
        let mut waiting = self.waiting.lock();
        let Some(changes) = waiting.pages.get_mut(&id) else {
            // It was freed meanwhile: the frame belongs to no page any more, and the tier will say
            // so.
            return applied.map(|_| Repeated::All);
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => {
                changes.bytes = bytes;
                return Err(error);
            }
        };
        waiting.done(id, first);
        let add = |count: &AtomicU64, by: u64| {
            count.fetch_add(by, Relaxed);
        };
        add(&self.counts.changes, applied);
        if applied == 0 {
            add(&self.counts.obsolete, 1);
            return Ok(Repeated::All);
        }
        let in_background = waiting.in_background.contains(&id);
        add(if in_background { &self.counts.in_background } else { &self.counts.on_demand }, 1);
        add(if found.cached { &self.counts.from_cache } else { &self.counts.from_store }, 1);
        Ok(Repeated::All)
    }

    fn fetch(&self, page: PageId) -> Result<(), BufferError> {
        let _fetching = self.fetching.lock();
        let (from, wanted, budget) = {
            let mut waiting = self.waiting.lock();
            if !waiting.pages.get(&page).is_some_and(|changes| changes.in_log) {
                // Another thread has read them, or the page was freed.
                return Ok(());
            }
            let in_log = waiting.pages.iter().filter(|(_, changes)| changes.in_log);
            let wanted: BTreeMap<PageId, Lsn> = in_log.map(|(page, changes)| (*page, changes.last)).collect();
            let from = wanted.keys().map(|page| waiting.pages[page].first).min().expect("one at least");
            // None of the pages may be redone by other threads, and its log truncated, while it is
            // being read.
            waiting.read_from = Some(from);
            let fetched = waiting.pages.values().filter(|changes| changes.fetched);
            let fetched: usize = fetched.map(PageChanges::size).sum();
            (from, wanted, FETCH_ALONG_BYTES.saturating_sub(fetched))
        };
        let read = || match self.log.get() {
            Some(log) => log.changes(from, page, wanted.clone(), budget),
            None => Err(LogError::new(LogErrorKind::Closed, "it is not open")),
        };
        let mut outcome = read();
        for _ in 1..READS {
            // A single read may fail, and a device be away for a moment.
            if outcome.is_err() {
                outcome = read();
            }
        }
        let mut waiting = self.waiting.lock();
        waiting.read_from = None;
        let collected = outcome.map_err(|error| {
            let kind = match error.kind {
                LogErrorKind::Damaged => BufferErrorKind::Damaged,
                _ => BufferErrorKind::Unreadable,
            };
            let message = format!("the log that has the newest changes of {page:?} cannot be read: {error}");
            BufferError::new(kind, message)
        })?;
        let mut take = |page: PageId, bytes: Vec<u8>| {
            if let Some(changes) = waiting.pages.get_mut(&page).filter(|changes| changes.in_log) {
                (changes.bytes, changes.in_log, changes.fetched) = (bytes, false, true);
            }
        };
        for (page, PageChanges { bytes, .. }) in collected {
            take(page, bytes);
        }
        // If the log has none, redo finds that the page lacks them.
        take(page, Vec::new());
        Ok(())
    }

    fn freed(&self, page: PageId) {
        self.is_obsolete(page);
    }

    fn makes_anew(&self, page: PageId) -> bool {
        let waiting = self.waiting.lock();
        let Some(changes) = waiting.pages.get(&page) else { return false };
        let first = PageChanges::next(&mut Reader::new(&changes.bytes));
        first.is_some_and(|(_, record)| PageChange::decode(record).is_ok_and(|change| change.overwrites()))
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
    use crate::engine::page_changes::PAGE_OVERHEAD;
    use crate::engine::pending_collector::Collector;
    use firndb_base::sync::Arc;
    use firndb_base::sync::atomic::AtomicBool;
    use firndb_btree::PageChange;
    use firndb_log::LogClass;
    use firndb_log::{Kind, Record};
    use firndb_tier::Cached;
    use firndb_tier::store::PageEvent;
    use firndb_tier::testing::MemoryTier;
    use firndb_tier::{Allocation, PageRead, TierError, TierErrorKind};

    const REMOVE: u8 = 0x23;
    const DROP: u8 = 0x2b;

    /// Hands the collector a change of `page` at `lsn`, with an attachment of that many bytes.
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
        assert_eq!(lsns(&pending, 3), [], "another incarnation of it");
        assert_eq!(lsns(&pending, 4), [], "freed");
        assert_eq!(lsns(&pending, 5), [1095]);
        assert_eq!((pending.left(), pending.oldest()), (2, Some(Lsn(1061))));
        assert!(given_up.is_empty());
    }

    /// The store took a version that by-passed a cache being detached; a crash has brought the
    /// older image back.
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

    fn collected(pages: std::ops::RangeInclusive<u8>) -> Pending {
        let mut collector = Collector::new(1 << 20);
        pages.for_each(|page| change(&mut collector, 100 + u64::from(page), REMOVE, page, 0));
        collector.finish(&|_| Cached::No, 0).0
    }

    /// Cause: whether all pending pages are set aside was computed from two counters that changed
    /// one after the other. Effect: recovery was taken for complete, and the database closed as if
    /// cleanly, while a page was still to be redone.
    #[test]
    fn recovery_is_not_at_rest_while_a_page_is_to_be_redone() {
        let pending = collected(1..=1);
        let error = BufferError::new(BufferErrorKind::Damaged, "of a test");
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    let failed = Unredone { page: PageId(2), last: Lsn(200), error: error.clone() };
                    pending.add_failed(Lsn(50), vec![failed]);
                    pending.is_obsolete(PageId(2));
                }
                ended.store(true, Relaxed);
            });
            while !ended.load(Relaxed) {
                assert!(!pending.is_at_rest(), "page 1 is pending and not set aside");
                assert!(!pending.is_empty() && pending.first_left().is_some());
            }
        });
        pending.freed(PageId(1));
        assert!(pending.is_at_rest() && pending.is_empty() && pending.first_left().is_none());
    }

    /// A tier with one damaged page, and another one that cannot be read for a reason that is not
    /// its own.
    struct Failing {
        inner: MemoryTier,
        damaged: PageId,
        refused: PageId,
    }

    impl PageTier for Failing {
        firndb_tier::forward_tier!(inner: page_size, write_batch, make_batch_space, reserve, unreserve, prepare);
        firndb_tier::forward_tier!(inner: publish, sync, version_of, oldest_needed_lsn, statistics);
        fn read_batch(&self, reads: &mut [PageRead<'_>]) {
            self.inner.read_batch(reads);
            for read in reads {
                if read.page == self.damaged {
                    read.outcome = Err(TierError::new(TierErrorKind::Damaged, "damaged"));
                } else if read.page == self.refused {
                    read.outcome = Err(TierError::new(TierErrorKind::Failed, "the store failed"));
                }
            }
        }
    }

    /// Cause: a step that failed at one page dropped its list of those that it had set aside.
    /// Effect: they were passed over from then on, and never reported.
    #[test]
    fn what_a_step_sets_aside_is_returned_although_it_fails_at_another_page() {
        let log = firndb_log::testing::memory_log_with(1 << 20);
        let tier = Failing { inner: MemoryTier::new(512), damaged: PageId(1), refused: PageId(2) };
        for expected in 1..=2 {
            let page = tier.reserve(LogClass::Normal).expect("a memory tier is never full");
            assert_eq!(page, PageId(expected));
            let change = Allocation { allocate: &[page], free: &[] };
            tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).expect("there is space");
        }
        let options = firndb_buffer::PoolOptions { budget_bytes: 64 << 10 };
        let pool = BufferPool::new(Arc::new(tier), log, options).expect("a large budget");
        let pending = collected(1..=2);
        let (set_aside, outcome) = pending.step(&pool);
        assert_eq!(set_aside.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [PageId(1)]);
        assert_eq!(outcome.expect_err("page 2 cannot be read").kind(), crate::error::ErrorKind::Failed);
        assert_eq!((pending.left(), pending.is_at_rest()), (2, false), "page 2 is tried again");
        assert_eq!(pending.set_aside(), set_aside);
    }

    #[test]
    fn a_page_that_is_freed_is_pending_no_more() {
        let pending = collected(1..=3);
        let failed = Unredone {
            page: PageId(9),
            last: Lsn(200),
            error: BufferError::new(BufferErrorKind::Damaged, "of a test"),
        };
        pending.add_failed(Lsn(50), vec![failed]);
        assert_eq!((pending.left(), pending.oldest()), (4, Some(Lsn(50))));
        [9, 1, 77].into_iter().for_each(|page| pending.freed(PageId(page)));
        assert_eq!((pending.left(), pending.oldest()), (2, Some(Lsn(102))));
        assert!(pending.set_aside().is_empty() && !pending.is_at_rest());
    }
}
