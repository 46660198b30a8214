//! The store's view of the log: narrow, so that the store's tests can control exactly how much of
//! the log is durable. Durable means on the log's devices: what only the archive has may be lost
//! with it, and the store must not contain more than the log.

use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_log::{Appended, Log, LogClass, LogError, LogErrorKind, Record};

/// Waits for space in the log's buffer if an append of `record` was refused for lack of it; returns
/// whether it was.
pub(crate) fn made_space(
    journal: &dyn Journal,
    refused: &LogError,
    record: Record<'_>,
) -> Result<bool, LogError> {
    if refused.kind != LogErrorKind::BufferFull {
        return Ok(false);
    }
    journal.wait_for_buffer(Log::framed_len(record.body.len()))?;
    Ok(true)
}

/// What the store needs of the log.
pub trait Journal: Send + Sync {
    /// Appends a map record. Waits for no device, since the store's `order` is held: fails with
    /// kind `BufferFull` if there is no space in the log's buffer; [`Journal::wait_for_buffer`]
    /// waits for space.
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError>;
    /// Blocks until there has been space for `bytes` bytes of stream.
    fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError>;
    /// Blocks until `durable() >= lsn`.
    fn flush(&self, lsn: Lsn) -> Result<(), LogError>;
    /// All log before this LSN is durable. Takes no lock.
    fn durable(&self) -> Lsn;
    /// LSN of the next record. Takes no lock.
    fn end(&self) -> Lsn;
    /// Whether there is log to spare, for records of work that could wait. Map records may take all
    /// but the log's last reserve, which checkpoints need; and while a backup or an archive holds
    /// the log, no checkpoint frees any.
    fn has_spare(&self) -> bool;
}

impl Journal for Log {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        Log::try_append(self, LogClass::System, record)
    }
    fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        Log::wait_for_buffer(self, bytes)
    }
    fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        self.flush_to_devices(lsn)
    }
    fn durable(&self) -> Lsn {
        self.on_devices()
    }
    fn end(&self) -> Lsn {
        Log::end(self)
    }
    fn has_spare(&self) -> bool {
        !self.space().is_tight()
    }
}

/// A log all of which the store treats as durable: breaks the WAL rule on purpose.
pub(crate) struct Presumed(pub Arc<Log>);

impl Journal for Presumed {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        Journal::append(&*self.0, record)
    }
    fn wait_for_buffer(&self, bytes: u64) -> Result<(), LogError> {
        Log::wait_for_buffer(&self.0, bytes)
    }
    fn flush(&self, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }
    fn durable(&self) -> Lsn {
        self.end()
    }
    fn end(&self) -> Lsn {
        self.0.end()
    }
    fn has_spare(&self) -> bool {
        !self.0.space().is_tight()
    }
}
