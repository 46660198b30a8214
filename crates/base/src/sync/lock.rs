//! Mutexes and reader-writer locks: `lock_api`'s types over raw locks that know of simulations.

use super::rank::{Rank, Ranked};
use crate::sim::{self, Mode};
use std::mem;
use std::panic::Location;

/// A mutual exclusion lock.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// What holds a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// What holds a [`Mutex`] for a part of what it protects.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
/// A lock for many readers or one writer. Writers that wait keep new readers out; a thread that
/// reads must not read again.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// What holds an [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// What holds an [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// The lock below [`Mutex`].
// A mutex without data, rather than parking_lot's raw one, because its condition variable asks for
// a guard.
pub struct RawMutex {
    lock: parking_lot::Mutex<()>,
    ranked: Ranked,
}

impl RawMutex {
    /// One that has its place in the order of locks.
    pub(super) const fn ranked(rank: &'static Rank) -> RawMutex {
        RawMutex { lock: parking_lot::Mutex::new(()), ranked: Ranked::of(rank) }
    }

    /// Panics if the calling thread, which has the lock, must not wait for it again: see
    /// [`super::Rank`].
    #[track_caller]
    pub(super) fn expect_in_order(&self) {
        self.ranked.ask(self.address());
    }

    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock if it is free, without asking the scheduler.
    pub(super) fn attempt(&self) -> bool {
        self.lock.try_lock().map(mem::forget).is_some()
    }

    /// Releases the lock without notifying the scheduler.
    ///
    /// # Safety
    /// The caller holds it.
    pub(super) unsafe fn release_raw(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.lock.force_unlock() }
    }

    /// Runs `wait` with parking_lot's guard of the lock, which the caller holds before and after.
    ///
    /// # Safety
    /// The caller holds it, and `wait` holds it when it returns or unwinds.
    pub(super) unsafe fn with_guard<R>(
        &self,
        wait: impl FnOnce(&mut parking_lot::MutexGuard<'_, ()>) -> R,
    ) -> R {
        // SAFETY: the lock is held, says the caller; the guard is never dropped, so the hold stays
        // the caller's.
        let mut guard = mem::ManuallyDrop::new(unsafe { self.lock.make_guard_unchecked() });
        wait(&mut guard)
    }

    #[cold]
    #[track_caller]
    fn lock_simulated(&self) -> bool {
        let at = Location::caller();
        sim::current(|context| context.acquire(self.address(), Mode::Exclusive, at, || self.attempt()))
            .is_some()
    }

    #[cold]
    #[track_caller]
    fn try_lock_simulated(&self) -> Option<bool> {
        let at = Location::caller();
        sim::current(|context| context.try_acquire(self.address(), Mode::Exclusive, at, || self.attempt()))
    }

    /// # Safety
    /// The caller holds the lock.
    #[cold]
    #[track_caller]
    unsafe fn unlock_simulated(&self) -> bool {
        let at = Location::caller();
        let unlock = || {
            // SAFETY: passed on to the caller; it is run once at most.
            unsafe { self.release_raw() };
            true
        };
        sim::current(|context| context.release(self.address(), at, unlock)).is_some()
    }
}

