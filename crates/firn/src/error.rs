//! The one error of the public interface.

use firn_base::codec::Malformed;
use firn_btree::TreeError;
use firn_buffer::{BufferError, BufferErrorKind};
use firn_device::{DeviceError, DeviceErrorKind};
use firn_log::{LogError, LogErrorKind};
use firn_table::{TableError, TableErrorKind};
use firn_tier::{TierError, TierErrorKind};
use firn_txn::{TxnError, TxnErrorKind};
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
    /// The database is open in another process.
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
/// caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    cause: Cause,
}

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
        Error { kind, message: message.into(), cause: Cause::OfItsKind }
    }
    pub(crate) fn damaged(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, message)
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
    fn log_full(message: String) -> Error {
        Error { kind: ErrorKind::Full, message, cause: Cause::LogFull }
    }
    fn unreadable(message: String) -> Error {
        Error { kind: ErrorKind::Failed, message, cause: Cause::Unreadable }
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
impl std::error::Error for Error {}

impl From<TxnError> for Error {
    fn from(error: TxnError) -> Error {
        from_txn(error.kind, error.message)
    }
}

fn from_txn(kind: TxnErrorKind, message: String) -> Error {
    let kind = match kind {
        TxnErrorKind::LogFull => return Error::log_full(message),
        TxnErrorKind::Unreadable => return Error::unreadable(message),
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
        _ => ErrorKind::Failed,
    };
    Error::new(kind, message)
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Error {
        let kind = match error.kind {
            TableErrorKind::Transaction(kind) => return from_txn(kind, error.message),
            TableErrorKind::Duplicate => ErrorKind::Duplicate,
            TableErrorKind::NotFound => ErrorKind::NotFound,
            TableErrorKind::Exists => ErrorKind::Exists,
            TableErrorKind::Dropped | TableErrorKind::Stale => ErrorKind::Stale,
            TableErrorKind::BadArgument => ErrorKind::BadArgument,
            TableErrorKind::Damaged => ErrorKind::Damaged,
            TableErrorKind::TooNew => ErrorKind::Unusable,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, error.message)
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        TxnError::from(error).into()
    }
}

impl From<BufferError> for Error {
    fn from(error: BufferError) -> Error {
        let kind = match error.kind {
            BufferErrorKind::LogFull => return Error::log_full(error.message),
            BufferErrorKind::Unreadable => return Error::unreadable(error.message),
            BufferErrorKind::Full => ErrorKind::Full,
            BufferErrorKind::NoFrame => ErrorKind::OutOfMemory,
            BufferErrorKind::Damaged | BufferErrorKind::NotAllocated => ErrorKind::Damaged,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, error.message)
    }
}

impl From<TierError> for Error {
    fn from(error: TierError) -> Error {
        let kind = match error.kind {
            TierErrorKind::LogFull => return Error::log_full(error.message),
            TierErrorKind::Unreadable => return Error::unreadable(error.message),
            TierErrorKind::Full => ErrorKind::Full,
            TierErrorKind::Damaged | TierErrorKind::NotAllocated => ErrorKind::Damaged,
            TierErrorKind::BadArgument => ErrorKind::BadArgument,
            TierErrorKind::TooNew => ErrorKind::Unusable,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, error.message)
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        let kind = match error.kind {
            LogErrorKind::Full => return Error::log_full(error.message),
            LogErrorKind::Damaged => ErrorKind::Damaged,
            LogErrorKind::BadArgument => ErrorKind::BadArgument,
            LogErrorKind::Closed => ErrorKind::Closed,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, error.message)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => ErrorKind::Full,
            DeviceErrorKind::OutOfRange => ErrorKind::Damaged,
            DeviceErrorKind::Locked => ErrorKind::InUse,
            DeviceErrorKind::Unusable => ErrorKind::Unusable,
            _ => ErrorKind::Failed,
        };
        Error::new(kind, error.message)
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Error {
        Error::damaged(error.to_string())
    }
}
