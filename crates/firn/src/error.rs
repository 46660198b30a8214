//! The one error of the public interface.

use firndb_base::codec::Malformed;
use firndb_base::sync::Arc;
use firndb_btree::TreeError;
use firndb_buffer::{BufferError, BufferErrorKind};
use firndb_device::{DeviceError, DeviceErrorKind};
use firndb_log::{LogError, LogErrorKind};
use firndb_query::{QueryError, QueryErrorKind};
use firndb_spill::{SpillError, SpillErrorKind};
use firndb_table::{TableError, TableErrorKind};
use firndb_tier::{TierError, TierErrorKind};
use firndb_txn::{TxnError, TxnErrorKind};
use std::fmt;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction wrote first: roll back and run the transaction again.
    Conflict,
    /// The transaction was the victim of a deadlock: roll back and run it again.
    Deadlock,
    /// A lock was not free by the deadline.
    Timeout,
    /// The caller's token was cancelled.
    Cancelled,
    /// A row with this key, or these values of a unique index, is there already.
    Duplicate,
    /// No table, index or prepared transaction has this name.
    NotFound,
    /// The name is taken.
    Exists,
    /// The table behind the handle was dropped or changed: look it up again.
    Stale,
    /// The volume, or the log, is full, or a transaction holds more locks, or more transactions are
    /// open or prepared, than there is space for: nothing was changed; the transaction can be
    /// rolled back, reads go on, and writes go on when there is space again.
    Full,
    /// The buffer is too small for the work in flight: give the database more memory.
    OutOfMemory,
    /// An argument or option is outside its range.
    BadArgument,
    /// Stored bytes are not what was written: run `firn check`, restore from a backup.
    Damaged,
    /// A device failed. What only reads may be tried again; after a failed write the database must
    /// be opened again.
    Failed,
    /// Whether the transaction committed will be known after the next opening.
    Unknown,
    /// The database is open in another process; or what was asked for is at work already.
    InUse,
    /// The path cannot be used: missing, no permission, or of a newer format than this program
    /// knows.
    Unusable,
    /// The transaction was begun, or the database opened, read-only.
    ReadOnly,
    /// The transaction or the database has been closed.
    Closed,
}

impl ErrorKind {
    /// A word that scripts can rely on.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::Conflict => "conflict",
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Duplicate => "duplicate",
            ErrorKind::NotFound => "not-found",
            ErrorKind::Exists => "exists",
            ErrorKind::Stale => "stale",
            ErrorKind::Full => "full",
            ErrorKind::OutOfMemory => "out-of-memory",
            ErrorKind::BadArgument => "bad-argument",
            ErrorKind::Damaged => "damaged",
            ErrorKind::Failed => "failed",
            ErrorKind::Unknown => "unknown",
            ErrorKind::InUse => "in-use",
            ErrorKind::Unusable => "unusable",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::Closed => "closed",
        }
    }
}

/// An error: its kind, which says what to do, a sentence for people, and the lower error that
/// caused it ([`std::error::Error::source`]): that of a layer of the engine, of a device or of the
/// operating system. The sentence contains the source's.
///
/// Errors are equal if kind and sentence are, whatever their sources.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    cause: Cause,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}
impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        (self.kind, &self.message, self.cause) == (other.kind, &other.message, other.cause)
    }
}
impl Eq for Error {}