// SAFETY: every path takes and releases the mutex inside, which excludes; a simulated thread waits
// elsewhere but has the lock only after `try_lock` on that mutex.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: RawMutex = RawMutex { lock: parking_lot::Mutex::new(()), ranked: Ranked::NONE };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        self.ranked.assert_not_held(self.address());
        self.ranked.ask(self.address());
        if !(sim::simulating() && self.lock_simulated()) {
            mem::forget(self.lock.lock());
        }
        self.ranked.taken(self.address());
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        let simulated = if sim::simulating() { self.try_lock_simulated() } else { None };
        let taken = simulated.unwrap_or_else(|| self.attempt());
        if taken {
            self.ranked.taken(self.address());
        }
        taken
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock(&self) {
        self.ranked.given_back(self.address());
        // SAFETY: the caller holds the lock; only one of the two branches releases it.
        unsafe {
            if sim::simulating() && self.unlock_simulated() {
                return;
            }
            self.release_raw();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

/// The lock below [`RwLock`] and [`super::RawLatch`].
pub struct RawRwLock {
    lock: parking_lot::RawRwLock,
    ranked: Ranked,
}

impl RawRwLock {
    /// One that has its place in the order of locks.
    pub(super) const fn ranked(rank: &'static Rank) -> RawRwLock {
        RawRwLock { lock: <parking_lot::RawRwLock as lock_api::RawRwLock>::INIT, ranked: Ranked::of(rank) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// See [`super::RawLatch::allow_devices`].
    #[inline]
    pub(super) fn set_bars_devices(&self, bars_devices: bool) {
        self.ranked.set_bars_devices(self.address(), bars_devices);
    }

    /// See [`super::RawLatch::before_waiting`].
    #[inline]
    #[track_caller]
    pub(super) fn before_waiting(&self) {
        self.ranked.ask(self.address());
    }

    /// See [`super::RawLatch::assert_not_held`].
    #[inline]
    #[track_caller]
    pub(super) fn assert_not_held(&self) {
        self.ranked.assert_not_held(self.address());
    }

    fn attempt(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => lock_api::RawRwLock::try_lock_shared(&self.lock),
            Mode::Exclusive => lock_api::RawRwLock::try_lock_exclusive(&self.lock),
        }
    }

    #[cold]
    #[track_caller]
    fn lock_simulated(&self, mode: Mode) -> bool {
        let at = Location::caller();
        sim::current(|context| context.acquire(self.address(), mode, at, || self.attempt(mode))).is_some()
    }

    #[cold]
    #[track_caller]
    fn try_lock_simulated(&self, mode: Mode) -> Option<bool> {
        let at = Location::caller();
        sim::current(|context| context.try_acquire(self.address(), mode, at, || self.attempt(mode)))
    }

    /// # Safety
    /// The caller holds the lock in this mode.
    #[cold]
    #[track_caller]
    unsafe fn unlock_simulated(&self, mode: Mode) -> bool {
        let at = Location::caller();
        let unlock = || {
            // SAFETY: passed on to the caller; it is run once at most.
            unsafe {
                match mode {
                    Mode::Shared => lock_api::RawRwLock::unlock_shared(&self.lock),
                    Mode::Exclusive => lock_api::RawRwLock::unlock_exclusive(&self.lock),
                }
            }
            !lock_api::RawRwLock::is_locked(&self.lock)
        };
        sim::current(|context| context.release(self.address(), at, unlock)).is_some()
    }

    /// # Safety
    /// The caller holds the lock exclusively.
    #[cold]
    #[track_caller]
    unsafe fn downgrade_simulated(&self) -> bool {
        let at = Location::caller();
        let downgrade = || {
            // SAFETY: passed on to the caller; it is run once at most.
            unsafe { lock_api::RawRwLockDowngrade::downgrade(&self.lock) }
        };
        sim::current(|context| context.downgrade(self.address(), at, downgrade)).is_some()
    }
}

// SAFETY: every path takes and releases the lock inside, which excludes; a simulated thread waits
// elsewhere but has the lock only after a successful try on that lock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: RawRwLock =
        RawRwLock { lock: <parking_lot::RawRwLock as lock_api::RawRwLock>::INIT, ranked: Ranked::NONE };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        self.ranked.assert_not_held(self.address());
        self.ranked.ask(self.address());
        if !(sim::simulating() && self.lock_simulated(Mode::Shared)) {
            self.lock.lock_shared();
        }
        self.ranked.taken_shared(self.address());
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        let simulated = if sim::simulating() { self.try_lock_simulated(Mode::Shared) } else { None };
        let taken = simulated.unwrap_or_else(|| self.lock.try_lock_shared());
        if taken {
            self.ranked.taken_shared(self.address());
        }
        taken
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_shared(&self) {
        self.ranked.given_back(self.address());
        // SAFETY: the caller holds the lock shared; only one of the two branches releases it.
        unsafe {
            if sim::simulating() && self.unlock_simulated(Mode::Shared) {
                return;
            }
            self.lock.unlock_shared();
        }
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        self.ranked.assert_not_held(self.address());
        self.ranked.ask(self.address());
        if !(sim::simulating() && self.lock_simulated(Mode::Exclusive)) {
            self.lock.lock_exclusive();
        }
        self.ranked.taken(self.address());
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        let simulated = if sim::simulating() { self.try_lock_simulated(Mode::Exclusive) } else { None };
        let taken = simulated.unwrap_or_else(|| self.lock.try_lock_exclusive());
        if taken {
            self.ranked.taken(self.address());
        }
        taken
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_exclusive(&self) {
        self.ranked.given_back(self.address());
        // SAFETY: the caller holds the lock exclusively; only one of the two branches releases it.
        unsafe {
            if sim::simulating() && self.unlock_simulated(Mode::Exclusive) {
                return;
            }
            self.lock.unlock_exclusive();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.lock.is_locked_exclusive()
    }
}

// SAFETY: as above; parking_lot's downgrade lets no other thread in between.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    #[inline]
    #[track_caller]
    unsafe fn downgrade(&self) {
        self.ranked.set_bars_devices(self.address(), false);
        // SAFETY: the caller holds the lock exclusively; only one of the two downgrades it.
        unsafe {
            if sim::simulating() && self.downgrade_simulated() {
                return;
            }
            self.lock.downgrade();
        }
    }
}
