//! What can go wrong in a table.

use firndb_base::codec::Malformed;
use firndb_btree::{TreeError, TreeErrorKind};
use firndb_spill::{SpillError, SpillErrorKind};
use firndb_txn::{TxnError, TxnErrorKind};
use std::fmt;

/// What a caller can do about a table error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableErrorKind {
    /// A row with this primary key, or with these values of a unique index, is there already. The
    /// statement changed nothing; the transaction can continue.
    Duplicate,
    /// No table or index of this name exists.
    NotFound,
    /// The name is taken.
    Exists,
    /// The table or index behind this handle was dropped: look it up again by name.
    Dropped,
    /// The definition changed after the transaction began: roll back and begin a new transaction.
    Stale,
    /// An argument is outside its range or does not fit the schema. The statement changed nothing.
    BadArgument,
    /// Stored bytes break an invariant: run a check, restore if it confirms the damage.
    Damaged,
    /// Written by a newer version of the engine: open it with that version.
    TooNew,
    /// Passed on from the transaction layer.
    Transaction(TxnErrorKind),
    /// Rows that were to be sorted could not be kept.
    Spill(SpillErrorKind),
}

/// A table error: what to do, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// What a caller can do about it.
    pub kind: TableErrorKind,
    /// A sentence for people.
    pub message: String,
}

impl TableError {
    /// An error of `kind` with a sentence for people.
    pub fn new(kind: TableErrorKind, message: impl Into<String>) -> TableError {
        TableError { kind, message: message.into() }
    }
    pub(crate) fn bad_argument(message: impl Into<String>) -> TableError {
        TableError::new(TableErrorKind::BadArgument, message)
    }
    pub(crate) fn damaged(message: impl Into<String>) -> TableError {
        TableError::new(TableErrorKind::Damaged, message)
    }

    /// Whether stored bytes are damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.kind, TableErrorKind::Damaged | TableErrorKind::Transaction(TxnErrorKind::Damaged))
    }

    /// Whether rolling the transaction back and running it again from its start may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            TableErrorKind::Stale
                | TableErrorKind::Transaction(
                    TxnErrorKind::Conflict | TxnErrorKind::Deadlock | TxnErrorKind::Timeout
                )
        )
    }
}

impl From<TxnError> for TableError {
    fn from(error: TxnError) -> TableError {
        TableError::new(TableErrorKind::Transaction(error.kind), error.message)
    }
}
impl From<SpillError> for TableError {
    fn from(error: SpillError) -> TableError {
        TableError::new(TableErrorKind::Spill(error.kind), error.message)
    }
}
impl From<TreeError> for TableError {
    fn from(error: TreeError) -> TableError {
        let kind = match error.kind {
            TreeErrorKind::Damaged => TableErrorKind::Damaged,
            TreeErrorKind::Full => TableErrorKind::Transaction(TxnErrorKind::Full),
            TreeErrorKind::LogFull => TableErrorKind::Transaction(TxnErrorKind::LogFull),
            TreeErrorKind::NoFrame => TableErrorKind::Transaction(TxnErrorKind::NoFrame),
            TreeErrorKind::Unreadable => TableErrorKind::Transaction(TxnErrorKind::Unreadable),
            TreeErrorKind::TooLarge => TableErrorKind::Transaction(TxnErrorKind::TooLarge),
            _ => TableErrorKind::Transaction(TxnErrorKind::Failed),
        };
        TableError::new(kind, error.message)
    }
}
impl From<Malformed> for TableError {
    fn from(error: Malformed) -> TableError {
        TableError::damaged(error.to_string())
    }
}
impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for TableError {}
