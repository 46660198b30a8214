//! The order of this crate's locks, among those of `tier` (its `ranks.rs`).

use firndb_base::sync::Rank;

/// Held by the thread that writes to the device of a cache that pages enter when they are read.
pub(crate) static WRITER: Rank = Rank::new(620, "a cache's writer");
/// The places and their pages, in caches of places.
pub(crate) static PLACES: Rank = Rank::new(830, "a cache's places");
