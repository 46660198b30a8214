//! The order of locks, checked while tests and simulations run.
//!
//! A lock that is made by [`Rank::mutex`] or [`Rank::rwlock`] must be asked for only by a thread
//! whose other ranked locks come before it. Otherwise the thread panics, whether or not another
//! thread is there to complete a deadlock: one run through a piece of code shows the wrong order,
//! where a deadlock needs two threads and bad timing.
//!
//! * Checked in builds with debug assertions (tests, `cargo run`), on every thread, simulated or
//!   not. In other builds a rank is nothing: no field, no code.
//! * A lock that is *tried* cannot wait, so it may come in any order; once held it counts.
//! * Waiting on a condition variable is asking for its mutex again.
//! * A lock without a rank is not checked. Those are leaves (no thread waits for anything under
//!   them) or are held by tests.
//!
//! A rank may also say that no thread waits for a device while it holds such a lock exclusively
//! ([`Rank::bars_devices`]): a page latch, or a lock that every transaction needs, held over a slow
//! or stalled device stops every thread that needs it. The places where a thread may wait for a
//! device call [`before_device`], which panics if the thread has such a lock, whether or not the
//! wait would have been long. Only the frame that is being filled may be latched over the read that
//! fills it ([`super::RawLatch::allow_devices`]).
//!
//! Ranks are numbers over all crates, because orders go through several of them. Each crate names
//! its own, where its order is written down:
//!
//! | from | whose |
//! |---|---|
//! | 100 | `firn`: changes of cache and log devices, checkpoints |
//! | 200 | `table`: definitions |
//! | 300 | `txn`: before page latches |
//! | 400 | page latches |
//! | 450 | `txn`: under page latches |
//! | 500 | `buffer` |
//! | 550 | `tier`: switch, caches, store |
//! | 700 | `firn`: what the log's callbacks take |
//! | 750 | `log` |
//! | 800 | `tier`: what is under the log's |
//! | 900 | leaves |

use super::lock::{Mutex, RawMutex, RawRwLock, RwLock};

/// A place in the order of locks: locks with greater numbers are taken later.
#[derive(Debug)]
pub struct Rank {
    #[cfg_attr(not(debug_assertions), expect(dead_code))]
    number: u16,
    #[cfg_attr(not(debug_assertions), expect(dead_code))]
    name: &'static str,
    #[cfg_attr(not(debug_assertions), expect(dead_code))]
    several: bool,
    #[cfg_attr(not(debug_assertions), expect(dead_code))]
    bars_devices: bool,
}

impl Rank {
    /// For one lock at a time. `name` is for people.
    #[must_use]
    pub const fn new(number: u16, name: &'static str) -> Rank {
        Rank { number, name, several: false, bars_devices: false }
    }

    /// For locks of which a thread may hold several, in an order that is not checked here.
    #[must_use]
    pub const fn several(number: u16, name: &'static str) -> Rank {
        Rank { number, name, several: true, bars_devices: false }
    }

    /// The same, for locks that a thread must not hold exclusively while it waits for a device.
    #[must_use]
    pub const fn bars_devices(self) -> Rank {
        Rank { bars_devices: true, ..self }
    }

    /// A mutex of this rank.
    pub const fn mutex<T>(&'static self, value: T) -> Mutex<T> {
        Mutex::from_raw(RawMutex::ranked(self), value)
    }

    /// A reader-writer lock of this rank.
    pub const fn rwlock<T>(&'static self, value: T) -> RwLock<T> {
        RwLock::from_raw(RawRwLock::ranked(self), value)
    }
}

/// The calling thread is about to wait for a device, or may have to. In builds with debug
/// assertions it panics if the thread has a lock that bars this; in other builds this is nothing.
#[inline(always)]
#[track_caller]
pub fn before_device() {
    #[cfg(debug_assertions)]
    checking::before_device();
}

/// Until it is dropped its thread may wait for devices whatever it holds: for the rare case that
/// has to be decided under a latch, and says so where it is made.
#[must_use = "dropping the permit ends it"]
pub struct DevicePermit {
    /// Of the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl DevicePermit {
    /// One for the calling thread.
    pub fn granted() -> DevicePermit {
        #[cfg(debug_assertions)]
        checking::PERMITS.with(|permits| permits.set(permits.get() + 1));
        DevicePermit { _not_send: std::marker::PhantomData }
    }
}

