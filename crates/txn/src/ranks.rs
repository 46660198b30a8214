//! The order of this crate's locks, outermost first. Page latches come after `MOVING`, locks of the
//! log after all of them.

use firndb_base::sync::Rank;

/// The images that committers have waiting; held alone, not during I/O.
pub(crate) static SHADOWS: Rank = Rank::new(290, "the shadows of committers");
/// By their global ids.
pub(crate) static PREPARED: Rank = Rank::new(300, "the prepared transactions");
/// While an entry moves to the undo tree or is undone.
pub(crate) static MOVING: Rank = Rank::new(310, "a transaction's moving");
/// Tried under latches.
pub(crate) static POINTS: Rank = Rank::new(440, "a shard of the locks on keys");
/// As above; ranges are looked at under it.
pub(crate) static QUEUE: Rank = Rank::new(442, "the queue for locks");
/// As above.
pub(crate) static RANGES: Rank = Rank::new(445, "the locks on ranges");
/// The registry is locked under it.
pub(crate) static BACKLOG: Rank = Rank::new(448, "the backlog of ghosts");
/// Commit records are appended under it, without waiting for a device.
pub(crate) static REGISTRY: Rank = Rank::new(450, "the registry").bars_devices();
/// Woken from within the log, when it fails.
pub(crate) static WAITS: Rank = Rank::new(720, "the wait graph");
/// By their ids.
pub(crate) static SHARD: Rank = Rank::new(730, "a shard of the transactions");
/// Its undo entries.
pub(crate) static VERSIONS: Rank = Rank::new(740, "a transaction's versions");
/// What a commit hands in is added under the registry's lock.
pub(crate) static INCOMING: Rank = Rank::new(745, "the incoming ghosts");
