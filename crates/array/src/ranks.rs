//! The order of this crate's locks, outermost first. The store's locks that may be held during I/O
//! come before them, those that bar devices after a range; the superblock's after striking.

use firndb_base::sync::Rank;

/// A range of the file above that a thread writes or mends; others wait for it.
pub(crate) static RANGE: Rank = Rank::new(667, "a range of an array");
/// The ranges that are taken; held briefly.
pub(crate) static RANGES: Rank = Rank::new(668, "the ranges of an array");
/// Held while the members get longer or shorter, or a new one as long as they are.
pub(crate) static LENGTH: Rank = Rank::new(669, "the length of an array");
/// Held while the slots of a group are read, compared or written.
pub(crate) static SLOTS: Rank = Rank::new(694, "an array's slots");
/// Held while a member is struck.
pub(crate) static STRIKING: Rank = Rank::new(696, "the striking of an array's member");
/// The codes of groups that are known; held briefly.
pub(crate) static GROUP_CODES: Rank = Rank::new(719, "an array's codes");
/// A member's device, which is replaced under it; held briefly.
pub(crate) static MEMBER: Rank = Rank::new(720, "a member's device");
/// Which units of metadata are alike on all members; held briefly.
pub(crate) static ALIKE: Rank = Rank::new(721, "the units of an array that are alike");
/// Jobs of a member's lane; held briefly.
pub(crate) static LANE: Rank = Rank::new(722, "a lane of an array");
/// The jobs of one call that are not done; held briefly.
pub(crate) static TICKET: Rank = Rank::new(723, "a ticket of an array");
/// Reads of the array that are not in use; held briefly.
pub(crate) static IDLE_READS: Rank = Rank::new(724, "the idle reads of an array");
