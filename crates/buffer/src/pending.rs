//! The seam to recovery: what the log has of pages and the tier may lack.

use crate::error::Fixed;
use crate::guard::ExclusiveGuard;
use firndb_base::PageId;
use firndb_base::sync::atomic::AtomicBool;
use firndb_base::sync::{Arc, OnceLock};
use firndb_tier::Found;

/// What became of a page that was shown to redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// It is up to date.
    All,
    /// It has not been touched: its changes are not in memory, and [`PendingChanges::fetch`] is to
    /// be called first.
    NotInMemory,
}

/// What the log has of pages and the tier may not.
pub trait PendingChanges: Send + Sync {
    /// Brings a page that was just read up to date, by [`ExclusiveGuard::redo`] in the order of the
    /// LSNs. `found` is what the tier returned. Called with the page latched by this thread alone;
    /// it does no I/O and does not block.
    ///
    /// After an error the page is forgotten, and what is pending stays pending.
    fn redo(&self, page: &mut ExclusiveGuard<'_>, found: Found) -> Fixed<Repeated>;

    /// Reads a page's changes from the log, for which [`PendingChanges::redo`] returned
    /// [`Repeated::NotInMemory`]. Called with no latch of that page; waits for devices. Once it has
    /// succeeded, `redo` does not return that of the page again.
    fn fetch(&self, page: PageId) -> Fixed<()>;

    /// The page was freed: a record that says so has been appended. Nothing of it is pending any
    /// more, also if another thread is redoing it just now.
    fn freed(&self, page: PageId);

    /// Whether the first of the page's pending changes writes the page whole, so that no stored
    /// image is needed. Asked when that cannot be read; then [`PendingChanges::redo`] is shown a
    /// page of zeros in version zero.
    fn makes_anew(&self, page: PageId) -> bool;
}

/// What is pending, as long as anything is.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) changes: OnceLock<Arc<dyn PendingChanges>>,
    /// Whether pages are shown to it. Set before the first page is read, and reset when nothing is
    /// pending.
    pub(crate) active: AtomicBool,
}
