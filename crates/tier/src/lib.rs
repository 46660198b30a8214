//! Where a page lives when it is not in DRAM.
//!
//! SKELETON: the signatures below are the contract with the floors above.
//!
//! Place in the stack: above `log`, below `buffer`. [`PageTier`] is the seam: the store (page map over
//! out-of-place pages) implements it; the flash cache and the delta layer will, over the store.

mod error;
mod page_tier;
pub mod store;
pub mod testing;

pub use error::{TierError, TierErrorKind};
pub use page_tier::{Allocation, Found, Lifetime, PageRead, PageTier, PageWrite, TierStatistics, Written};
