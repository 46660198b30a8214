//! Guards: the latch mode is in the type, and only a logged change compiles.
//!
//! A held guard pins its page. Guards hold latches: a thread takes them in the order of its tree
//! and never asks for a page it holds already. The only ways to a page's bytes for changing are
//! [`IntentGuard::apply`], which asks for the LSN of the change's record, and
//! [`ExclusiveGuard::redo`].

use crate::changed::Changed;
use crate::frame::state::{Frame, Pin};
use crate::frame::{ExclusiveHold, FrameId, SharedHold};
use crate::pool::BufferPool;
use firndb_base::sync::thread;
use firndb_base::{Lsn, PageId};
use std::ops::Deref;

/// A page latched for reading; dereferences to its bytes.
#[must_use = "dropping a guard unlatches its page"]
pub struct SharedGuard<'a> {
    hold: SharedHold<'a>,
}

impl<'a> SharedGuard<'a> {
    pub(crate) fn new(hold: SharedHold<'a>) -> SharedGuard<'a> {
        SharedGuard { hold }
    }
    pub fn page(&self) -> PageId {
        self.hold.frame().page().expect("a latched frame keeps its page")
    }
    /// LSN of its last change.
    pub fn version(&self) -> Lsn {
        self.hold.frame().version()
    }
    /// Keeps the page in DRAM until the pin is dropped, latched or not. A pinned frame is lost to
    /// the pool: for moments.
    pub fn pin(&self) -> PagePin<'a> {
        PagePin { _pin: self.hold.pin() }
    }
    /// A note of frame and latch version, with which the page can be latched again cheaply if it
    /// has not changed meanwhile.
    pub fn optimistic(&self) -> OptimisticRef {
        OptimisticRef::of(self.page(), self.hold.id(), self.hold.frame())
    }
}

impl Deref for SharedGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

/// Keeps a page in DRAM without a latch: see [`SharedGuard::pin`]. The page may be changed, or
/// freed and forgotten, meanwhile.
#[must_use = "dropping a pin lets the page go"]
pub struct PagePin<'a> {
    _pin: Pin<'a>,
}

/// A page latched for changing; dereferences to its bytes for reading.
#[must_use = "dropping a guard unlatches its page"]
pub struct ExclusiveGuard<'a> {
    pool: &'a BufferPool,
    hold: ExclusiveHold<'a>,
}

impl<'a> ExclusiveGuard<'a> {
    pub(crate) fn new(pool: &'a BufferPool, hold: ExclusiveHold<'a>) -> ExclusiveGuard<'a> {
        ExclusiveGuard { pool, hold }
    }
    pub fn page(&self) -> PageId {
        self.hold.frame().page().expect("a latched frame keeps its page")
    }
    /// LSN of its last change.
    pub fn version(&self) -> Lsn {
        self.hold.frame().version()
    }
    /// As [`SharedGuard::optimistic`]; a change through this guard makes it stale.
    pub fn optimistic(&self) -> OptimisticRef {
        OptimisticRef::of(self.page(), self.hold.id(), self.hold.frame())
    }

    /// Announces a change before its record is appended, so that a checkpoint that starts in
    /// between knows from where redo is needed.
    pub fn intend(self) -> IntentGuard<'a> {
        let announced = self.pool.recovery.announce(self.hold.id(), || self.pool.log.end());
        IntentGuard { exclusive: Some(self), announced }
    }

    /// Applies a record during recovery, if the page does not have it yet; returns whether it was
    /// applied.
    ///
    /// Records of one page come in the order of their LSNs, and before the page's first intent.
    pub fn redo(&mut self, lsn: Lsn, change: impl FnOnce(&mut [u8]) -> Changed) -> bool {
        if lsn <= self.version() {
            return false;
        }
        let _ = self.pool.recovery.announce(self.hold.id(), || lsn);
        self.assert_announced(lsn);
        self.change(lsn, change);
        self.hold.frame().set_redone(true);
        true
    }

    /// Forgets a page that was just freed, or created and never allocated: it is not written. If an
    /// image of it is in flight to the tier, waits for its end: the caller holds no other latch
    /// exclusively.
    pub fn discard(self) {
        self.allow_devices();
        // The thread that writes that image never blocks on a latch, so it is safe to wait here
        // with latches held.
        self.pool.staging.wait_for(self.hold.frame());
        self.forget();
    }

    /// Forgets a page that was created and never changed, so that no image of it can be in flight:
    /// waits for nothing.
    pub fn discard_unused(self) {
        assert!(!self.hold.frame().is_writing(), "a page without a change is clean");
        self.forget();
    }

    fn forget(self) {
        let (pool, page) = (self.pool, self.page());
        pool.recovery.clear(self.hold.id());
        pool.vacate(self.hold, page);
    }

    /// Forgets several pages, as [`ExclusiveGuard::discard`] does one.
    pub fn discard_all(guards: Vec<ExclusiveGuard<'_>>) {
        guards.iter().for_each(ExclusiveGuard::allow_devices);
        guards.into_iter().for_each(ExclusiveGuard::discard);
    }

    /// No other thread can want this page: its holder may wait for devices.
    pub(crate) fn allow_devices(&self) {
        self.hold.frame().allow_devices();
    }

    /// No redo of the page is to come.
    pub(crate) fn end_redo(&self) {
        self.hold.frame().set_redone(false);
    }

    pub(crate) fn into_hold(self) -> ExclusiveHold<'a> {
        self.hold
    }

    /// Converts the latch to shared.
    pub fn downgrade(self) -> SharedGuard<'a> {
        SharedGuard { hold: self.hold.downgrade() }
    }

    fn assert_announced(&self, lsn: Lsn) {
        let recovery_lsn = self.pool.recovery.get(self.hold.id());
        assert!(
            recovery_lsn.is_some_and(|recovery_lsn| recovery_lsn <= lsn),
            "{:?} is changed at {lsn} but announced at {recovery_lsn:?}",
            self.page(),
        );
    }

    fn change(&mut self, lsn: Lsn, change: impl FnOnce(&mut [u8]) -> Changed) {
        let unfinished = Unfinished { pool: self.pool, page: self.page(), id: self.hold.id() };
        #[cfg(debug_assertions)]
        let before = self.hold.bytes().to_vec();
        let changed = change(self.hold.bytes_mut());
        std::mem::forget(unfinished);
        #[cfg(debug_assertions)]
        changed.assert_names_all(&before, self.hold.bytes());
        let frame = self.hold.frame();
        frame.note_changes(changed.granules(self.pool.page_size()));
        frame.set_version(lsn);
        frame.count_change();
    }
}

