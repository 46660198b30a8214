//! Redo on demand: pages are brought up to date as they are brought in.
//!
//! After a crash the log has changes that the tier does not. Recovery hands in what knows them
//! ([`BufferPool::redo_with`]), before the first page is read, and from then on a page is shown to it between the
//! tier's read and the moment when its latch is let go of for the first time. So nobody sees a page that lacks
//! something, and a page that cannot be redone is in no frame.

use crate::claim::Incoming;
use crate::frame::ExclusiveHold;
use crate::guard::Fixed;
use crate::{BufferPool, ExclusiveGuard};
use firn_base::sync::Arc;
use firn_base::sync::OnceLock;
use firn_base::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use firn_tier::Found;

/// What the log has of pages and the tier may not.
pub trait PendingChanges: Send + Sync {
    /// Brings a page that was just read up to date, by [`ExclusiveGuard::redo`] in the order of the LSNs. `found` is
    /// what the tier answered. Called with the page latched by this thread alone; it does no I/O and waits for nobody.
    ///
    /// After an error the page is forgotten, and what is pending stays pending.
    fn redo(&self, page: &mut ExclusiveGuard<'_>, found: Found) -> Fixed<()>;
}

/// What is pending, as long as anything is.
#[derive(Default)]
pub(crate) struct Pending {
    changes: OnceLock<Arc<dyn PendingChanges>>,
    /// Whether pages are shown to it. Set before the first page is read, and reset when nothing is pending.
    active: AtomicBool,
}

impl BufferPool {
    /// Has every page that is read be brought up to date, until [`BufferPool::end_redo`]. Called once at most, before
    /// any page is read.
    pub fn redo_with(&self, changes: Arc<dyn PendingChanges>) {
        assert_eq!(self.counters.misses.get(), 0, "a page read before is not shown to redo");
        assert!(self.pending.changes.set(changes).is_ok(), "recovery hands in what is pending once");
        self.pending.active.store(true, Release);
    }

    /// Nothing is pending any more.
    pub fn end_redo(&self) {
        self.pending.active.store(false, Release);
    }

    /// Ends the coming of a page that was read.
    pub(crate) fn arrive<'a>(&'a self, incoming: Incoming<'a>, found: Found) -> Fixed<ExclusiveHold<'a>> {
        let hold = incoming.finish(found.version);
        if !self.pending.active.load(Acquire) {
            return Ok(hold);
        }
        let changes = self.pending.changes.get().expect("it was handed in before pages were shown to it");
        let mut guard = ExclusiveGuard::new(self, hold);
        match changes.redo(&mut guard, found) {
            Ok(()) => {
                // All of it: whatever changes the page next has an LSN past the log's end.
                guard.end_redo();
                Ok(guard.into_hold())
            }
            Err(error) => {
                // Half redone: nobody has seen it, and no image of it is on its way.
                guard.discard();
                Err(error)
            }
        }
    }
}
