//! Logs in memory, for tests of the layers above.

use crate::ids::{LogIdentity, MemberId};
use crate::log::Log;
use crate::members::redundancy::Redundancy;
use crate::options::LogOptions;
use firndb_base::sync::Arc;
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::{Device, Fill, MemoryDevice};

/// Options for tests: no threads, small reserves.
#[must_use]
pub fn options() -> LogOptions {
    LogOptions {
        buffer_bytes: 1 << 20,
        workers: false,
        rollback_reserve_percent: 5,
        system_reserve_percent: 5,
        ..LogOptions::default()
    }
}

/// The identity of a log with `members` members in its first epoch.
#[must_use]
pub fn identity(members: u32) -> LogIdentity {
    LogIdentity {
        database: DatabaseId(*b"firn log testing"),
        members: (0..members).map(MemberId).collect(),
        epochs: vec![(Epoch(1), Lsn::FIRST)],
        redundancy: Redundancy::default(),
    }
}

/// A device in memory of `bytes` bytes.
#[must_use]
pub fn memory_device(name: &str, bytes: u64) -> Arc<dyn Device> {
    let device = MemoryDevice::new(name);
    device.grow(bytes, Fill::Written).expect("a memory device without limit grows");
    Arc::new(device)
}

/// A new log on one device of 64 MiB in memory, without threads.
#[must_use]
pub fn memory_log() -> Arc<Log> {
    memory_log_with(64 << 20)
}

/// A new log on one device of `bytes` bytes in memory, without threads.
#[must_use]
pub fn memory_log_with(bytes: u64) -> Arc<Log> {
    Log::create(vec![memory_device("memory log", bytes)], identity(1), Epoch(1), options())
        .expect("a log is created in memory")
}
