//! Redo: repeats the page changes that the stored pages lack, pages side by side. For recovery and
//! restoring.

use crate::engine::pending::{READS, Unredone};
use crate::error::Error;
use crate::options::Options;
use firndb_base::record_kind::KindOwner;
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_base::{Lsn, PageId};
use firndb_btree::{PageChange, Redone, TreeError, TreeErrorKind};
use firndb_buffer::{BufferError, BufferErrorKind, BufferPool, InMemory};
use firndb_log::archive::ArchiveRecords;
use firndb_log::{Kind, LogError, Record, Records};
use std::collections::{BTreeMap, BTreeSet};

/// Redo reads this much log before it hands it to the workers.
const CHUNK_BYTES: usize = 4 << 20;

/// Records in the order of their LSNs, from the log or an archive.
pub(crate) trait RecordStream {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError>;
}

impl RecordStream for Records<'_> {
    fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError> {
        Records::next(self)
    }
}

impl RecordStream for ArchiveRecords {
    fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError> {
        ArchiveRecords::next(self)
    }
}

/// Which pages are redone.
pub(crate) enum Pages {
    /// All.
    All,
    /// These.
    Only(BTreeSet<PageId>),
}

impl Pages {
    pub fn is_empty(&self) -> bool {
        matches!(self, Pages::Only(pages) if pages.is_empty())
    }
    fn contains(&self, page: PageId) -> bool {
        match self {
            Pages::All => true,
            Pages::Only(pages) => pages.contains(&page),
        }
    }
}

/// A page change copied out of the log, for a redo worker.
struct Change {
    lsn: Lsn,
    page: PageId,
    kind: Kind,
    body: Vec<u8>,
}

/// Pages that redo repeats side by side. A database without threads of its own recovers without any
/// too: its I/O has one order, which tests of failing devices replay.
pub(crate) fn workers(options: &Options) -> usize {
    if options.background { thread::available_parallelism().map_or(1, usize::from).min(8) } else { 1 }
}

/// Repeats changes of `pages`, `workers` pages at once; those of one page stay in order. `between`
/// is called after each chunk of log with the LSN that it reached. Returns how many changes were
/// repeated. Pages that are damaged or cannot be read are collected in `unredone`, if that is
/// given; else the first of them fails the call.
pub(crate) fn redo(
    records: &mut dyn RecordStream,
    pages: &Pages,
    workers: usize,
    pool: &Arc<BufferPool>,
    unredone: Option<&UnredonePages>,
    between: &mut dyn FnMut(Lsn) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut redone = 0;
    let mut ended = false;
    while !ended {
        let mut lists: Vec<Vec<Change>> = (0..workers).map(|_| Vec::new()).collect();
        let mut bytes = 0;
        let mut last = Lsn::ZERO;
        while bytes < CHUNK_BYTES {
            let Some((lsn, record)) = records.next()? else {
                ended = true;
                break;
            };
            if let Some(KindOwner::Tree) = record.kind.owner() {
                let page = PageChange::decode(record)?.page;
                if pages.contains(page) {
                    bytes += record.body.len();
                    let list = &mut lists[page.0 as usize % workers];
                    list.push(Change { lsn, page, kind: record.kind, body: record.body.to_vec() });
                }
            }
            last = lsn;
        }
        let redo = |list: &Vec<Change>| redo_list(list, pool, unredone);
        for outcome in thread::each(lists.iter().collect(), redo) {
            redone += outcome?;
        }
        between(last)?;
    }
    Ok(redone)
}

fn redo_list(list: &[Change], pool: &BufferPool, unredone: Option<&UnredonePages>) -> Result<u64, Error> {
    let mut redone = 0;
    for change in list {
        if unredone.is_some_and(|unredone| unredone.has_failed_before(change)) {
            continue;
        }
        let mut outcome = redo_one(change, pool);
        for _ in 1..READS {
            // A device may be away for a moment, and a single read may fail.
            match &outcome {
                Err(error) if matches!(error.kind, TreeErrorKind::Damaged | TreeErrorKind::Unreadable) => {
                    outcome = redo_one(change, pool);
                }
                _ => break,
            }
        }
        match (outcome, unredone) {
            (Ok(applied), _) => redone += u64::from(applied),
            (Err(error), Some(unredone))
                if matches!(error.kind, TreeErrorKind::Damaged | TreeErrorKind::Unreadable) =>
            {
                // It may be in a frame in the version that the change does not fit.
                if let InMemory::Latched(guard) = pool.exclusive_in_memory(change.page) {
                    guard.discard();
                }
                unredone.add(change, BufferError::new(BufferErrorKind::Damaged, error.message));
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(redone)
}

fn redo_one(change: &Change, pool: &BufferPool) -> Result<bool, TreeError> {
    // Most pages are known, without reading them, to need nothing.
    if pool.tier().has_change_for_sure(change.page, change.lsn)?.unwrap_or(true) {
        return Ok(false);
    }
    let record = Record { kind: change.kind, body: &change.body };
    match firndb_btree::redo(pool, change.lsn, record) {
        Ok(outcome) => Ok(outcome == Redone::Applied),
        // There is no image to repeat it on, and readers of the page get an error.
        Err(_) if pool.tier().page_is_lost(change.page) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Pages that are damaged or cannot be read, with their changes.
#[derive(Default)]
pub(crate) struct UnredonePages(Mutex<BTreeMap<PageId, Unredone>>);

impl UnredonePages {
    /// Whether an earlier change of the page could not be repeated, so that this one cannot be. A
    /// change that writes the page whole can be, and then nothing before it is missing.
    fn has_failed_before(&self, change: &Change) -> bool {
        let mut pages = self.0.lock();
        let Some(unredone) = pages.get_mut(&change.page) else { return false };
        let record = Record { kind: change.kind, body: &change.body };
        if PageChange::decode(record).is_ok_and(|change| change.overwrites()) {
            pages.remove(&change.page);
            return false;
        }
        unredone.last = change.lsn;
        true
    }

    fn add(&self, change: &Change, error: BufferError) {
        let unredone = Unredone { page: change.page, last: change.lsn, error };
        self.0.lock().insert(change.page, unredone);
    }

    pub fn take(&self) -> Vec<Unredone> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }
}
