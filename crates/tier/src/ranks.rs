//! The order of this crate's locks, outermost first. Page latches come before all of them. The
//! log's locks come between the store's and those that appending a record may take.

use firndb_base::sync::Rank;

/// [`crate::CacheSwitch`]'s latch: held for the length of each call that may wait for a device.
pub(crate) static SWITCH: Rank = Rank::new(550, "the cache switch's latch");
/// Which cache publications go by: held shared for the length of each, under page latches, so that
/// no device is waited for while it is held exclusively.
pub(crate) static PUBLISHING: Rank = Rank::new(560, "the cache switch's publishing").bars_devices();
/// Write-through: held between the store's taking of a page and the cache's.
pub(crate) static PASSING: Rank = Rank::new(600, "a cache's passing");
/// The order of groups; held during I/O of cache and store.
pub(crate) static RING: Rank = Rank::new(610, "a cache's ring");
/// One check at a time; held during I/O.
pub(crate) static CHECKING: Rank = Rank::new(635, "the store's checking");
/// Map records that wait for their pages; held during I/O, by recovery only.
pub(crate) static REDO: Rank = Rank::new(640, "the store's redo");
/// The walk that empties segments; held during I/O.
pub(crate) static CLEANING: Rank = Rank::new(642, "the store's cleaning");
/// Flushes of the store's write buffer of deltas, one at a time; held during I/O.
pub(crate) static FLUSHING: Rank = Rank::new(645, "the store's flushing");
/// The store's header and number of groups; held during I/O.
pub(crate) static GROWTH: Rank = Rank::new(650, "the store's growth");
/// Rounds of metadata writes; held during I/O.
pub(crate) static WRITE_BACK: Rank = Rank::new(660, "the store's write_back");
/// Syncs of the store's device that threads share; not held during I/O.
pub(crate) static SYNCS: Rank = Rank::new(665, "the store's syncs");
/// Append and apply of a map record: taken under page latches, so no device is waited for under it.
pub(crate) static ORDER: Rank = Rank::new(670, "the store's order").bars_devices();
/// All that the store has in memory; never held during I/O.
pub(crate) static STATE: Rank = Rank::new(680, "the store's state").bars_devices();
/// Buffers for runs: a leaf.
pub(crate) static STAGING: Rank = Rank::new(690, "the store's staging");
/// Buffers for reads of adjacent places: a leaf.
pub(crate) static READ_STAGING: Rank = Rank::new(691, "the store's read staging");
/// The group being filled. This one, and all that follow, may be taken while a record is being
/// appended.
pub(crate) static OPEN: Rank = Rank::new(800, "a cache's open group");
/// Chains of the directory.
pub(crate) static STRIPE: Rank = Rank::new(810, "a stripe of a cache's directory");
/// Images and tombstones in volatile memory only.
pub(crate) static PENDING: Rank = Rank::new(830, "a cache's pending");
/// Versions known during recovery: a leaf.
pub(crate) static RECENT: Rank = Rank::new(840, "a cache's recent versions");
/// Segments to be written: a leaf.
pub(crate) static SEGMENTS: Rank = Rank::new(841, "a cache's segments");
/// Lost pages: a leaf.
pub(crate) static LOST_PAGES: Rank = Rank::new(842, "a cache's lost pages");
/// Groups that were read ahead: a leaf.
pub(crate) static KEPT: Rank = Rank::new(844, "a cache's kept groups");
/// Read buffers: a leaf.
pub(crate) static SCRATCH: Rank = Rank::new(843, "a cache's scratch");
/// Buffers for reads of adjacent images: a leaf.
pub(crate) static CACHE_READ_STAGING: Rank = Rank::new(845, "a cache's read staging");