impl Deref for ExclusiveGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

/// Dropped only if a change panics: removes the half-changed page from the table for good, so that
/// no thread can read or write it, and poisons the pool.
struct Unfinished<'a> {
    pool: &'a BufferPool,
    page: PageId,
    id: FrameId,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.pool.poison();
        // The exclusive latch is held by the guard that this change was made through.
        self.pool.table.lock(self.page).remove(&self.pool.frames, self.id);
    }
}

/// A page whose change is announced and not yet logged; dereferences to its (unchanged) bytes.
/// Dropping it leaves the page as it was; dropping it in a panic poisons the pool, since it is not
/// known then whether the record was appended.
#[must_use = "dropping an intent withdraws it"]
pub struct IntentGuard<'a> {
    /// There until consumed.
    exclusive: Option<ExclusiveGuard<'a>>,
    /// Whether the page was clean before.
    announced: bool,
}

impl<'a> IntentGuard<'a> {
    fn exclusive(&self) -> &ExclusiveGuard<'a> {
        self.exclusive.as_ref().expect("an intent holds its page until it is consumed")
    }
    pub fn page(&self) -> PageId {
        self.exclusive().page()
    }
    /// LSN of its last change: the new record's "previous LSN of that page".
    pub fn version(&self) -> Lsn {
        self.exclusive().version()
    }

    /// Changes the page as the record at `lsn` says. Panics if `lsn` is not after the page's
    /// version: a record appended before the intent, or another page's.
    ///
    /// If `change` panics, the pool is poisoned: the log has a record that DRAM does not.
    #[inline]
    pub fn apply(mut self, lsn: Lsn, change: impl FnOnce(&mut [u8]) -> Changed) -> ExclusiveGuard<'a> {
        // Asserted while the intent is still there, which poisons the pool if it is dropped in a
        // panic.
        let version = self.version();
        assert!(lsn > version, "{:?} has version {version} and is to be changed at {lsn}", self.page());
        self.exclusive().assert_announced(lsn);
        let mut exclusive = self.exclusive.take().expect("an intent holds its page until it is consumed");
        exclusive.change(lsn, change);
        exclusive.hold.frame().set_redone(false);
        exclusive
    }

    /// Withdraws the announcement of the change.
    pub fn withdraw(mut self) -> ExclusiveGuard<'a> {
        self.take_back().expect("an intent holds its page until it is consumed")
    }

    fn take_back(&mut self) -> Option<ExclusiveGuard<'a>> {
        let exclusive = self.exclusive.take()?;
        if self.announced {
            // It was clean, and no other thread could change it since.
            exclusive.pool.recovery.clear(exclusive.hold.id());
        }
        Some(exclusive)
    }
}

impl Deref for IntentGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.exclusive()
    }
}

impl Drop for IntentGuard<'_> {
    fn drop(&mut self) {
        if let Some(exclusive) = &self.exclusive
            && thread::panicking()
        {
            // Its record may be in the log by now: this page lacks it.
            exclusive.pool.poison();
        }
        drop(self.take_back());
    }
}

/// A page seen before, not latched. Holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptimisticRef {
    pub(crate) page: PageId,
    pub(crate) frame: FrameId,
    pub(crate) arrivals: u32,
    pub(crate) counter: u64,
}

impl OptimisticRef {
    /// The caller holds the frame latched.
    #[inline]
    fn of(page: PageId, id: FrameId, frame: &Frame) -> OptimisticRef {
        OptimisticRef { page, frame: id, arrivals: frame.arrivals(), counter: frame.counter() }
    }
    pub fn page(&self) -> PageId {
        self.page
    }
}
