//! Rows that do not fit in memory: memory that is counted, runs of rows on a spill device, and
//! sorting over both. Queries and index builds use it.
//!
//! * [`Memory`], [`Reservation`], [`Arena`]: what is kept, counted, and refused past a limit.
//! * [`SpillSpace`]: the device, which all share; [`RunWriter`], [`Run`], [`RunReader`]: rows on
//!   it.
//! * [`Sorter`], [`Sorted`]: rows in the order of their keys.
//!
//! A writer writes one run after another, or several side by side: those of a hash join's
//! partitions go to the device as one stream, since that is what flash writes well, and are read
//! back from many places at once.
//!
//! Nothing here outlives the process: the device is not synced, and what it holds at opening is
//! not read. What is read back is checked, since a device may return other bytes than were written.

#![forbid(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod arena;
mod block;
mod error;
mod memory;
mod merge;
mod reader;
mod run;
mod sizes;
mod sorter;
mod space;
mod writer;

pub use arena::{Arena, Place};
pub use error::{SpillError, SpillErrorKind};
pub use memory::{Memory, Reservation};
#[cfg(feature = "testing")]
pub use merge::with_later_run_first;
pub use reader::RunReader;
pub use run::Run;
pub use sizes::Sizes;
pub use sorter::{KeyAndRow, Sorted, Sorter, split_record};
pub use space::SpillSpace;
pub use writer::RunWriter;
