//! B+trees on pages: bytes to bytes.
//!
//! NodeParts in the stack: above `buffer`, below `txn`. Knows keys, values and pages; knows nothing
//! of transactions: what a change's log record must carry for undo is an opaque *attachment*, and
//! the layer above says which entries are ghosts.
//!
//! * `node/`: a page as a sorted list of entries; `op.rs`, `redo.rs`: what one log record does to
//!   it;
//! * `descent.rs`: latch by latch from the root; `modify.rs`, `lookup.rs`, `many.rs`, `scan.rs`:
//!   entries; `leaves.rs`: which leaves to bring in before they are needed;
//! * `group.rs`: atomic changes of several pages, for `split.rs`, `merge.rs`, `clear.rs`,
//!   `bulk.rs`; `stock.rs`: what they acquire before they latch;
//! * `relocate.rs`: nodes get lower page numbers;
//! * `naming.rs`: entries that name whole pages of the layers above;
//! * `sweep.rs`, `unmerged.rs`, `key_ranges.rs`: what background work needs to remove garbage and
//!   free its pages.
//!
//! Invariants:
//! * the root's page never moves; every other node has one parent, whose separators are its fences;
//! * a page changes only by a record that was appended first, through the code that redo runs;
//! * latches are taken parents before children and left before right, and none outlives a call;
//! * no thread waits for a device while it holds a latch exclusively, and a descent holds none at
//!   all while it reads a node (`descent.rs`);
//! * bytes of a page or record that contradict themselves give an error of kind `Damaged`, never a
//!   panic.
//!
//! Latching protocol, atomic groups and the crash argument: `docs/internals/tree.md`. Bytes:
//! `docs/format/tree.md`.

#![forbid(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod bulk;
mod change;
mod check;
mod clear;
mod create;
mod descent;
mod error;
mod estimate;
mod group;
mod hint;
mod key_ranges;
mod leaves;
mod lookup;
mod many;
mod merge;
mod modify;
mod naming;
mod node;
mod op;
mod redo;
mod relocate;
mod roots;
mod sample;
mod scan;
mod scratch;
mod split;
mod stock;
mod sweep;
mod tree;
mod unmerged;

pub use bulk::NewLeaf;
pub use change::{Change, Patches};
pub use check::TreeReport;
pub use error::{TreeError, TreeErrorKind};
pub use estimate::Counted;
pub use group::group_bytes_max;
pub use key_ranges::{KeyRangeRef, KeyRanges};
pub use many::Missing;
pub use naming::{Judgement, SweptNames, fill_page, is_given_up};
pub use redo::{PageChange, Redone, check_page, give_up_page, redo, redo_latched};
pub use relocate::Relocated;
pub use sample::LeafSample;
pub use scan::{Course, Direction, Entry, Position, Visit};
pub use sweep::Swept;
pub use tree::Tree;
pub use unmerged::Unmerged;
