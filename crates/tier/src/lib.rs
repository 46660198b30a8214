//! Page storage below DRAM: the page store, and the flash cache over it.
//!
//! Place in the stack: above `log`, below `buffer`. [`PageTier`] is the interface to the buffer.
//! [`store::Store`] (a page map over pages written out of place) implements it.
//! [`cache::FlashCache`] (FaCE) lies over the store and below [`CacheSwitch`], which attaches and
//! detaches it while the engine runs; caches of other kinds ([`CacheKind`]) take its place. The
//! delta layer will implement it, too.
//!
//! Invariants: a page that a tier took is durable, or redo rebuilds it from the recovery LSN it
//! came with, as long as the log is kept from [`PageTier::oldest_needed_lsn`]; an older version
//! never replaces a newer one; a page once allocated can always be written.
//!
//! A checkpoint asks the buffer for its oldest recovery LSN *before* it asks the tier for its own:
//! a page that the buffer writes to the tier in between is then counted at least once.
//!
//! Failures: [`TierError`]; its kind says what the caller can do.

#![forbid(unsafe_code)]

pub mod cache;
mod error;
#[doc(hidden)]
pub mod forward;
mod granules;
mod merged_reads;
pub mod page_cache;
mod page_reads;
mod page_tier;
mod piece_reads;
mod poison;
mod ranks;
pub mod store;
mod switch;
pub mod testing;

pub use error::{TierError, TierErrorKind};
pub use granules::{Base, Changes};
pub use page_cache::{
    BackingStore, CacheKind, CacheOptions, CacheSite, CacheState, Cached, PageCache, RebuildFrom,
};
pub use page_reads::{PageCame, PageReads};
pub use page_tier::{
    Allocation, DeltaRead, Found, PageRead, PageTier, PageWrite, Prepared, TierStatistics, Whereabouts,
    Written,
};
pub use poison::Poison;
pub use switch::CacheSwitch;
