//! Rows that do not fit in a query's memory, on a device of their own.
//!
//! A writer writes one run after another, or several side by side: those of a hash join's
//! partitions go to the device as one stream, since that is what flash writes well, and are read
//! back from many places at once.
//!
//! Nothing here outlives the process: the device is not synced, and what it holds at opening is
//! not read. What is read back is checked, since a device may return other bytes than were written.

mod block;
mod reader;
mod run;
mod sizes;
mod space;
mod writer;

pub(crate) use reader::{RunReader, Step, refill};
pub(crate) use run::Run;
pub(crate) use sizes::Sizes;
pub use space::SpillSpace;
pub(crate) use writer::RunWriter;
