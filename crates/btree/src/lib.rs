//! B+trees on pages: bytes to bytes.
//!
//! SKELETON: the signatures below are the contract with the floors above.
//!
//! Place in the stack: above `buffer`, below `txn`. Knows keys, values and pages; knows nothing of
//! transactions: what a change's log record must carry for undo is an opaque *attachment*.

mod error;
mod redo;
mod tree;

pub use error::{TreeError, TreeErrorKind};
pub use redo::PageChange;
pub use tree::{Change, Direction, Position, Tree, TreeReport, Visit};