impl Drop for DevicePermit {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        let _ = checking::PERMITS.try_with(|permits| permits.set(permits.get() - 1));
    }
}

#[cfg(debug_assertions)]
pub(super) use checking::Ranked;
#[cfg(not(debug_assertions))]
pub(super) use nothing::Ranked;

/// Without checks.
#[cfg(not(debug_assertions))]
mod nothing {
    use super::Rank;

    pub struct Ranked;

    impl Ranked {
        pub const NONE: Ranked = Ranked;
        pub const fn of(_: &'static Rank) -> Ranked {
            Ranked
        }
        #[inline(always)]
        pub fn ask(&self, _: usize) {}
        #[inline(always)]
        pub fn taken(&self, _: usize) {}
        #[inline(always)]
        pub fn taken_shared(&self, _: usize) {}
        #[inline(always)]
        pub fn set_bars_devices(&self, _: usize, _: bool) {}
        #[inline(always)]
        pub fn given_back(&self, _: usize) {}
    }
}

#[cfg(debug_assertions)]
mod checking {
    use super::Rank;
    use std::cell::{Cell, RefCell};
    use std::panic::Location;

    /// A ranked lock that the thread has.
    struct Held {
        address: usize,
        rank: &'static Rank,
        since: &'static Location<'static>,
        bars_devices: bool,
    }

    std::thread_local! {
        static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
        pub(super) static PERMITS: Cell<u32> = const { Cell::new(0) };
    }

    #[track_caller]
    pub(super) fn before_device() {
        let at = Location::caller();
        if PERMITS.try_with(Cell::get).unwrap_or(1) > 0 {
            return;
        }
        let barring = HELD.try_with(|held| {
            held.borrow().iter().find(|held| held.bars_devices).map(|held| (held.rank, held.since))
        });
        let Ok(Some((held, since))) = barring else { return };
        if std::thread::panicking() {
            return;
        }
        panic!(
            "a thread may wait for a device at {at} and has had \"{}\" ({}) exclusively since {since}",
            held.name, held.number
        );
    }

