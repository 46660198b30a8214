//! The order of this crate's locks, outermost first. Those of the floors lie between, but for the log's: the superblock is
//! taken by whoever finds that a log device failed, in the midst of writing back, too.

use firn_base::sync::Rank;

/// Held during the archive's I/O.
pub(crate) static ARCHIVE: Rank = Rank::new(100, "the archive's work");
/// One at a time.
pub(crate) static CACHE_CHANGING: Rank = Rank::new(110, "a change of the flash cache");
/// One at a time.
pub(crate) static ARRAY_CHANGING: Rank = Rank::new(111, "a change of the log's devices");
/// Held by who takes its checkpoint.
pub(crate) static REST: Rank = Rank::new(115, "the end of recovery");
/// One at a time.
pub(crate) static CHECKPOINT: Rank = Rank::new(120, "the checkpoint that runs");
/// Held by who reads the log, perhaps with pages latched shared.
pub(crate) static FETCH: Rank = Rank::new(530, "reading the pending changes of pages from the log");
/// Looked up under a page's latch.
pub(crate) static REDO: Rank = Rank::new(540, "the pending changes of pages");
/// As on the device; held while it is written.
pub(crate) static SUPERBLOCK: Rank = Rank::new(700, "the superblock");
/// Briefly.
pub(crate) static KNOWN: Rank = Rank::new(705, "what is known of the log's devices");
/// Briefly.
pub(crate) static KEEP: Rank = Rank::new(710, "the holds on the log");
