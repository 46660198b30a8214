//! A transaction's before-images, as its own thread and others use them.
//!
//! Others read them, move them into the undo tree and purge them, under the lock. Only the
//! transaction's own thread adds entries, and what it alone changes it need not lock to know: how
//! many there are, and that the newest one's change has been made.

use crate::ranks;
use crate::versions::Versions;
use firndb_base::sync::atomic::{AtomicU32, Ordering};
use firndb_base::sync::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

/// The before-images of one transaction.
#[derive(Debug)]
pub(crate) struct SharedVersions {
    versions: Mutex<Versions>,
    /// The index that the next entry will get: written before the lock is released.
    next: AtomicU32,
    /// The changes of the entries before this one have been made, if that is all of them: the next
    /// to lock settles the newest.
    settled: AtomicU32,
}

impl Default for SharedVersions {
    fn default() -> SharedVersions {
        let versions = ranks::VERSIONS.mutex(Versions::default());
        SharedVersions { versions, next: AtomicU32::new(0), settled: AtomicU32::new(0) }
    }
}

impl SharedVersions {
    pub fn lock(&self) -> VersionsGuard<'_> {
        let mut versions = self.versions.lock();
        if versions.next_index() == self.settled.load(Ordering::Acquire) {
            versions.settle();
        }
        VersionsGuard { versions, next: &self.next }
    }

    /// Index that the next entry will get. For the transaction's own thread.
    pub fn next_index(&self) -> u32 {
        self.next.load(Ordering::Acquire)
    }

    /// The newest entry's change has been made. For the transaction's own thread.
    pub fn settle(&self) {
        self.settled.store(self.next_index(), Ordering::Release);
    }
}

/// The lock.
pub(crate) struct VersionsGuard<'a> {
    versions: MutexGuard<'a, Versions>,
    next: &'a AtomicU32,
}

impl Deref for VersionsGuard<'_> {
    type Target = Versions;
    fn deref(&self) -> &Versions {
        &self.versions
    }
}

impl DerefMut for VersionsGuard<'_> {
    fn deref_mut(&mut self) -> &mut Versions {
        &mut self.versions
    }
}

impl Drop for VersionsGuard<'_> {
    fn drop(&mut self) {
        self.next.store(self.versions.next_index(), Ordering::Release);
    }
}
