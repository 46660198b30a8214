//! Redo: repeating the page changes that the pages found do not have, pages side by side. For recovery and restoring.

use crate::Error;
use firn_base::sync::{Arc, thread};
use firn_base::{Lsn, PageId};
use firn_btree::{PageChange, Redone};
use firn_buffer::BufferPool;
use firn_log::archive::ArchiveRecords;
use firn_log::{Kind, LogError, Record, Records};
use std::collections::BTreeSet;

/// Redo reads this much log before it hands it to the workers.
const CHUNK_BYTES: usize = 4 << 20;

/// Records in the order of their LSNs, from wherever they come.
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

/// Repeats changes of `pages`, `workers` pages at once; those of one page stay in order. `between` is called after each
/// chunk of log with the LSN that it came to. Answers how many changes were repeated.
pub(crate) fn redo(
    records: &mut dyn RecordStream,
    pages: &Pages,
    workers: usize,
    pool: &Arc<BufferPool>,
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
            if let Kind(0x20..=0x3f) = record.kind {
                let page = PageChange::decode(record)?.page;
                if pages.contains(page) {
                    bytes += record.body.len();
                    let list = &mut lists[page.0 as usize % workers];
                    list.push(Change { lsn, page, kind: record.kind, body: record.body.to_vec() });
                }
            }
            last = lsn;
        }
        for outcome in redo_lists(&lists, pool) {
            redone += outcome?;
        }
        between(last)?;
    }
    Ok(redone)
}

fn redo_lists(lists: &[Vec<Change>], pool: &BufferPool) -> Vec<Result<u64, Error>> {
    if let [list] = lists {
        return vec![redo_list(list, pool)];
    }
    thread::scope(|scope| {
        let handles: Vec<_> = lists.iter().map(|list| scope.spawn(|| redo_list(list, pool))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn redo_list(list: &[Change], pool: &BufferPool) -> Result<u64, Error> {
    let mut redone = 0;
    for change in list {
        // Of most pages it is known without reading them that they need nothing.
        if pool.tier().has_change(change.page, change.lsn)?.unwrap_or(true) {
            continue;
        }
        let record = Record { kind: change.kind, body: &change.body };
        match firn_btree::redo(pool, change.lsn, record) {
            Ok(outcome) => redone += u64::from(outcome == Redone::Applied),
            // There is nothing to repeat it on, and whoever reads the page is told.
            Err(_) if pool.tier().page_is_lost(change.page) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(redone)
}