/// What the engine distinguishes beyond the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The log is full, which a checkpoint may change.
    LogFull,
    /// A device could not read; nothing has changed.
    Unreadable,
    /// Only the kind matters.
    OfItsKind,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), cause: Cause::OfItsKind, source: None }
    }
    pub(crate) fn damaged(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, message)
    }
    pub(crate) fn bad_argument(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadArgument, message)
    }
    pub(crate) fn unusable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unusable, message)
    }
    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }
    pub(crate) fn full(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Full, message)
    }
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Failed, message)
    }
    pub(crate) fn exists(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Exists, message)
    }
    /// What can be done about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
    /// Whether the transaction may succeed if it is rolled back and run again.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        matches!(self.kind, ErrorKind::Conflict | ErrorKind::Deadlock)
    }
    /// Whether the log is full, which a checkpoint may change.
    pub(crate) fn is_log_full(&self) -> bool {
        self.cause == Cause::LogFull
    }
    /// Whether it concerns a single page, whose stored image is damaged or cannot be read.
    pub(crate) fn concerns_a_page(&self) -> bool {
        self.kind == ErrorKind::Damaged || self.cause == Cause::Unreadable
    }
    /// The error of a lower layer, of this kind and cause here.
    fn of_layer<E>(kind: ErrorKind, cause: Cause, message: &str, source: E) -> Error
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        Error { cause, ..Error::new(kind, message).caused_by(source) }
    }
    /// The operating system's error for a path.
    pub(crate) fn of_path(path: &std::path::Path, error: std::io::Error) -> Error {
        Error::unusable(format!("{}: {error}", path.display())).caused_by(error)
    }
    /// With the error that caused it.
    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }
    /// Puts `context` before its sentence.
    pub(crate) fn within(mut self, context: &str) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

// Each kind of a lower layer is matched by name: a new one does not compile before its meaning here
// is decided.