    /// What a lock carries.
    pub struct Ranked(Option<&'static Rank>);

    impl Ranked {
        pub const NONE: Ranked = Ranked(None);

        pub const fn of(rank: &'static Rank) -> Ranked {
            Ranked(Some(rank))
        }

        /// The thread is about to wait for the lock at `address`, or to give it away for the length
        /// of a wait.
        #[track_caller]
        pub fn ask(&self, address: usize) {
            let Some(rank) = self.0 else { return };
            let at = Location::caller();
            // A thread's locals may be gone at its end; what it does then is the runtime's.
            let wrong = HELD.try_with(|held| {
                let held = held.borrow();
                let later = |held: &&Held| {
                    held.address != address
                        && (held.rank.number > rank.number
                            || held.rank.number == rank.number && !rank.several)
                };
                held.iter().find(later).map(|held| (held.rank, held.since))
            });
            let Ok(Some((held, since))) = wrong else { return };
            if std::thread::panicking() {
                return;
            }
            panic!(
                "locks in the wrong order: \"{}\" ({}) is asked for at {at} by a thread that has had \"{}\" ({}) since {since}",
                rank.name, rank.number, held.name, held.number
            );
        }

        /// The thread has the lock.
        #[track_caller]
        pub fn taken(&self, address: usize) {
            if let Some(rank) = self.0 {
                self.hold(address, rank.bars_devices);
            }
        }

        /// The thread has the lock, and others may have it too.
        #[track_caller]
        pub fn taken_shared(&self, address: usize) {
            self.hold(address, false);
        }

        #[track_caller]
        fn hold(&self, address: usize, bars_devices: bool) {
            let Some(rank) = self.0 else { return };
            let since = Location::caller();
            let _ = HELD.try_with(|held| held.borrow_mut().push(Held { address, rank, since, bars_devices }));
        }

        /// From here on the thread, which has the lock, may wait for devices or not, as far as this
        /// lock goes.
        pub fn set_bars_devices(&self, address: usize, bars_devices: bool) {
            if self.0.is_none() {
                return;
            }
            let _ = HELD.try_with(|held| {
                if let Some(held) = held.borrow_mut().iter_mut().rfind(|held| held.address == address) {
                    held.bars_devices = bars_devices;
                }
            });
        }

        /// The thread has it no more.
        pub fn given_back(&self, address: usize) {
            if self.0.is_none() {
                return;
            }
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(place) = held.iter().rposition(|held| held.address == address) {
                    held.remove(place);
                }
            });
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::{DevicePermit, Rank, before_device};
    use crate::sync::{Condvar, RawLatch, thread};
    use std::time::Duration;

    static OUTER: Rank = Rank::new(1, "outer");
    static INNER: Rank = Rank::new(2, "inner");
    static MANY: Rank = Rank::several(3, "many");

    fn wrong(work: impl FnOnce() + Send + 'static) -> String {
        // On a thread of its own: what a panic leaves held ends with it.
        let ended = thread::spawn("wrong", work).expect("a thread").join();
        let panic = ended.expect_err("the order is wrong");
        panic.downcast_ref::<String>().expect("a sentence").clone()
    }

    #[test]
    fn locks_in_their_order_are_had_again_and_again() {
        let (outer, inner) = (OUTER.mutex(1), INNER.rwlock(2));
        for _ in 0..3 {
            let first = outer.lock();
            assert_eq!(*first + *inner.read(), 3);
            let second = inner.write();
            // Released in any order.
            drop(first);
            drop(second);
        }
        let _inner = inner.read();
        assert!(outer.try_lock().is_some(), "a thread that tries does not wait");
    }

    #[test]
    fn a_wrong_order_is_reported_with_both_places() {
        let report = wrong(|| {
            let (outer, inner) = (OUTER.mutex(()), INNER.rwlock(()));
            let _inner = inner.read();
            let _outer = outer.lock();
        });
        assert!(
            report.contains("\"outer\" (1) is asked for") && report.contains("had \"inner\" (2)"),
            "{report}"
        );
        assert_eq!(report.matches("rank.rs").count(), 2, "{report}");
    }

    #[test]
    fn two_of_a_rank_are_wrong_unless_said_otherwise() {
        let report = wrong(|| {
            let (one, two) = (OUTER.mutex(()), OUTER.mutex(()));
            let _one = one.lock();
            let _two = two.lock();
        });
        assert!(report.contains("wrong order"), "{report}");
        let (one, two) = (MANY.mutex(()), MANY.mutex(()));
        let _both = (one.lock(), two.lock());
    }

    #[test]
    fn what_was_tried_counts_once_it_is_held() {
        let report = wrong(|| {
            let (outer, inner) = (OUTER.mutex(()), INNER.mutex(()));
            let _inner = inner.try_lock().expect("it is free");
            let _outer = outer.lock();
        });
        assert!(report.contains("wrong order"), "{report}");
    }

    #[test]
    fn a_wait_asks_for_its_lock_again() {
        let report = wrong(|| {
            let (outer, inner) = (OUTER.mutex(()), INNER.mutex(()));
            let mut outer = outer.lock();
            let _inner = inner.lock();
            Condvar::new().wait_for(&mut outer, Duration::from_millis(1));
        });
        assert!(report.contains("\"outer\" (1) is asked for"), "{report}");
    }

    static BARRING: Rank = Rank::several(4, "barring").bars_devices();

    #[test]
    fn a_lock_that_bars_devices_is_reported_unless_it_is_shared_or_permitted() {
        let (mutex, latch) = (BARRING.mutex(()), RawLatch::ranked(&BARRING));
        before_device();
        latch.lock_exclusive();
        latch.allow_devices();
        before_device();
        latch.bar_devices();
        {
            let _permit = DevicePermit::granted();
            before_device();
        }
        // SAFETY: held exclusively here, then shared, and released once.
        unsafe { latch.downgrade() };
        before_device();
        // SAFETY: as above.
        unsafe { latch.unlock_shared() };
        drop(mutex.lock());
        before_device();
        let report = wrong(move || {
            let _held = mutex.lock();
            before_device();
        });
        assert!(report.contains("has had \"barring\" (4) exclusively since"), "{report}");
        let report = wrong(move || {
            latch.lock_exclusive();
            latch.allow_devices();
            latch.bar_devices();
            before_device();
        });
        assert_eq!(report.matches("rank.rs").count(), 2, "{report}");
    }

    #[test]
    fn ranks_are_not_asked_of_others() {
        let plain = crate::sync::Mutex::new(());
        let inner = INNER.mutex(());
        let _inner = inner.lock();
        let first = plain.lock();
        assert!(plain.try_lock().is_none());
        drop(first);
    }
}
