//! Condition variables.

use super::lock::MutexGuard;
use crate::clock::{self, Moment};
use crate::sim;
use std::panic::Location;
use std::time::Duration;

/// A condition variable for [`super::Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake without one.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        expect_in_order(guard);
        if sim::simulating() && self.wait_simulated(guard, None).is_some() {
            return;
        }
        // SAFETY: the caller's guard proves the hold; parking_lot's wait holds the lock again when
        // it returns.
        unsafe { MutexGuard::mutex(guard).raw().with_guard(|guard| self.0.wait(guard)) }
    }

    /// As [`Condvar::wait`], for at most `time`; false if the time ran out.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
        match clock::now().after(time) {
            Some(deadline) => self.wait_until(guard, deadline),
            None => {
                self.wait(guard);
                true
            }
        }
    }

    /// As [`Condvar::wait`], until `deadline` at the latest; false if it has passed.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Moment) -> bool {
        expect_in_order(guard);
        if sim::simulating()
            && let Some(notified) = self.wait_simulated(guard, Some(deadline))
        {
            return notified;
        }
        let Some(deadline) = deadline.instant() else {
            self.wait(guard);
            return true;
        };
        // SAFETY: as in `wait`.
        unsafe {
            MutexGuard::mutex(guard).raw().with_guard(|guard| !self.0.wait_until(guard, deadline).timed_out())
        }
    }

    #[inline]
    #[track_caller]
    pub fn notify_one(&self) {
        if sim::simulating() && self.notify_simulated(false) {
            return;
        }
        self.0.notify_one();
    }

    #[inline]
    #[track_caller]
    pub fn notify_all(&self) {
        if sim::simulating() && self.notify_simulated(true) {
            return;
        }
        self.0.notify_all();
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    #[track_caller]
    fn wait_simulated<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Moment>,
    ) -> Option<bool> {
        let at = Location::caller();
        // SAFETY: the raw lock is released only within this call, and held again at its end.
        let lock = unsafe { MutexGuard::mutex(guard).raw() };
        // SAFETY: the caller's guard proves the hold.
        let unlock = || unsafe { lock.release_raw() };
        sim::current(|context| {
            let deadline = deadline.map(Moment::as_nanos);
            let what = sim::Waiting { condvar: self.address(), lock: lock.address(), deadline };
            context.wait(what, at, unlock, || lock.attempt())
        })
    }

    #[cold]
    #[track_caller]
    fn notify_simulated(&self, all: bool) -> bool {
        let at = Location::caller();
        sim::current(|context| context.notify(self.address(), all, at)).is_some()
    }
}

/// The thread will ask for the lock again, with all else that it has.
#[inline(always)]
#[track_caller]
fn expect_in_order<T: ?Sized>(guard: &MutexGuard<'_, T>) {
    // SAFETY: the raw lock is neither taken nor released.
    unsafe { MutexGuard::mutex(guard).raw() }.expect_in_order();
}
