//! A latch without data.

use super::Rank;
use super::lock::RawRwLock;
use lock_api::{RawRwLock as _, RawRwLockDowngrade as _};

/// Shared and exclusive latch without data of its own, for page frames: the frame table owns the
/// bytes.
///
/// Not fair, not recursive. A thread that holds it shared must not ask for it again.
pub struct RawLatch(RawRwLock);

impl Default for RawLatch {
    fn default() -> RawLatch {
        RawLatch::new()
    }
}

impl RawLatch {
    #[must_use]
    pub const fn new() -> RawLatch {
        RawLatch(RawRwLock::INIT)
    }
    /// A free latch that has its place in the order of locks.
    #[must_use]
    pub const fn ranked(rank: &'static Rank) -> RawLatch {
        RawLatch(RawRwLock::ranked(rank))
    }
    /// The calling thread would wait for the latch if it had to, in one call or another: in builds
    /// with debug assertions it panics if that is out of order, also where the latch is free.
    #[inline]
    #[track_caller]
    pub fn before_waiting(&self) {
        self.0.before_waiting();
    }
    /// In builds with debug assertions, panics if the calling thread has the latch.
    #[inline]
    #[track_caller]
    pub fn assert_not_held(&self) {
        self.0.assert_not_held();
    }
    /// Whether any thread holds it. For assertions.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
    /// Whether any thread holds it exclusively. For assertions.
    #[inline]
    #[must_use]
    pub fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
    /// Blocks until shared.
    #[inline]
    #[track_caller]
    pub fn lock_shared(&self) {
        self.0.lock_shared();
    }
    /// Shared, if no thread holds it or waits for it exclusively.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }
    /// Blocks until exclusive.
    #[inline]
    #[track_caller]
    pub fn lock_exclusive(&self) {
        self.0.lock_exclusive();
    }
    /// Exclusive, if free.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }
    /// The calling thread, which holds it exclusively, may wait for devices meanwhile: no other
    /// thread can want what it guards yet, or only what the device is to fill in. See
    /// [`Rank::bars_devices`].
    #[inline]
    pub fn allow_devices(&self) {
        self.0.set_bars_devices(false);
    }
    /// Ends [`RawLatch::allow_devices`].
    #[inline]
    pub fn bar_devices(&self) {
        self.0.set_bars_devices(true);
    }
    /// Releases a shared hold.
    ///
    /// # Safety
    /// The caller holds it shared and does not use the hold any more.
    #[inline]
    #[track_caller]
    pub unsafe fn unlock_shared(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.unlock_shared() }
    }
    /// Converts the exclusive hold to a shared one; no other thread gets it exclusively in between.
    ///
    /// # Safety
    /// The caller holds it exclusively and uses the hold as a shared one from now on.
    #[inline]
    #[track_caller]
    pub unsafe fn downgrade(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.downgrade() }
    }
    /// Releases the exclusive hold.
    ///
    /// # Safety
    /// The caller holds it exclusively and does not use the hold any more.
    #[inline]
    #[track_caller]
    pub unsafe fn unlock_exclusive(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.unlock_exclusive() }
    }
}
