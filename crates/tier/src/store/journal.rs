//! What the store asks of the log: a narrow view, so that the store's tests can say exactly how much of the
//! log is durable.

use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_log::{Appended, Log, LogClass, LogError, Record};

pub(crate) trait Journal: Send + Sync {
    /// Appends a map record.
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError>;
    /// Blocks until `durable() >= lsn`.
    fn flush(&self, lsn: Lsn) -> Result<(), LogError>;
    /// All log before this LSN is durable. Takes no lock.
    fn durable(&self) -> Lsn;
}

impl Journal for Log {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        Log::append(self, LogClass::System, record)
    }
    fn flush(&self, lsn: Lsn) -> Result<(), LogError> {
        Log::flush(self, lsn)
    }
    fn durable(&self) -> Lsn {
        Log::durable(self)
    }
}

/// A log all of which is taken for durable: breaks the write-ahead rule on purpose.
pub(crate) struct Presumed(pub Arc<Log>);

impl Journal for Presumed {
    fn append(&self, record: Record<'_>) -> Result<Appended, LogError> {
        Journal::append(&*self.0, record)
    }
    fn flush(&self, _: Lsn) -> Result<(), LogError> {
        Ok(())
    }
    fn durable(&self) -> Lsn {
        self.0.end()
    }
}
