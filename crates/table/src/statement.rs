//! Statements that write: all of one, or nothing.

use crate::error::{TableError, TableErrorKind};
use firndb_txn::{Savepoint, Transaction};

/// Runs a statement that writes; if it fails, rolls back what it wrote. The error is then the
/// statement's, or says that the rollback failed, too.
pub(crate) fn whole_or_nothing<R>(
    txn: &mut Transaction,
    run: impl FnOnce(&mut Transaction) -> Result<R, TableError>,
) -> Result<R, TableError> {
    let savepoint = txn.statement_savepoint();
    run(txn).or_else(|error| take_back(txn, &savepoint, error))
}

#[cold]
fn take_back<R>(txn: &mut Transaction, savepoint: &Savepoint, error: TableError) -> Result<R, TableError> {
    if txn.has_written_since(savepoint)
        && let Err(worse) = txn.rollback_to(savepoint)
    {
        let message = format!("{error}; and what the statement had done could not be undone: {worse}");
        return Err(TableError::new(TableErrorKind::Transaction(worse.kind), message));
    }
    Err(error)
}
