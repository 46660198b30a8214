//! One writing transaction, as others see it: whether it has ended, and its before-images.

use crate::ranks;
use crate::shared_versions::SharedVersions;
use firndb_base::TxnId;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Running, or being rolled back.
    Active = 0,
    /// Prepared: its fate is decided from outside.
    Prepared = 1,
    /// Its commit record is appended.
    Committed = 2,
    /// All undone.
    Aborted = 3,
    /// To be undone, which damage keeps it from: not before the next opening.
    SetAside = 4,
}

/// A transaction that writes or locks.
#[derive(Debug)]
pub(crate) struct TxnState {
    pub id: TxnId,
    status: AtomicU8,
    /// It ran in an earlier epoch of the database.
    pub found_by_recovery: bool,
    /// How often it has released locks without ending: counted after they are free, before waiters
    /// are woken. See [`crate::transaction::Transaction::wait_for`].
    releases: AtomicU32,
    /// Held while an entry moves to the undo tree, and while one is being undone: one that has been
    /// used is not spilled. Taken before page latches.
    pub moving: Mutex<()>,
    pub versions: SharedVersions,
}

impl TxnState {
    pub fn new(id: TxnId) -> TxnState {
        TxnState::with_versions(id, SharedVersions::default())
    }
    pub fn with_versions(id: TxnId, versions: SharedVersions) -> TxnState {
        let status = AtomicU8::new(Status::Active as u8);
        TxnState {
            id,
            status,
            found_by_recovery: false,
            releases: AtomicU32::new(0),
            moving: ranks::MOVING.mutex(()),
            versions,
        }
    }
    pub fn status(&self) -> Status {
        match self.status.load(Ordering::SeqCst) {
            0 => Status::Active,
            1 => Status::Prepared,
            2 => Status::Committed,
            3 => Status::Aborted,
            _ => Status::SetAside,
        }
    }
    pub fn set_status(&self, status: Status) {
        debug_assert!(!self.has_ended(), "{} has ended, and is to be {status:?}", self.id);
        self.status.store(status as u8, Ordering::SeqCst);
    }
    /// Notes that it has released locks. Then [`crate::waits::WaitGraph::ended`] is called.
    pub fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }
    pub fn releases(&self) -> u32 {
        self.releases.load(Ordering::SeqCst)
    }
    pub fn has_ended(&self) -> bool {
        matches!(self.status(), Status::Committed | Status::Aborted)
    }
}
