//! The order of this crate's locks, outermost first. The locks of the layers below lie between,
//! except for the log's: a thread that finds that a log device failed takes the superblock's, also
//! during write-back.

use firndb_base::sync::Rank;

/// Held by the compaction that runs.
pub(crate) static COMPACTING: Rank = Rank::new(40, "the compaction");
/// Held while trees are given codes of groups, by the catalog's account, also beside a change of a
/// table's definition.
pub(crate) static PLACING: Rank = Rank::new(65, "the placing of trees");
/// Held during the archive's I/O.
pub(crate) static ARCHIVE: Rank = Rank::new(100, "the archive's work");
/// Serializes attaching and detaching.
pub(crate) static CACHE_CHANGING: Rank = Rank::new(110, "a change of the flash cache");
/// Serializes adding and removing log devices.
pub(crate) static ARRAY_CHANGING: Rank = Rank::new(111, "a change of the log's devices");
/// Serializes replacing devices of the store.
pub(crate) static STORE_CHANGING: Rank = Rank::new(112, "a change of the store's devices");
/// Held by the thread that fills a new device of the store.
pub(crate) static STORE_FILLING: Rank = Rank::new(113, "the filling of a store's device");
/// Held by the thread that takes recovery's checkpoint.
pub(crate) static REST: Rank = Rank::new(115, "the end of recovery");
/// Held while a checkpoint is taken.
pub(crate) static CHECKPOINT: Rank = Rank::new(120, "the checkpoint that runs");
/// Held while a hold on shadows begins, which waits for those under way.
pub(crate) static SHADOW_HOLDS: Rank = Rank::new(130, "the holds on shadows");
/// Held by the thread that reads the log, perhaps with pages latched shared.
pub(crate) static FETCH: Rank = Rank::new(530, "reading the pending changes of pages from the log");
/// Looked up under a page's latch.
pub(crate) static REDO: Rank = Rank::new(540, "the pending changes of pages");
/// As on the device; held while it is written.
pub(crate) static SUPERBLOCK: Rank = Rank::new(700, "the superblock");
/// Held briefly.
pub(crate) static KNOWN: Rank = Rank::new(705, "what is known of the log's devices");
/// Held briefly.
pub(crate) static KEEP: Rank = Rank::new(710, "the holds on the log");
