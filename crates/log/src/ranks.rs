//! The order of this crate's locks (`docs/internals/lock-order.md`), outermost first; a `Parker`'s
//! own is taken alone or last.

use firndb_base::sync::Rank;

/// Requests in flight, waiters, free devices.
pub(crate) static FLIGHT: Rank = Rank::new(750, "the log's flight");
/// Buffer, positions on the devices, space; `append` takes it alone.
pub(crate) static FRONT: Rank = Rank::new(760, "the log's front");
