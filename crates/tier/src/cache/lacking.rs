//! Which change in each dirty image is the first that the store lacks (`rebuild.rs`).

use super::geometry::Slot;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For an image of which the store may lack any change.
pub(crate) const UNKNOWN: u64 = 0;
/// For a slot without a dirty image.
pub(crate) const NOTHING: u64 = u64::MAX;

/// LSN of the first change that the store lacks, by slot.
pub(crate) struct Lacking(Box<[AtomicU64]>);

impl Lacking {
    pub(crate) fn new(slots: usize) -> Lacking {
        Lacking((0..slots).map(|_| AtomicU64::new(NOTHING)).collect())
    }
    pub(crate) fn of(&self, slot: Slot) -> u64 {
        self.0[slot.0 as usize].load(Relaxed)
    }
    pub(crate) fn set(&self, slot: Slot, lsn: u64) {
        self.0[slot.0 as usize].store(lsn, Relaxed);
    }
}
