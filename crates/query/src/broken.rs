//! Operators that are broken on purpose, in tests only, which must notice.

use std::cell::Cell;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// NULL equals NULL in joins.
    NullsMatch,
    /// An outer join forgets every eighth row that matches none.
    UnmatchedForgotten,
    /// Rows of the probe side that a hash join spills are lost when their turn comes.
    SpilledPartitionForgotten,
    /// A merge takes of equal rows that of the later run.
    LaterRunFirst,
    /// A group of pairs ends with the batch.
    PairsEndWithBatch,
    /// A fetch that has counted entries ahead begins again with those that it has listed.
    ListReadAgain,
    /// A join that goes over to hash loses the rows that it had collected for lookups.
    HandedOverForgotten,
}

thread_local! {
    static PRESENT: Cell<Option<Break>> = const { Cell::new(None) };
}

/// Runs `work`, whose queries are broken in this way.
pub fn with_break<R>(broken: Break, work: impl FnOnce() -> R) -> R {
    PRESENT.set(Some(broken));
    let result = match broken {
        Break::LaterRunFirst => firndb_spill::with_later_run_first(work),
        _ => work(),
    };
    PRESENT.set(None);
    result
}

/// Whether this is broken.
pub(crate) fn is(what: Break) -> bool {
    PRESENT.get() == Some(what)
}
