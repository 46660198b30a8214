//! Redo on demand: a page's pending changes are applied when it is read.
//!
//! After a crash the log has changes that the tier does not. Recovery hands in an implementation of
//! [`PendingChanges`] ([`BufferPool::redo_with`]) before the first page is read. From then on every
//! page is shown to it after the tier's read and before its latch is first released. So no thread
//! sees a page that lacks a change, and a page that cannot be redone is in no frame.

use crate::changed::Changed;
use crate::error::{BufferErrorKind, Fixed};
use crate::frame::ExclusiveHold;
use crate::guard::ExclusiveGuard;
use crate::page_use::{PageUse, Uses};
use crate::pending::{PendingChanges, Repeated};
use crate::pool::BufferPool;
use crate::replacement::Incoming;
use firndb_base::sync::atomic::Ordering::{Acquire, Release};
use firndb_base::sync::{Arc, before_device};
use firndb_base::{Lsn, PageId};
use firndb_tier::Found;

impl BufferPool {
    /// Has `changes` redo every page that is read, until [`BufferPool::end_redo`]. Called once at
    /// most, before any page is read.
    pub fn redo_with(&self, changes: Arc<dyn PendingChanges>) {
        assert_eq!(self.counters.misses.get(), 0, "a page read before is not shown to redo");
        assert!(self.pending.changes.set(changes).is_ok(), "recovery hands in what is pending once");
        self.pending.active.store(true, Release);
    }

    /// Nothing is pending any more.
    pub fn end_redo(&self) {
        self.pending.active.store(false, Release);
    }

    /// Whether redo overwrites the whole page, whatever the tier has of it.
    pub(crate) fn is_made_anew(&self, page: PageId) -> bool {
        self.pending.active.load(Acquire)
            && self.pending.changes.get().is_some_and(|changes| changes.makes_anew(page))
    }

    /// Drops the pending changes of pages that a group of records frees, once it is appended. The
    /// thread that publishes such a group calls this.
    pub fn note_freed(&self, pages: &[PageId]) {
        if self.pending.active.load(Acquire)
            && let Some(changes) = self.pending.changes.get()
        {
            pages.iter().for_each(|page| changes.freed(*page));
        }
    }

    /// Has redo read from the log what it needs of a page. The caller does not latch the page.
    pub(crate) fn fetch_pending(&self, page: PageId) -> Fixed<()> {
        before_device();
        self.pending.changes.get().expect("it asked for this").fetch(page)
    }

    /// Puts `image` in place of a page whose stored image is damaged, cannot be read, or is too old
    /// for what was to be redone on it: as its version `version`, which the log has. Whether it
    /// did: not if the page is in DRAM, is free, or can be read in that version.
    pub fn replace_unreadable(
        &self,
        page: PageId,
        version: Lsn,
        keep_readable: bool,
        image: impl FnOnce(&mut [u8]) -> Changed,
    ) -> Fixed<bool> {
        let mut incoming = loop {
            if self.is_resident(page) {
                return Ok(false);
            }
            self.check_usable()?;
            if let Some(incoming) = self.claim(PageUse::Working)?.install(page, Uses::COLD) {
                break incoming;
            }
        };
        // While the frame is latched no other thread brings the page in, frees it or overwrites it.
        match self.read_one(&mut incoming) {
            Ok(found) if keep_readable || found.version >= version => return Ok(false),
            Err(error) if error.kind == BufferErrorKind::NotAllocated => return Ok(false),
            Err(error) if !error.concerns_the_page() => return Err(error),
            Ok(_) | Err(_) => {}
        }
        let mut guard = ExclusiveGuard::new(self, incoming.finish(Found::without_base(Lsn::ZERO)));
        guard.redo(version, image);
        guard.end_redo();
        Ok(true)
    }

    /// Finishes bringing in a page that was read; `None` if it was dropped again, since
    /// [`BufferPool::fetch_pending`] has to be called first.
    pub(crate) fn arrive<'a>(
        &'a self,
        incoming: Incoming<'a>,
        found: Found,
    ) -> Fixed<Option<ExclusiveHold<'a>>> {
        let hold = incoming.finish(found);
        if !self.pending.active.load(Acquire) {
            return Ok(Some(hold));
        }
        let changes = self.pending.changes.get().expect("it was handed in before pages were shown to it");
        let mut guard = ExclusiveGuard::new(self, hold);
        match changes.redo(&mut guard, found) {
            Ok(Repeated::All) => {
                // The page's next change has an LSN past the log's end.
                guard.end_redo();
                Ok(Some(guard.into_hold()))
            }
            Ok(Repeated::NotInMemory) => {
                guard.discard();
                Ok(None)
            }
            Err(error) => {
                // Half redone: no other thread has seen it, and no image of it is being written.
                guard.discard();
                Err(error)
            }
        }
    }
}
