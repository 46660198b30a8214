//! The frontend. SKELETON.

use crate::{LogError, LogIdentity, Record};
use firn_base::{Epoch, Lsn};
use firn_device::Device;
use firn_base::sync::Arc;

/// How the log uses its memory and devices.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of DRAM for log not yet handed to a device.
    pub buffer_bytes: usize,
}

/// Who asks for log space: what is reserved for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogClass {
    /// Work of transactions: refused first.
    Normal,
    /// Rolling back, ending transactions, structure changes on behalf of rollback: may use the reserve.
    Rollback,
    /// Checkpoints and page-map changes, which make space: may use the last of it.
    System,
}

/// Where a group was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the group's first record.
    pub first: Lsn,
    /// First LSN after the group; the record is durable once `durable() >= end`.
    pub end: Lsn,
}

/// Physical space of the online log, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    /// Bytes that the devices hold in all.
    pub capacity_bytes: u64,
    /// Bytes of it that hold log at or after the truncation point, or wait to be written.
    pub used_bytes: u64,
    /// Oldest LSN still kept.
    pub oldest: Lsn,
}

/// Counters since the log was opened.
#[derive(Clone, Debug, Default)]
pub struct LogStatistics {
    /// Records appended.
    pub records: u64,
    /// Bytes appended, without framing.
    pub appended_bytes: u64,
    /// Requests written to devices.
    pub requests: u64,
    /// Bytes written to devices, framing and padding included.
    pub written_bytes: u64,
    /// Requests by size: index i counts those of 2^i blocks of 512 B and up to twice as many less one.
    pub requests_by_size: [u64; 16],
}

/// The log of an open database.
pub struct Log {}

impl Log {
    /// Pre-writes and formats `devices` (each already grown to its size by the caller) as a new log.
    pub fn create(
        _devices: Vec<Arc<dyn Device>>,
        _identity: LogIdentity,
        _epoch: Epoch,
        _options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        todo!()
    }

    /// Appends a record alone. Does no I/O; waits if the log buffer is full.
    pub fn append(&self, class: LogClass, record: Record<'_>) -> Result<Appended, LogError> {
        self.append_group(class, &[record])
    }

    /// Appends records that recovery delivers together or not at all. The i-th record's LSN is
    /// `first + sum of Log::framed_len(body) of those before it`.
    pub fn append_group(&self, _class: LogClass, _records: &[Record<'_>]) -> Result<Appended, LogError> {
        todo!()
    }

    /// Bytes of stream that a record with a body of `body_len` bytes takes.
    #[must_use]
    pub fn framed_len(body_len: usize) -> u64 {
        body_len as u64 + 6
    }

    /// LSN that the next record will get.
    pub fn end(&self) -> Lsn {
        todo!()
    }

    /// All log before this LSN is durable.
    pub fn durable(&self) -> Lsn {
        todo!()
    }

    /// Blocks until `durable() >= lsn`. The caller's thread writes itself where a device is free.
    pub fn flush(&self, _lsn: Lsn) -> Result<(), LogError> {
        todo!()
    }

    /// Has the log flushed to `lsn` in the background.
    pub fn request_flush(&self, _lsn: Lsn) {
        todo!()
    }

    /// Forgets all log before `lsn`.
    pub fn truncate(&self, _lsn: Lsn) {
        todo!()
    }

    /// Space in use.
    pub fn space(&self) -> LogSpace {
        todo!()
    }

    /// Counters.
    pub fn statistics(&self) -> LogStatistics {
        todo!()
    }

    /// Flushes, writes seal blocks, stops the workers. Later appends are refused.
    pub fn close(&self) -> Result<(), LogError> {
        todo!()
    }
}
