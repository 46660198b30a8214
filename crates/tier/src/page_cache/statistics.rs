//! Counters of a cache.

use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Classes of write sizes: powers of two in KiB, from up to 1 KiB to 2 MiB and more.
pub const WRITE_SIZES: usize = 12;

/// Counters of a flash cache since opening, and its contents now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Places for pages.
    pub slots: u64,
    /// Places that hold an image now, valid or not.
    pub slots_used: u64,
    /// Pages with a valid image now. The rest of `slots_used` are duplicates and images of freed
    /// pages.
    pub pages_valid: u64,
    /// Valid pages that are newer than the store's.
    pub pages_dirty: u64,
    /// Pages read from the cache.
    pub hits: u64,
    /// Pages that were not in the cache and were read from the store.
    pub misses: u64,
    /// Read requests for hits: adjacent images of a batch are one; pages of the group being filled,
    /// which is in DRAM, take none.
    pub read_requests: u64,
    /// Groups read whole, to be replaced or written back ahead.
    pub groups_read: u64,
    /// Read requests for a few images of a group that is replaced or written back ahead.
    pub images_read: u64,
    /// Dirty pages taken.
    pub dirty_enqueued: u64,
    /// Clean pages taken.
    pub clean_enqueued: u64,
    /// Clean pages that were in the cache already, or were not admitted.
    pub clean_declined: u64,
    /// Pages given a second chance.
    pub second_chances: u64,
    /// Pages written back to the store.
    pub write_backs: u64,
    /// Images that had become invalid when their place was reclaimed: writes to the store that were
    /// saved, if they were dirty.
    pub discarded_invalid: u64,
    /// Valid clean images that were dropped when their place was reclaimed.
    pub discarded_clean: u64,
    /// Writes by size: up to 1, 2, 4, … KiB.
    pub writes_by_size: [u64; WRITE_SIZES],
    /// Bytes written.
    pub write_bytes: u64,
    /// Segments of the directory written.
    pub segments_written: u64,
    /// Images that could not be read or failed verification, and that the store has, too.
    pub faults: u64,
    /// Dirty images that have become unreadable and have no other copy: pages lost.
    pub pages_lost: u64,
    /// Bytes of DRAM for the directory.
    pub directory_bytes: u64,
    /// Whether the cache is write-through: never the only copy of a page.
    pub write_through: bool,
    /// Whether the cache failed and the engine continues without it.
    pub lost: bool,
    /// Whether the cache is being detached, and takes nothing in any more.
    pub leaving: bool,
}

impl CacheStatistics {
    /// Hits as a share of all pages that DRAM missed, 0 to 1.
    #[must_use]
    pub fn hit_share(&self) -> f64 {
        share(self.hits, self.hits + self.misses)
    }
    /// Invalid images as a share of all images, 0 to 1.
    #[must_use]
    pub fn duplicate_share(&self) -> f64 {
        share(self.slots_used.saturating_sub(self.pages_valid), self.slots_used)
    }
    /// Dirty pages taken that needed no write to the store, as a share of all (FaCE, table 3 b), 0
    /// to 1. Zero in write-through mode.
    #[must_use]
    pub fn write_reduction(&self) -> f64 {
        if self.write_through {
            return 0.0;
        }
        share(self.dirty_enqueued.saturating_sub(self.write_backs), self.dirty_enqueued)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The counters as they are counted: fields as in [`CacheStatistics`].
#[allow(missing_docs)]
#[derive(Default)]
pub struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub read_requests: AtomicU64,
    pub groups_read: AtomicU64,
    pub images_read: AtomicU64,
    pub dirty_enqueued: AtomicU64,
    pub clean_enqueued: AtomicU64,
    pub clean_declined: AtomicU64,
    pub second_chances: AtomicU64,
    pub write_backs: AtomicU64,
    pub discarded_invalid: AtomicU64,
    pub discarded_clean: AtomicU64,
    pub writes_by_size: [AtomicU64; WRITE_SIZES],
    pub write_bytes: AtomicU64,
    pub segments_written: AtomicU64,
    pub faults: AtomicU64,
    pub pages_lost: AtomicU64,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

impl Counters {
    /// Counts a write of `bytes` bytes.
    pub fn wrote(&self, bytes: usize) {
        let size = bytes.div_ceil(1024).next_power_of_two().trailing_zeros() as usize;
        add(&self.writes_by_size[size.min(WRITE_SIZES - 1)], 1);
        add(&self.write_bytes, bytes);
    }

    /// The counters now; what is not counted here is zero.
    #[must_use]
    pub fn read(&self) -> CacheStatistics {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        CacheStatistics {
            hits: of(&self.hits),
            misses: of(&self.misses),
            read_requests: of(&self.read_requests),
            groups_read: of(&self.groups_read),
            images_read: of(&self.images_read),
            dirty_enqueued: of(&self.dirty_enqueued),
            clean_enqueued: of(&self.clean_enqueued),
            clean_declined: of(&self.clean_declined),
            second_chances: of(&self.second_chances),
            write_backs: of(&self.write_backs),
            discarded_invalid: of(&self.discarded_invalid),
            discarded_clean: of(&self.discarded_clean),
            writes_by_size: std::array::from_fn(|size| of(&self.writes_by_size[size])),
            write_bytes: of(&self.write_bytes),
            segments_written: of(&self.segments_written),
            faults: of(&self.faults),
            pages_lost: of(&self.pages_lost),
            ..CacheStatistics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_size_and_shares_are_of_something() {
        let counters = Counters::default();
        for bytes in [512, 1024, 1025, 4096, 266_240, 64 << 20] {
            counters.wrote(bytes);
        }
        let read = counters.read();
        assert_eq!(read.writes_by_size, [2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
        assert_eq!(read.hit_share(), 0.0);
        let some = CacheStatistics { hits: 3, misses: 1, slots_used: 4, pages_valid: 3, ..read };
        assert_eq!((some.hit_share(), some.duplicate_share()), (0.75, 0.25));
        let written = CacheStatistics { dirty_enqueued: 4, write_backs: 1, ..read };
        assert_eq!(written.write_reduction(), 0.75);
        assert_eq!(CacheStatistics { write_through: true, ..written }.write_reduction(), 0.0);
    }
}
