//! Queries: operators over batches of rows.
//!
//! Place in the stack: above `table`, below `firn`. The layer below has tables, indexes and
//! cursors; this one has *plans*: scans, ways through an index, sorts and joins. Each can be
//! forced; [`planner`] chooses. Operators are those of D. Myers' thesis, chapters 4 and 5.
//!
//! * [`Plan`]: which operators on what; [`Source`]: which columns of which rows of a table;
//!   [`Predicate`]: conditions with three values.
//! * [`Query`]: a plan that runs: [`Query::next`] returns a [`Batch`] of rows.
//! * [`QueryOptions`]: memory, [`SpillSpace`], cancel token, deadline.
//!
//! Invariants: a query sees one state; its operators together have no more memory than its limit,
//! which is counted where rows are kept; what it has on the spill device is given back when it
//! ends, however it ends; token and deadline are looked at in each batch.
//!
//! How it fails: [`QueryError`], whose kind says what the caller can do. A spill device that
//! fails, or returns other bytes than were written, ends the query and nothing else.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod batch;
#[cfg(feature = "testing")]
mod broken;
mod compile;
mod context;
mod error;
mod fetch;
mod index_fetch;
mod join;
mod operator;
mod plan;
pub mod planner;
mod predicate;
mod query;
mod range_scan;
mod row;
mod run_scan;
mod scan;
mod simple;
mod sort;
mod source;
#[cfg(test)]
mod testing;
mod work;

pub use batch::Batch;
#[cfg(feature = "testing")]
pub use broken::{Break, with_break};
pub use context::{Adapted, QueryOptions};
pub use error::{QueryError, QueryErrorKind};
pub use firndb_spill::SpillSpace;
pub use join::{IndexSide, JoinKind, On};
pub use plan::{OrHash, OrScan, Plan};
pub use predicate::{Comparison, Predicate};
pub use query::Query;
pub use row::Row;
pub use sort::SortColumn;
pub use source::Source;
pub use work::{Computing, Counts};
