//! The engine's only locks, condition variables, atomics and threads.
//!
//! Locks do not poison: a panic in a worker poisons the *database* (see `firn`), never one lock.
//! Everything that can block does so here, which is where a simulating scheduler takes its turn.

use crate::clock::{self, Moment};
use std::time::Duration;

pub use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{Arc, OnceLock, Weak};

/// Atomics.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable nobody waits on.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }
    /// Releases the lock, waits for a notification, takes the lock again. May wake without one.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }
    /// As [`Condvar::wait`], for at most `time`; false if the time ran out.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
        match clock::now().after(time) {
            Some(deadline) => self.wait_until(guard, deadline),
            None => {
                self.wait(guard);
                true
            }
        }
    }
    /// As [`Condvar::wait`], until `deadline` at the latest; false if it has passed.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Moment) -> bool {
        !self.0.wait_until(guard, deadline.instant()).timed_out()
    }
    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Shared and exclusive latch without data of its own, for page frames: the frame table owns the bytes.
///
/// Not fair, not recursive. A thread that holds it shared must not ask for it again.
pub struct RawLatch(parking_lot::RawRwLock);

impl Default for RawLatch {
    fn default() -> RawLatch {
        RawLatch::new()
    }
}

impl RawLatch {
    /// A free latch.
    #[must_use]
    pub const fn new() -> RawLatch {
        RawLatch(<parking_lot::RawRwLock as lock_api::RawRwLock>::INIT)
    }
    /// Blocks until shared.
    pub fn lock_shared(&self) {
        lock_api::RawRwLock::lock_shared(&self.0);
    }
    /// Shared, if nobody holds or waits for it exclusively.
    #[must_use]
    pub fn try_lock_shared(&self) -> bool {
        lock_api::RawRwLock::try_lock_shared(&self.0)
    }
    /// Blocks until exclusive.
    pub fn lock_exclusive(&self) {
        lock_api::RawRwLock::lock_exclusive(&self.0);
    }
    /// Exclusive, if free.
    #[must_use]
    pub fn try_lock_exclusive(&self) -> bool {
        lock_api::RawRwLock::try_lock_exclusive(&self.0)
    }
    /// Gives back a shared hold.
    ///
    /// # Safety
    /// The caller holds it shared and does not use the hold any more.
    pub unsafe fn unlock_shared(&self) {
        // SAFETY: passed on to the caller.
        unsafe { lock_api::RawRwLock::unlock_shared(&self.0) }
    }
    /// Turns the exclusive hold into a shared one; nobody else gets it exclusively in between.
    ///
    /// # Safety
    /// The caller holds it exclusively and uses the hold as a shared one from now on.
    pub unsafe fn downgrade(&self) {
        // SAFETY: passed on to the caller.
        unsafe { lock_api::RawRwLockDowngrade::downgrade(&self.0) }
    }
    /// Gives back the exclusive hold.
    ///
    /// # Safety
    /// The caller holds it exclusively and does not use the hold any more.
    pub unsafe fn unlock_exclusive(&self) {
        // SAFETY: passed on to the caller.
        unsafe { lock_api::RawRwLock::unlock_exclusive(&self.0) }
    }
}

/// Threads. All of the engine's own are started in `firn::threads`.
pub mod thread {
    pub use std::thread::{JoinHandle, available_parallelism, panicking, scope, yield_now};

    /// A small number that stays the same for the calling thread and differs between threads that run at
    /// the same time, for striped counters. Never to decide anything by.
    #[must_use]
    pub fn stripe() -> usize {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        std::thread_local! {
            static STRIPE: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
        }
        STRIPE.with(|stripe| match stripe.get() {
            usize::MAX => {
                stripe.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                stripe.get()
            }
            number => number,
        })
    }

    /// Starts a named thread.
    pub fn spawn<F>(name: &str, body: F) -> std::io::Result<JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        std::thread::Builder::new().name(name.to_owned()).spawn(body)
    }
}
