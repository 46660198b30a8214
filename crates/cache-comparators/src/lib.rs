//! Flash caches of other papers, and FaCE as its paper has it, behind the same interface as Firn's
//! own ([`firndb_tier::CacheKind`]), to compare it with. See `docs/lab/tools/comparators.md`.
//!
//! Place in the stack: beside `tier`, whose store they lie over. No part of the engine uses this
//! crate: the laboratory, the simulator and tests pass a [`Comparator`] in the engine's options.
//!
//! Invariant: nothing in these caches is the only copy. The store has it, or the log is kept for
//! it.
//!
//! Failures: each cache's file says how it fails.

#![forbid(unsafe_code)]

mod comparator;
mod compared;
mod lazy_cleaning;
mod on_entry;
mod paper_face;
mod ranks;

pub use comparator::Comparator;
pub use compared::Compared;
pub use lazy_cleaning::LazyCleaning;
pub use on_entry::{EntryCache, EntryPolicy};
pub use paper_face::PaperFace;
