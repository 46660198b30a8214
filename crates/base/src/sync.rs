//! The engine's only locks, condition variables, atomics and threads.
//!
//! Locks do not poison: a panic in a worker poisons the *database* (see `firn`), never one lock.
//!
//! Everything that can block does so here, and here is where a simulating scheduler
//! ([`crate::sim`]) takes its turn: a simulated thread only ever *tries* the lock below and waits
//! in the scheduler instead. Every other thread pays one relaxed load of a counter that is not
//! written outside of simulations, and goes straight to `parking_lot`. Atomics are no scheduling
//! points: what threads do between two of these is one step in a simulation. Locks may have a
//! [`Rank`], by which tests and simulations see that they are taken in order. A loop that waits for
//! an atomic must therefore call [`spin_hint`] or [`thread::yield_now`] in each turn.

mod condvar;
mod latch;
mod lock;
mod once;
mod rank;
pub mod thread;

pub use condvar::Condvar;
pub use latch::RawLatch;
pub use lock::{
    MappedMutexGuard, Mutex, MutexGuard, RawMutex, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use once::OnceLock;
pub use rank::{DevicePermit, Rank, RankHold, before_device};
pub use std::sync::{Arc, Weak};

use crate::sim;

pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Tells the processor that the caller spins; a simulated thread yields to the others, so that what
/// it waits for can happen.
#[inline]
#[track_caller]
pub fn spin_hint() {
    if sim::simulating() {
        thread::yield_simulated();
    }
    std::hint::spin_loop();
}
