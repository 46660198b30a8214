//! What the engine calls while it works: progress of recovery, events of the log's and the store's
//! devices, and wrappers of devices.

use firndb_base::sync::Arc;
use firndb_device::{Device, DeviceError};
use firndb_tier::PageTier;

/// Progress of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// The step.
    pub phase: RecoveryPhase,
    /// Bytes of log done; of redo in the background, pages; for [`RecoveryPhase::Undo`],
    /// transactions.
    pub done: u64,
    /// The total, in the same unit.
    pub total: u64,
    /// Whether transactions run meanwhile.
    pub in_background: bool,
}

/// The steps of recovery, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryPhase {
    /// Reading the log from the last checkpoint to its end.
    Scan,
    /// Finding open transactions and bringing the page map up to date.
    Analysis,
    /// Repeating page changes that had not been written.
    Redo,
    /// Undoing transactions that had not committed.
    Undo,
}

impl RecoveryPhase {
    /// The phase in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecoveryPhase::Scan => "reading the log",
            RecoveryPhase::Analysis => "analysis",
            RecoveryPhase::Redo => "redo",
            RecoveryPhase::Undo => "undo",
        }
    }
}

/// Called while recovery works.
pub type ProgressFn = Arc<dyn Fn(RecoveryProgress) + Send + Sync>;

/// Wraps one of a database's files, for tests.
pub type WrapDeviceFn =
    Arc<dyn Fn(&str, Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> + Send + Sync>;

/// Wraps what is below DRAM, for tests.
pub type WrapTierFn = Arc<dyn Fn(Arc<dyn PageTier>) -> Arc<dyn PageTier> + Send + Sync>;

/// What happened to the log's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEventKind {
    /// A device failed, or could not be read at opening. Commits go on.
    Lost,
    /// A device that failed has been dropped: no log on it is needed any more.
    Dropped,
    /// A device was added.
    Added,
    /// A device was removed.
    Removed,
    /// All log that is needed has as many copies again as it should have.
    Redundant,
    /// Log that only the archive still needed cannot be read any more: the archive has a gap.
    Unarchived,
    /// The archive takes no log at the moment. It is tried again, and the log is retained for it.
    ArchiveFails,
}

/// An event among the log's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEvent {
    /// What happened.
    pub kind: LogEventKind,
    /// The device's id; `None` if the event is about the whole log.
    pub member: Option<u32>,
    /// A sentence for people.
    pub message: String,
}

/// Called with events of the log's devices.
pub type LogEventFn = Arc<dyn Fn(&LogEvent) + Send + Sync>;

/// What happened to a device of a store that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEventKind {
    /// A device failed, or could not be used at opening. Work goes on without it.
    Lost,
    /// Another device took its place, and is being filled.
    Replaced,
    /// A new device has all that it should have.
    Filled,
    /// Something on a device was wrong, or could not be read, and was written anew.
    Repaired,
}

/// An event among the store's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreEvent {
    /// What happened.
    pub kind: StoreEventKind,
    /// The device, from 0.
    pub member: usize,
    /// A sentence for people.
    pub message: String,
}

/// Called with events of the store's devices.
pub type StoreEventFn = Arc<dyn Fn(&StoreEvent) + Send + Sync>;
