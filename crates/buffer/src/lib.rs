//! The buffer pool: pages in DRAM.
//!
//! Place in the stack: above `tier`, below `btree`. Pages are fixed in frames that are allocated
//! once; replacement is a clock; cleaners ([`Cleaner`]) write cold dirty pages before misses need
//! their frames, several batches at once. Guards are types: only an announced and logged change
//! reaches a page's bytes.
//!
//! Invariants:
//! * A page is in one frame at most, and while it is in one, that is its newest copy.
//! * The WAL rule is checked here, in `write_back.rs`, and nowhere else: no image goes to the tier
//!   before the log that describes it is durable.
//! * A frame is given away only when the tier has its version.
//! * Every change that the tier does not have is covered by a recovery LSN from before its record
//!   was appended (`recovery_lsns.rs`).
//! * While recovery goes on, a page is redone before the latch under which it was read is released
//!   (`redo_on_read.rs`).
//! * No thread waits for a device while it holds a page latched exclusively, but the frame that the
//!   device is to fill, one that no other thread can fix yet, or one that is being discarded
//!   (`Rank::bars_devices`, checked in debug builds).
//! * A thread that fills several frames at once waits for no other frame meanwhile
//!   (`read_ahead.rs`).
//! * No thread waits for a latch while it holds a staging buffer, a writing flag or a lock of the
//!   pool; so a thread that holds latches may wait for everything but latches.
//!
//! Lock order: page latches (the caller's, in the order of its trees) → writing flag → staging →
//! queues of pages to read and to clean → page table shard → free list or scan frames → the locks
//! of tier and log. `miss_curve` is a leaf. Inside this crate latches are only tried, with one
//! exception: a checkpoint blocks on a latch while it holds nothing else.
//!
//! How it fails: a read error is the caller's and leaves nothing behind; a write error leaves the
//! page dirty in its frame, so that misses fail with it when no clean frame is left; a panic inside
//! a change poisons the pool, since the log has a record that no page has.
//!
//! After FaCE (VLDB 2012), section 3: pages leave DRAM in groups, clean ones included where the
//! tier wants them.

#![deny(unsafe_code)]
#![allow(missing_docs)] // An internal crate: a comment says what a name does not.

mod bringing;
mod changed;
mod cleaner;
mod cleaner_call;
mod cleaning;
mod clock_hand;
mod counters;
mod error;
mod fix;
#[allow(unsafe_code)]
mod frame;
mod free_frames;
mod given_up;
mod guard;
mod hints;
mod layout;
mod miss_curve;
mod page_table;
mod page_use;
mod pending;
mod pool;
mod ranks;
mod read_ahead;
mod read_queue;
mod recovery_lsns;
mod redo_on_read;
mod replacement;
mod scan_frames;
mod staging;
mod to_clean;
mod write_back;

pub use changed::{ByteRanges, Changed};
pub use cleaner::Cleaner;
pub use error::{BufferError, BufferErrorKind, Fixed};
pub use fix::InMemory;
pub use guard::{ExclusiveGuard, IntentGuard, OptimisticRef, PagePin, SharedGuard};
pub use miss_curve::MissCurve;
pub use page_use::PageUse;
pub use pending::{PendingChanges, Repeated};
pub use pool::{BufferPool, BufferStatistics, PoolOptions};
pub use read_ahead::KeptOut;
