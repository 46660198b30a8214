//! The order of this crate's locks, outermost first.

use firndb_base::sync::Rank;

/// Several are held in the order of the trees, which is theirs to keep.
pub(crate) static LATCH: Rank = Rank::several(400, "a page latch").bars_devices();
/// With the writing flags of its batch; no lock, but other threads wait for it.
pub(crate) static STAGING: Rank = Rank::new(499, "a staging buffer");
/// Held to take or return a buffer; a thread that waits for one may hold latches.
pub(crate) static IDLE: Rank = Rank::new(500, "the idle staging buffers");
/// The queue only; callers may hold latches.
pub(crate) static AHEAD: Rank = Rank::new(505, "the pages to read ahead").bars_devices();
/// Which frames the cleaners write next.
pub(crate) static TO_CLEAN: Rank = Rank::new(506, "what the cleaners write next").bars_devices();
/// Which frame holds a page.
pub(crate) static TABLE: Rank = Rank::new(510, "a shard of the page table").bars_devices();
/// A list only: of free frames, or of those of scans.
pub(crate) static FREE: Rank = Rank::new(520, "a list of frames").bars_devices();
/// A leaf.
pub(crate) static FOLLOWED_PAGES: Rank = Rank::new(900, "the pages followed for the miss curve");
