//! Which group has which code, as far as that is known in memory.

use crate::ranks;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Mutex, MutexGuard, RwLock};
use std::ops::Range;

/// In the place of a group's code that is not known.
const UNKNOWN: u8 = u8::MAX;

/// Which group has which code.
#[derive(Debug)]
pub(crate) struct GroupCodes {
    /// By group: the number of its layout.
    known: RwLock<Vec<u8>>,
    /// Groups whose slots were written, by the account of the file above; later ones begin anew
    /// when it grows.
    begun: AtomicU64,
    /// The first group of the last growth.
    newest: AtomicU64,
    /// Held while slots are compared or written.
    slots: Mutex<()>,
}

impl Default for GroupCodes {
    fn default() -> GroupCodes {
        GroupCodes {
            known: ranks::GROUP_CODES.rwlock(Vec::new()),
            begun: AtomicU64::new(0),
            newest: AtomicU64::new(u64::MAX),
            slots: ranks::SLOTS.mutex(()),
        }
    }
}

impl GroupCodes {
    pub(crate) fn known(&self, group: u64) -> Option<u8> {
        let known = self.known.read();
        usize::try_from(group).ok().and_then(|at| known.get(at).copied()).filter(|code| *code != UNKNOWN)
    }

    pub(crate) fn set(&self, groups: Range<u64>, code: u8) {
        let mut known = self.known.write();
        let (start, end) = (groups.start as usize, groups.end as usize);
        if known.len() < end {
            known.resize(end, UNKNOWN);
        }
        known[start..end].fill(code);
    }

    pub(crate) fn forget(&self, group: u64) {
        self.set(group..group + 1, UNKNOWN);
    }

    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_begun(&self, groups: u64) {
        self.begun.store(groups, Ordering::Release);
    }

    /// The slots of these were written as those of new groups.
    pub(crate) fn begin(&self, groups: Range<u64>, code: u8) {
        self.set(groups.clone(), code);
        self.newest.store(groups.start, Ordering::Release);
        self.set_begun(groups.end);
    }

    /// Groups of the last growth since the array was opened.
    pub(crate) fn newest(&self) -> Range<u64> {
        self.newest.load(Ordering::Acquire)..self.begun()
    }

    /// There are no more than as many groups.
    pub(crate) fn end(&self, groups: u64) {
        self.begun.fetch_min(groups, Ordering::AcqRel);
        self.known.write().truncate(usize::try_from(groups).unwrap_or(usize::MAX));
    }

    /// While the caller holds the guard, no other thread compares or writes slots.
    pub(crate) fn lock_slots(&self) -> MutexGuard<'_, ()> {
        self.slots.lock()
    }
}
