//! What can go wrong in a query.

use firndb_base::codec::Malformed;
use firndb_spill::{SpillError, SpillErrorKind};
use firndb_table::{TableError, TableErrorKind};
use firndb_txn::{TxnError, TxnErrorKind};
use std::fmt;

/// What a caller can do about an error of a query. After each of them the query has ended, and has
/// given back its memory and its part of the spill device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryErrorKind {
    /// The plan does not fit its tables, or the query was used wrongly: change the call.
    BadArgument,
    /// The query needs more than its memory limit: raise it.
    OutOfMemory,
    /// There is no spill device, or it is full: give it more space, or the query more memory.
    Full,
    /// The spill device failed, or returned other bytes than were written. The database is
    /// unharmed: run the query again.
    SpillFailed,
    /// The query's token was cancelled.
    Cancelled,
    /// The query's deadline has passed.
    Timeout,
    /// Passed on from the tables.
    Table(TableErrorKind),
}

/// An error of a query: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryError {
    /// What a caller can do about it.
    pub kind: QueryErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl QueryError {
    pub(crate) fn new(kind: QueryErrorKind, message: impl Into<String>) -> QueryError {
        QueryError { kind, message: message.into() }
    }
    pub(crate) fn bad_argument(message: impl Into<String>) -> QueryError {
        QueryError::new(QueryErrorKind::BadArgument, message)
    }
    pub(crate) fn damaged(message: impl Into<String>) -> QueryError {
        QueryError::new(QueryErrorKind::Table(TableErrorKind::Damaged), message)
    }

    /// Whether rolling the transaction back and running it again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            QueryErrorKind::Table(kind) => TableError::new(kind, "").is_retryable(),
            _ => false,
        }
    }
}

impl From<TableError> for QueryError {
    fn from(error: TableError) -> QueryError {
        let kind = match error.kind {
            TableErrorKind::Transaction(TxnErrorKind::Cancelled) => QueryErrorKind::Cancelled,
            kind => QueryErrorKind::Table(kind),
        };
        QueryError::new(kind, error.message)
    }
}
impl From<TxnError> for QueryError {
    fn from(error: TxnError) -> QueryError {
        TableError::from(error).into()
    }
}
impl From<SpillError> for QueryError {
    fn from(error: SpillError) -> QueryError {
        let kind = match error.kind {
            SpillErrorKind::BadArgument => QueryErrorKind::BadArgument,
            SpillErrorKind::OutOfMemory => QueryErrorKind::OutOfMemory,
            SpillErrorKind::Full => QueryErrorKind::Full,
            SpillErrorKind::Failed => QueryErrorKind::SpillFailed,
        };
        QueryError::new(kind, error.message)
    }
}
impl From<Malformed> for QueryError {
    fn from(error: Malformed) -> QueryError {
        QueryError::damaged(error.to_string())
    }
}
impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for QueryError {}
