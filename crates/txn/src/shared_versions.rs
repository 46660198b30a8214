//! A transaction's before-images, as its own thread and others use them.
//!
//! Others read them, move them into the undo tree and purge them, under the lock. Only the
//! transaction's own thread adds entries, and what it alone changes it need not lock to know: how
//! many there are, and that the newest one's change has been made.

use crate::ranks;
use crate::versions::{VersionMemory, Versions};
use firndb_base::TreeId;
use firndb_base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
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
    /// Those of a transaction that begins with `memory`, of which `allowance` bytes are not
    /// counted.
    pub fn with_memory(memory: VersionMemory, allowance: usize) -> SharedVersions {
        let mut versions = Versions::default();
        versions.adopt(memory, allowance);
        SharedVersions { versions: ranks::VERSIONS.mutex(versions), ..SharedVersions::default() }
    }

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

    /// As [`SharedVersions::settle`], for a change that turned the row at `key` into a ghost. One
    /// lock covers both steps, so a checkpoint that may spill the entry also lists the ghost.
    pub fn settle_with_ghost(&self, tree: TreeId, key: &[u8], total: &AtomicUsize) {
        let mut versions = self.lock();
        versions.settle();
        versions.ghosts.add(tree, key);
        versions.account(total);
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

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::Lsn;

    /// Cause: the entry was settled before the ghost was listed. Effect: a checkpoint in between
    /// moved the entry into the undo tree, and its list of ghosts lacked this one after a crash.
    #[test]
    fn a_ghost_is_listed_before_its_entry_may_be_spilled() {
        let (shared, total) = (SharedVersions::default(), AtomicUsize::new(0));
        shared.lock().push(b"undo", Lsn(1));
        assert_eq!(shared.lock().oldest_to_spill(Lsn(9)), None);
        shared.settle_with_ghost(TreeId(1), b"key", &total);
        assert_eq!(shared.lock().oldest_to_spill(Lsn(9)), Some(0));
        assert!(!shared.lock().ghosts.is_empty());
        shared.lock().push(b"undo", Lsn(2));
        assert_eq!(shared.next_index(), 2);
        shared.settle();
        assert!(shared.lock().mark_spilled(0));
        assert_eq!(shared.lock().oldest_to_spill(Lsn(9)), Some(1));
    }
}
