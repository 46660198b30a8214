//! Where a page lives when it is not in DRAM.
//!
//! Place in the stack: above `log`, below `buffer`. [`PageTier`] is the seam: [`store::Store`] (a page map
//! over pages written out of place) implements it; [`cache::FlashCache`] (FaCE) goes over the store, under [`CacheSwitch`],
//! by which it comes and goes; and so will the delta layer.
//!
//! Invariants: a page that a tier took is durable, or rebuilt by redo from the recovery LSN it came with, as
//! long as the log is kept from [`PageTier::oldest_needed_lsn`]; an older version never replaces a newer one;
//! a page once allocated can always be written.
//!
//! A checkpoint asks the buffer for its oldest recovery LSN *before* it asks the tier for its own: a page
//! that moves down in between is then seen at least once.
//!
//! How it fails: [`TierError`], whose kind says what to do.

#![forbid(unsafe_code)]

pub mod cache;
mod error;
mod page_tier;
mod ranks;
pub mod store;
mod switch;
pub mod testing;

pub use error::{TierError, TierErrorKind};
pub use page_tier::{
    Allocation, Cached, Found, Lifetime, PageCache, PageRead, PageTier, PageWrite, RebuildFrom,
    TierStatistics, Written,
};
pub use switch::CacheSwitch;
