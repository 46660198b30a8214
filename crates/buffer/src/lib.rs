//! The buffer pool: pages in DRAM.
//!
//! SKELETON: the signatures below are the contract with the floors above.
//!
//! Place in the stack: above `tier`, below `btree`. Frames are fixed when the pool is made, guards are
//! types, and the WAL rule is checked here and only here: no page goes to the tier before the log that
//! describes it is durable.

mod error;
mod guard;
mod pool;

pub use error::{BufferError, BufferErrorKind};
pub use guard::{Changed, ExclusiveGuard, IntentGuard, OptimisticRef, SharedGuard};
pub use pool::{BufferPool, BufferStatistics, PoolOptions};