impl From<TxnError> for Error {
    fn from(error: TxnError) -> Error {
        let (kind, cause) = of_txn(error.kind);
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

fn of_txn(kind: TxnErrorKind) -> (ErrorKind, Cause) {
    let kind = match kind {
        TxnErrorKind::LogFull => return (ErrorKind::Full, Cause::LogFull),
        TxnErrorKind::Unreadable => return (ErrorKind::Failed, Cause::Unreadable),
        TxnErrorKind::Conflict => ErrorKind::Conflict,
        TxnErrorKind::Deadlock => ErrorKind::Deadlock,
        TxnErrorKind::Timeout => ErrorKind::Timeout,
        TxnErrorKind::Cancelled => ErrorKind::Cancelled,
        TxnErrorKind::Full | TxnErrorKind::TooMany => ErrorKind::Full,
        TxnErrorKind::NoFrame => ErrorKind::OutOfMemory,
        TxnErrorKind::TooLarge | TxnErrorKind::BadArgument => ErrorKind::BadArgument,
        TxnErrorKind::Damaged => ErrorKind::Damaged,
        TxnErrorKind::Unknown => ErrorKind::Unknown,
        TxnErrorKind::ReadOnly => ErrorKind::ReadOnly,
        TxnErrorKind::Closed => ErrorKind::Closed,
        // The table layer turns `Dropped` into its own kind; here it is a failure of the engine.
        TxnErrorKind::Failed | TxnErrorKind::Dropped => ErrorKind::Failed,
    };
    (kind, Cause::OfItsKind)
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Error {
        let (kind, cause) = of_table(error.kind);
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

fn of_table(kind: TableErrorKind) -> (ErrorKind, Cause) {
    let kind = match kind {
        TableErrorKind::Transaction(kind) => return of_txn(kind),
        TableErrorKind::Spill(kind) => of_spill(kind),
        TableErrorKind::Duplicate => ErrorKind::Duplicate,
        TableErrorKind::NotFound => ErrorKind::NotFound,
        TableErrorKind::Exists => ErrorKind::Exists,
        TableErrorKind::Dropped | TableErrorKind::Stale => ErrorKind::Stale,
        TableErrorKind::BadArgument => ErrorKind::BadArgument,
        TableErrorKind::Damaged => ErrorKind::Damaged,
        TableErrorKind::TooNew => ErrorKind::Unusable,
    };
    (kind, Cause::OfItsKind)
}

impl From<SpillError> for Error {
    fn from(error: SpillError) -> Error {
        Error::of_layer(of_spill(error.kind), Cause::OfItsKind, &error.message.clone(), error)
    }
}

fn of_spill(kind: SpillErrorKind) -> ErrorKind {
    match kind {
        SpillErrorKind::BadArgument => ErrorKind::BadArgument,
        SpillErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
        SpillErrorKind::Full => ErrorKind::Full,
        SpillErrorKind::Failed => ErrorKind::Failed,
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        let (kind, cause) = match error.kind {
            QueryErrorKind::Table(kind) => of_table(kind),
            QueryErrorKind::BadArgument => (ErrorKind::BadArgument, Cause::OfItsKind),
            QueryErrorKind::OutOfMemory => (ErrorKind::OutOfMemory, Cause::OfItsKind),
            QueryErrorKind::Full => (ErrorKind::Full, Cause::OfItsKind),
            QueryErrorKind::SpillFailed => (ErrorKind::Failed, Cause::OfItsKind),
            QueryErrorKind::Cancelled => (ErrorKind::Cancelled, Cause::OfItsKind),
            QueryErrorKind::Timeout => (ErrorKind::Timeout, Cause::OfItsKind),
        };
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        TxnError::from(error).into()
    }
}

impl From<BufferError> for Error {
    fn from(error: BufferError) -> Error {
        let (kind, cause) = match error.kind {
            BufferErrorKind::LogFull => (ErrorKind::Full, Cause::LogFull),
            BufferErrorKind::Unreadable => (ErrorKind::Failed, Cause::Unreadable),
            BufferErrorKind::Full => (ErrorKind::Full, Cause::OfItsKind),
            BufferErrorKind::NoFrame => (ErrorKind::OutOfMemory, Cause::OfItsKind),
            BufferErrorKind::Damaged | BufferErrorKind::NotAllocated => {
                (ErrorKind::Damaged, Cause::OfItsKind)
            }
            BufferErrorKind::Failed | BufferErrorKind::BadArgument => (ErrorKind::Failed, Cause::OfItsKind),
        };
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

impl From<TierError> for Error {
    fn from(error: TierError) -> Error {
        let (kind, cause) = match error.kind {
            TierErrorKind::LogFull => (ErrorKind::Full, Cause::LogFull),
            TierErrorKind::Unreadable => (ErrorKind::Failed, Cause::Unreadable),
            TierErrorKind::Full => (ErrorKind::Full, Cause::OfItsKind),
            TierErrorKind::Damaged | TierErrorKind::NotAllocated => (ErrorKind::Damaged, Cause::OfItsKind),
            TierErrorKind::BadArgument => (ErrorKind::BadArgument, Cause::OfItsKind),
            TierErrorKind::TooNew => (ErrorKind::Unusable, Cause::OfItsKind),
            // The caller below retries after the second and third; they do not come this far.
            TierErrorKind::Failed | TierErrorKind::LogBufferFull | TierErrorKind::Unprepared => {
                (ErrorKind::Failed, Cause::OfItsKind)
            }
        };
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        let (kind, cause) = match error.kind {
            LogErrorKind::Full => (ErrorKind::Full, Cause::LogFull),
            LogErrorKind::Damaged => (ErrorKind::Damaged, Cause::OfItsKind),
            LogErrorKind::BadArgument => (ErrorKind::BadArgument, Cause::OfItsKind),
            LogErrorKind::Closed => (ErrorKind::Closed, Cause::OfItsKind),
            LogErrorKind::Failed | LogErrorKind::BufferFull => (ErrorKind::Failed, Cause::OfItsKind),
        };
        Error::of_layer(kind, cause, &error.message.clone(), error)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => ErrorKind::Full,
            DeviceErrorKind::OutOfRange => ErrorKind::Damaged,
            DeviceErrorKind::Locked => ErrorKind::InUse,
            DeviceErrorKind::Unusable => ErrorKind::Unusable,
            DeviceErrorKind::Failed => ErrorKind::Failed,
        };
        Error::of_layer(kind, Cause::OfItsKind, &error.message.clone(), error)
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Error {
        Error::damaged(error.to_string()).caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_source_is_the_error_of_the_layer_that_failed() {
        let lower = DeviceError::new(DeviceErrorKind::NoSpace, "the volume is full");
        let error = Error::from(lower.clone()).within("writing a page");
        assert_eq!(error.kind(), ErrorKind::Full);
        assert_eq!(error.to_string(), "writing a page: the volume is full");
        let source = error.source().expect("the device's");
        assert_eq!(source.downcast_ref::<DeviceError>(), Some(&lower));
        assert!(Error::damaged("of its own").source().is_none());
    }
}
