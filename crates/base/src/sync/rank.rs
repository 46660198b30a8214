//! The order of locks, checked while tests and simulations run.
//!
//! A lock that is made by [`Rank::mutex`] or [`Rank::rwlock`] must be asked for only by a thread
//! whose other ranked locks come before it. Otherwise the thread panics, whether or not another
//! thread is there to complete a deadlock: one run through a piece of code shows the wrong order,
//! where a deadlock needs two threads and bad timing.
//!
//! * Checked in builds with debug assertions (tests, `cargo run`), on every thread, simulated or
//!   not. In other builds a rank is nothing: no field, no code.
//! * No thread asks for a lock that it has, not even to share it: a writer that waits keeps out
//!   readers that come later.
//! * A lock that is *tried* cannot wait, so it may come in any order; once held it counts.
//! * Waiting on a condition variable is asking for its mutex again.
//! * A lock without a rank is not checked. Those are leaves (no thread waits for anything under
//!   them) or are held by tests.
//! * What is no lock and has threads waiting for it may have a place in the order ([`Rank::hold`]).
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

/// Something that the calling thread has and other threads wait for, without a lock of its own: it
/// has its place in the order all the same, until this is dropped.
#[must_use = "dropping it ends the hold"]
pub struct RankHold {
    ranked: Ranked,
    address: usize,
    /// Of the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Rank {
    /// The calling thread has what lies at `address`, which others know it by.
    #[track_caller]
    pub fn hold(&'static self, address: usize) -> RankHold {
        let ranked = Ranked::of(self);
        ranked.taken(address);
        RankHold { ranked, address, _not_send: std::marker::PhantomData }
    }
}

impl Rank {
    /// In builds with debug assertions, panics if the calling thread has a lock of this rank or a
    /// later one.
    #[inline(always)]
    #[track_caller]
    pub fn assert_none_from(&'static self) {
        #[cfg(debug_assertions)]
        checking::assert_none_from(self);
    }
}

impl Drop for RankHold {
    fn drop(&mut self) {
        self.ranked.given_back(self.address);
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
        pub fn assert_not_held(&self, _: usize) {}
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

    #[track_caller]
    pub(super) fn assert_none_from(rank: &'static Rank) {
        let at = Location::caller();
        let held = HELD.try_with(|held| {
            let held = held.borrow();
            held.iter().find(|held| held.rank.number >= rank.number).map(|held| (held.rank, held.since))
        });
        let Ok(Some((held, since))) = held else { return };
        if std::thread::panicking() {
            return;
        }
        panic!("at {at} a thread has had \"{}\" ({}) since {since}", held.name, held.number);
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

        /// The thread would wait for itself if it had the lock.
        #[track_caller]
        pub fn assert_not_held(&self, address: usize) {
            let at = Location::caller();
            let held = HELD.try_with(|held| {
                held.borrow().iter().find(|held| held.address == address).map(|held| (held.rank, held.since))
            });
            let Ok(Some((rank, since))) = held else { return };
            if std::thread::panicking() {
                return;
            }
            panic!("\"{}\" is asked for at {at} by the thread that has had it since {since}", rank.name);
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
mod tests;
