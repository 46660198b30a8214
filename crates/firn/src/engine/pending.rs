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

mod redo_on_read;
#[cfg(test)]
mod tests;

use crate::engine::page_changes::PageChanges;
use crate::engine::pending_log::PendingLog;
use crate::engine::recovery_report::RedoCounts;
use crate::error::Error;
use crate::ranks;
use firndb_base::hash::FixedMap;
use firndb_base::sync::atomic::AtomicU64;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::sync::{Mutex, OnceLock};
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferError, BufferErrorKind, BufferPool, PageUse};
use firndb_tier::PageTier;
use firndb_tier::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Pages redone by one background step.
const STEP_PAGES: usize = 64;
/// Reads of an unreadable page before it is set aside.
pub(crate) const READS: u32 = 3;

/// Pages at most that debug builds check after each change.
const CHECKED_MAX: usize = 64;

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
        self.check_in_debug();
    }

    /// In debug builds, asserts of few pages that all places agree on which are pending.
    fn check_in_debug(&self) {
        if cfg!(debug_assertions) && self.by_lsn.len() <= CHECKED_MAX {
            assert_eq!(self.by_lsn.len(), self.pages.len());
            for (first, page) in &self.by_lsn {
                let changes = self.pages.get(page).expect("what is listed is pending");
                assert!(changes.first == *first && changes.first <= changes.last, "{page:?}: {changes:?}");
                assert!(!changes.in_log || changes.bytes.is_empty(), "{page:?} is in the log only");
            }
            assert!(self.set_aside.keys().all(|page| self.pages.contains_key(page)), "set aside is pending");
        }
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
        waiting.check_in_debug();
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
        pool.bring_in(&pages, PageUse::Working);
        let mut failed = Vec::new();
        let outcome = pages.iter().try_for_each(|page| {
            failed.extend(self.redo_by_reading(*page, pool)?.map(|error| (*page, error)));
            Ok(())
        });
        let mut waiting = self.waiting.lock();
        for page in &pages {
            waiting.in_background.remove(page);
        }
        // Another thread may have read it meanwhile.
        failed.retain(|(page, _)| waiting.pages.contains_key(page));
        waiting.set_aside.extend(failed.iter().cloned());
        waiting.check_in_debug();
        (failed, outcome)
    }

    /// Brings a page up to date by reading it; returns why not, if the page is the cause.
    fn redo_by_reading(&self, page: PageId, pool: &BufferPool) -> Result<Option<BufferError>, Error> {
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
            let Some(error) = self.redo_by_reading(page, pool)? else { return Ok(()) };
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
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("left", &self.left()).finish_non_exhaustive()
    }
}
