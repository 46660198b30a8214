//! Reading a log back. SKELETON.

use crate::{Log, LogError, LogOptions, Record};
use firn_base::sync::Arc;
use firn_base::{DatabaseId, Epoch, Lsn};
use firn_device::Device;

/// Names one log device within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u32);

/// What the superblock knows of the log, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// Whose log it is.
    pub database: DatabaseId,
    /// Every member, in the order of the devices handed in.
    pub members: Vec<MemberId>,
    /// Each epoch that log still in use may carry, with the LSN at which it starts; ascending.
    pub epochs: Vec<(Epoch, Lsn)>,
}

/// The log as found on the devices, up to its end.
pub struct LogScan {}

impl LogScan {
    /// Finds the log from `from` (the redo start of the last checkpoint) to its end, reading all devices
    /// side by side. `progress` is told bytes read and bytes expected.
    pub fn new(
        _devices: Vec<Arc<dyn Device>>,
        _identity: LogIdentity,
        _from: Lsn,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LogScan, LogError> {
        todo!()
    }

    /// First LSN after the last whole group.
    pub fn end(&self) -> Lsn {
        todo!()
    }

    /// Where the next epoch may start: at or after `end()`, on a block boundary, past everything that an
    /// old block could claim.
    pub fn next_epoch_start(&self) -> Lsn {
        todo!()
    }

    /// The records from `from` to the end, in LSN order, incomplete last group left out. May be called
    /// more than once. `from` is a record's LSN at or after the one given to `new`.
    pub fn records(&self, _from: Lsn) -> Records<'_> {
        todo!()
    }

    /// Opens the log for appending in `epoch`, which the caller has made durable in the superblock with
    /// its start at `start`. What lies before `end()` stays readable through this scan until the log is
    /// truncated past it: redo reads records while eviction already appends.
    pub fn open_log(&self, _epoch: Epoch, _start: Lsn, _options: LogOptions) -> Result<Arc<Log>, LogError> {
        todo!()
    }
}

/// Streams records with bounded memory.
pub struct Records<'a> {
    _scan: &'a LogScan,
}

impl Records<'_> {
    /// The next record; `None` at the end. The body lives until the next call.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(Lsn, Record<'_>)>, LogError> {
        todo!()
    }
}
