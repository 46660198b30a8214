//! Redo on demand: what the buffer asks of pending changes when it has read a page.

use crate::engine::page_changes::PageChanges;
use crate::engine::pending::{Pending, READS};
use firndb_base::codec::Reader;
use firndb_base::sync::atomic::AtomicU64;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, PageId};
use firndb_btree::{PageChange, Redone};
use firndb_buffer::{BufferError, BufferErrorKind, ExclusiveGuard, PendingChanges, Repeated};
use firndb_log::{LogError, LogErrorKind};
use firndb_tier::Found;
use std::collections::BTreeMap;

/// Bytes of changes of other pages, which will be read next, that one pass over the log fetches at
/// most beside those of the page that it is made for.
const FETCH_ALONG_BYTES: usize = 4 << 20;

impl Pending {
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
