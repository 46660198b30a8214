//! The cache's state: what is fixed at its opening, its locks, and what they protect. See the head
//! of `cache.rs` for the order of the locks.

use super::balance::Balance;
use super::directory::Directory;
use super::geometry::{Geometry, Serial};
use super::kept::KeptGroups;
use super::lacking::Lacking;
use super::open_group::OpenGroup;
use super::pending::Pending;
use super::segment::{Segment, SegmentBuilder};
use super::shadow::ShadowEntries;
use super::versions::Versions;
use crate::error::TierError;
use crate::merged_reads::Staging;
use crate::page_cache::BackingStore;
use crate::page_cache::drive_times::DriveTimes;
use crate::page_cache::header::CacheHeader;
use crate::page_cache::policy::CachePolicy;
use crate::page_cache::statistics::Counters;
use crate::poison::Poison;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use firndb_base::sync::{Arc, Mutex, OnceLock, RwLock};
use firndb_base::{Lsn, PageId};
use firndb_device::{AlignedBuf, Device};
use std::collections::BTreeSet;

/// FaCE's flash cache on one device, over a store.
pub struct FlashCache {
    pub(super) device: Arc<dyn Device>,
    pub(super) store: Arc<dyn BackingStore>,
    pub(super) header: CacheHeader,
    pub(super) geometry: Geometry,
    pub(super) policy: CachePolicy,
    pub(super) directory: Directory,
    /// In write-through mode, held shared while pages go first to the store and then to the cache.
    /// An exclusive holder sees no page between the two.
    pub(super) passing: RwLock<()>,
    /// Serializes the threads that fill, replace and write groups.
    pub(super) ring: Mutex<Ring>,
    /// The group being filled. Written by the holder of `ring` only.
    pub(super) open: RwLock<OpenGroup>,
    /// Serial of the group being filled, for readers; changes under `open`.
    pub(super) rear: AtomicU64,
    /// Serial of the front, for statistics; changes under `ring`.
    pub(super) front: AtomicU64,
    pub(super) pending: Mutex<Pending>,
    /// Versions known without a read, during recovery.
    pub(super) recent: Mutex<Versions>,
    /// Freed pages of which recovery removed images from the directory.
    pub(super) freed_in_redo: Mutex<BTreeSet<PageId>>,
    /// Groups near the front, read ahead.
    pub(super) kept: Mutex<KeptGroups>,
    /// Complete segments of the directory; written by a thread that holds no lock.
    pub(super) segments: Mutex<Vec<Segment>>,
    /// Serial of the last durable group.
    pub(super) durable: AtomicU64,
    /// Why nothing more may be written, once a write has failed.
    pub(super) poison: Poison,
    /// The cache was given up, in write-through mode.
    pub(super) lost: AtomicBool,
    /// Pages, since opening, of which the only newest image could not be read.
    pub(super) lost_pages: Mutex<BTreeSet<PageId>>,
    /// Which changes in dirty images the store lacks, if they are tracked.
    pub(super) lacking: OnceLock<Lacking>,
    /// What requests take of the drives, if both have profiles and the policy has a use for it.
    pub(super) times: OnceLock<DriveTimes>,
    /// Its drive bounds the throughput (`balance.rs`). Changes under `ring`.
    pub(super) is_short: AtomicBool,
    /// The cache takes nothing in any more. Changes under `ring`.
    pub(super) leaving: AtomicBool,
    /// Reusable read buffers.
    pub(super) scratch: Mutex<Vec<AlignedBuf>>,
    /// Buffers for reads of adjacent images.
    pub(super) read_staging: Staging,
    pub(super) counters: Counters,
}

/// The sequence of groups.
pub(crate) struct Ring {
    /// Oldest group that is still needed.
    pub(super) front: Serial,
    /// The group being filled.
    pub(super) rear: Serial,
    /// End of the map records of pages written to the store: the log is durable to here before the
    /// next group is written.
    pub(super) written_back_end: Lsn,
    pub(super) segment: SegmentBuilder,
    /// Pages not admitted, or replaced, lately, if clean pages are admitted selectively.
    pub(super) shadow: Option<ShadowEntries>,
    /// The time of both drives, if it is weighed.
    pub(super) balance: Option<Balance>,
    /// Buffer to read a group that is replaced.
    pub(super) scratch: AlignedBuf,
}

impl FlashCache {
    pub(super) fn is_write_through(&self) -> bool {
        self.header.write_through
    }
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
    pub(super) fn rear(&self) -> Serial {
        Serial(self.rear.load(Relaxed))
    }

    /// Handles a failed write. What of it is in memory stays readable there. In write-back mode the
    /// dirty images on the device are the only copies, so the cache may promise nothing more. In
    /// write-through mode the engine continues without the cache.
    pub(super) fn give_up(&self, cause: TierError) -> TierError {
        if self.is_write_through() {
            self.lost.store(true, Relaxed);
        } else {
            self.poison.set(&cause);
        }
        cause
    }

    /// Number of pages in the group being filled.
    #[cfg(test)]
    pub(crate) fn open_pages(&self) -> usize {
        self.open.read().entries.len()
    }
    /// Offset of a block that holds only bytes of the page's image.
    #[cfg(test)]
    pub(crate) fn image_offset(&self, page: PageId) -> Option<u64> {
        self.hit(page).map(|hit| self.reach(hit).offset + self.geometry.block as u64)
    }
    /// Offset on the device of the first group.
    #[cfg(test)]
    pub(crate) fn groups_begin(&self) -> u64 {
        self.geometry.group_offset(Serial(0))
    }

    pub(super) fn take_scratch(&self, bytes: usize) -> AlignedBuf {
        let kept = self.scratch.lock().pop();
        kept.filter(|buf| buf.len() >= bytes).unwrap_or_else(|| AlignedBuf::zeroed(bytes))
    }
    pub(super) fn keep_scratch(&self, bufs: impl IntoIterator<Item = AlignedBuf>) {
        /// Roughly the number of threads that may read at once.
        const KEPT: usize = 16;
        let mut scratch = self.scratch.lock();
        for buf in bufs {
            if scratch.len() < KEPT {
                scratch.push(buf);
            }
        }
    }
}

impl std::fmt::Debug for FlashCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashCache").field("header", &self.header).finish_non_exhaustive()
    }
}
