//! How often background work tries again what damage or a device has kept it from.

use crate::error::{TableError, TableErrorKind};
use firndb_base::clock::{self, Moment};
use firndb_txn::TxnErrorKind;
use std::time::Duration;

/// How often one step is tried before what is damaged is given up.
const ATTEMPTS: u32 = 3;
/// How often before what a device cannot read is given up: for about a minute.
const READ_ATTEMPTS: u32 = 8;
/// The first interval between two of these; each further one is twice as long.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// Failures of one step in a row.
#[derive(Default)]
pub(crate) struct Attempts {
    failed: u32,
    is_last: bool,
    /// When the step is tried again.
    due: Option<Moment>,
}

impl Attempts {
    /// Whether the time has come for the next attempt.
    pub(crate) fn are_due(&self) -> bool {
        self.due.is_none_or(|due| due <= clock::now())
    }

    /// Whether the next attempt is the last: what it meets is to be given up.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Counts a failure; whether there is to be another attempt. If not, the count begins anew.
    pub(crate) fn failed(&mut self, error: &TableError) -> bool {
        self.failed += 1;
        let most = if is_unreadable(error) { READ_ATTEMPTS } else { ATTEMPTS };
        if self.failed >= most {
            *self = Attempts::default();
            return false;
        }
        self.is_last = self.failed + 1 >= most;
        self.due = None;
        if is_unreadable(error) {
            self.due = clock::now().after(READ_INTERVAL * (1 << self.failed));
        }
        true
    }
}

/// Whether a device could not read a page.
pub(crate) fn is_unreadable(error: &TableError) -> bool {
    error.kind == TableErrorKind::Transaction(TxnErrorKind::Unreadable)
}
