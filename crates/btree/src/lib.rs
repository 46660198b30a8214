//! B+trees on pages: bytes to bytes.
//!
//! Place in the stack: above `buffer`, below `txn`. Knows keys, values and pages; knows nothing of
//! transactions: what a change's log record must carry for undo is an opaque *attachment*, and which
//! entries are ghosts is told by the floor above.
//!
//! * `node/`: a page as a sorted list of entries; `op.rs`, `redo.rs`: what one log record does to it;
//! * `descent.rs`: latch by latch from the root; `modify.rs`, `scan.rs`: entries;
//! * `group.rs`: atomic changes of several pages, for `split.rs`, `merge.rs`, `clear.rs`, `bulk.rs`.
//!
//! Invariants:
//! * the root's page never moves; every other node has one parent, whose separators are its fences;
//! * a page changes only by a record that was appended first, through the code that redo runs;
//! * latches are taken parents before children and left before right, and none outlives a call;
//! * bytes of a page or record that contradict themselves give an error of kind `Damaged`, never a panic.
//!
//! Latching protocol, atomic groups and the crash argument: `docs/btree.md`. Bytes: `docs/format/tree.md`.

#![forbid(unsafe_code)]

mod bulk;
mod check;
mod clear;
mod descent;
mod error;
mod estimate;
mod group;
mod hint;
mod merge;
mod modify;
mod node;
mod op;
mod redo;
mod scan;
mod scratch;
mod split;
mod tree;

pub use check::TreeReport;
pub use error::{TreeError, TreeErrorKind};
pub use redo::{PageChange, Redone, check_page, redo, redo_latched};
pub use tree::{Change, Direction, Patches, Position, Tree, Visit};
