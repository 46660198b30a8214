//! What can go wrong in a transaction.

use firndb_base::codec::Malformed;
use firndb_btree::{TreeError, TreeErrorKind};
use firndb_log::{LogError, LogErrorKind};
use std::fmt;

/// What a caller can do about a transaction error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnErrorKind {
    /// Another transaction changed what this one read or wants to write: roll back and try again.
    Conflict,
    /// Waiting would close a circle of waits: roll back and try again.
    Deadlock,
    /// A lock was not free by the deadline.
    Timeout,
    /// The caller's token was cancelled.
    Cancelled,
    /// The store is full.
    Full,
    /// The log is full until it is truncated.
    LogFull,
    /// The buffer is too small for the work in flight.
    NoFrame,
    /// A key or value, or the number of a transaction's changes, is over its limit.
    TooLarge,
    /// Too many transactions are open or prepared, or one holds too many locks: end some, or do it
    /// in smaller pieces.
    TooMany,
    /// A page or log record is damaged.
    Damaged,
    /// The tree was dropped and is being freed.
    Dropped,
    /// A device could not read a page. Nothing has changed, and the read may be tried again.
    Unreadable,
    /// A device failed; the database must be opened again.
    Failed,
    /// The commit record was appended but could not be made durable: whether the transaction
    /// committed is known after the next opening.
    Unknown,
    /// The transaction was begun read-only.
    ReadOnly,
    /// The transaction or the database has ended.
    Closed,
    /// The call does not fit the transaction's state.
    BadArgument,
}

/// A transaction error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnError {
    /// What a caller can do about it.
    pub kind: TxnErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl TxnError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: TxnErrorKind, message: impl Into<String>) -> TxnError {
        TxnError { kind, message: message.into() }
    }
    /// Whether the transaction may succeed if it is rolled back and run again.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        matches!(self.kind, TxnErrorKind::Conflict | TxnErrorKind::Deadlock)
    }
    /// Whether some page is unavailable, its stored image being damaged or unreadable. Nothing has
    /// changed, and work that does not need that page can continue.
    #[must_use]
    pub fn concerns_a_page(&self) -> bool {
        matches!(self.kind, TxnErrorKind::Damaged | TxnErrorKind::Unreadable)
    }
    /// Whether a transaction whose rollback failed so can be left as it is and undone later. All
    /// these errors leave pages and log in agreement: nothing of the entry at hand was logged.
    /// After any other, a failed write of the log above all, it is not known what is durable, and
    /// nothing more may be built on it.
    pub(crate) fn allows_undoing_later(&self) -> bool {
        matches!(self.kind, TxnErrorKind::LogFull | TxnErrorKind::Full | TxnErrorKind::NoFrame)
            || self.concerns_a_page()
    }
    /// With `context` before its sentence.
    pub(crate) fn within(mut self, context: &str) -> TxnError {
        self.message = format!("{context}: {}", self.message);
        self
    }
}
impl From<TreeError> for TxnError {
    fn from(error: TreeError) -> TxnError {
        let kind = match error.kind {
            TreeErrorKind::Full => TxnErrorKind::Full,
            TreeErrorKind::LogFull => TxnErrorKind::LogFull,
            TreeErrorKind::NoFrame => TxnErrorKind::NoFrame,
            TreeErrorKind::Damaged => TxnErrorKind::Damaged,
            TreeErrorKind::Condemned => TxnErrorKind::Dropped,
            TreeErrorKind::Unreadable => TxnErrorKind::Unreadable,
            TreeErrorKind::TooLarge => TxnErrorKind::TooLarge,
            _ => TxnErrorKind::Failed,
        };
        TxnError::new(kind, error.message)
    }
}
impl From<LogError> for TxnError {
    fn from(error: LogError) -> TxnError {
        let kind = match error.kind {
            LogErrorKind::Full => TxnErrorKind::LogFull,
            LogErrorKind::Damaged => TxnErrorKind::Damaged,
            LogErrorKind::Closed => TxnErrorKind::Closed,
            LogErrorKind::BadArgument => TxnErrorKind::TooLarge,
            _ => TxnErrorKind::Failed,
        };
        TxnError::new(kind, error.message)
    }
}
impl From<Malformed> for TxnError {
    fn from(error: Malformed) -> TxnError {
        TxnError::new(TxnErrorKind::Damaged, error.to_string())
    }
}
impl fmt::Display for TxnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for TxnError {}
