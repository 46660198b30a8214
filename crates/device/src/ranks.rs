//! The order of this crate's locks.

use firndb_base::sync::Rank;

/// The order of reads under way on a device: a leaf.
pub(crate) static LATE_READS: Rank = Rank::new(725, "the reads under way on a device");
