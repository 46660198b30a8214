//! The page table: which frame holds a page.
//!
//! A hash table of chains: a bucket names its first frame, each frame the next one. Buckets and
//! links are atomics: a lookup takes no lock, and a page's frame is mostly the first of its chain,
//! so that a hit touches one word of the table and the frame it is going to latch anyway.
//!
//! Invariants: a frame that names a page is in that page's chain, and in no other; chains have no
//! circle; both change only under the chain's shard lock, and under the frame's exclusive latch.
//!
//! A lookup without the lock may follow a frame that has just moved to another chain and miss its
//! page: its *no* is a hint, confirmed under the lock; its *yes* is confirmed by latching the
//! frame.
//!
//! Lock order: a shard lock is taken with page latches held, and nothing is waited for under it.

use crate::frame::state::can_be_held;
use crate::frame::{FrameId, Frames};
use crate::ranks;
use firndb_base::PageId;
use firndb_base::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use firndb_base::sync::{Mutex, MutexGuard};

/// Ends a chain.
const END: u32 = u32::MAX;
/// Frames that a lookup without lock inspects before it searches under the lock.
const HOPS_MAX: usize = 16;
/// Buckets in 64 bytes.
const BUCKETS_A_LINE: u64 = 64 / size_of::<AtomicU32>() as u64;
/// More than any number of threads that miss at the same time.
const SHARDS: usize = 128;

/// Maps pages to frames.
pub(crate) struct PageTable {
    buckets: Box<[AtomicU32]>,
    /// Right shift that leaves a bucket's number of a hash.
    shift: u32,
    shards: Box<[Mutex<()>]>,
}

/// The lock on the chain of one page.
pub(crate) struct ChainLock<'a> {
    table: &'a PageTable,
    page: PageId,
    _shard: MutexGuard<'a, ()>,
}

impl PageTable {
    /// Bytes that a table for `frames` takes.
    pub(crate) fn memory_bytes(frames: usize) -> usize {
        Self::buckets(frames) * size_of::<AtomicU32>() + SHARDS * size_of::<Mutex<()>>()
    }
    /// Two to four for each frame: three in four lookups or more find their frame first in its
    /// chain.
    fn buckets(frames: usize) -> usize {
        (frames * 2).next_power_of_two().max(2 * BUCKETS_A_LINE as usize)
    }

    /// An empty table for `frames`.
    pub(crate) fn new(frames: u32) -> PageTable {
        let count = Self::buckets(frames as usize);
        PageTable {
            buckets: (0..count).map(|_| AtomicU32::new(END)).collect(),
            shift: 64 - count.trailing_zeros(),
            shards: (0..SHARDS).map(|_| ranks::TABLE.mutex(())).collect(),
        }
    }

    /// Neighbouring pages, which are often wanted together, share a cache line of buckets. Which of
    /// a line's buckets a page has depends on the hash, too: pages that are a multiple of a line
    /// apart do not meet.
    fn bucket(&self, page: PageId) -> usize {
        let (line, in_line) = (page.0 / BUCKETS_A_LINE, page.0 % BUCKETS_A_LINE);
        // Fibonacci hashing: neighbouring lines spread evenly over the high bits.
        ((line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) ^ in_line) as usize
    }

    /// The frame that probably holds `page`. Both results are hints. Mostly it is the first of its
    /// chain: looked at where this is called, which looks the frame up next.
    #[inline]
    pub(crate) fn find(&self, frames: &Frames, page: PageId) -> Option<FrameId> {
        if !can_be_held(page) {
            return None;
        }
        let first = self.buckets[self.bucket(page)].load(Acquire);
        if first != END && frames.get(FrameId(first)).holds(page) {
            return Some(FrameId(first));
        }
        Self::find_from(first, frames, page)
    }

    #[inline(never)]
    fn find_from(first: u32, frames: &Frames, page: PageId) -> Option<FrameId> {
        let mut at = first;
        for _ in 0..HOPS_MAX {
            if at == END {
                return None;
            }
            let frame = frames.get(FrameId(at));
            if frame.holds(page) {
                return Some(FrameId(at));
            }
            at = frame.next.load(Acquire);
        }
        None
    }

    /// Locks the chain of `page`.
    pub(crate) fn lock(&self, page: PageId) -> ChainLock<'_> {
        let shard = &self.shards[self.bucket(page) % SHARDS];
        ChainLock { table: self, page, _shard: shard.lock() }
    }
}

impl ChainLock<'_> {
    fn links<'f>(&'f self, frames: &'f Frames) -> impl Iterator<Item = (&'f AtomicU32, u32)> {
        let mut link = &self.table.buckets[self.table.bucket(self.page)];
        std::iter::from_fn(move || {
            let this = link;
            let at = this.load(Acquire);
            if at == END {
                return None;
            }
            link = &frames.get(FrameId(at)).next;
            Some((this, at))
        })
    }

    /// In debug builds, asserts what the module's head states of this chain.
    fn check_in_debug(&self, frames: &Frames) {
        if cfg!(debug_assertions) {
            let bucket = self.table.bucket(self.page);
            for (hops, (_, at)) in self.links(frames).enumerate() {
                let page = frames.get(FrameId(at)).page();
                assert!(hops < frames.made() as usize, "a chain has no circle");
                assert!(
                    page.is_some_and(|page| self.table.bucket(page) == bucket),
                    "{page:?} is in its chain"
                );
            }
        }
    }

    /// The frame that holds the page. It may be being read or evicted, under its exclusive latch.
    pub(crate) fn find(&self, frames: &Frames) -> Option<FrameId> {
        self.links(frames).map(|(_, at)| FrameId(at)).find(|&id| frames.get(id).holds(self.page))
    }

    /// Lets `id` hold the page. The caller holds the frame's exclusive latch.
    pub(crate) fn insert(&self, frames: &Frames, id: FrameId) {
        assert!(self.find(frames).is_none(), "{:?} is in one frame only", self.page);
        let frame = frames.get(id);
        assert!(frame.page().is_none(), "a frame holds one page only");
        let bucket = &self.table.buckets[self.table.bucket(self.page)];
        frame.next.store(bucket.load(Acquire), Release);
        frame.set_page(Some(self.page));
        bucket.store(id.0, Release);
        self.check_in_debug(frames);
    }

    /// Removes the page from `id`, which holds it. The caller holds the frame's exclusive latch.
    pub(crate) fn remove(&self, frames: &Frames, id: FrameId) {
        let frame = frames.get(id);
        assert!(frame.holds(self.page), "{:?} is taken out of the frame that holds it", self.page);
        let (link, _) = self
            .links(frames)
            .find(|&(_, at)| at == id.0)
            .expect("a frame that names a page is in that page's chain");
        link.store(frame.next.load(Acquire), Release);
        frame.set_page(None);
        self.check_in_debug(frames);
        // The link of the removed frame stays as it is: a lookup that has reached it continues
        // along its chain.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn random_inserts_and_removes_agree_with_a_map() {
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let mut rng = Rng::new(seed);
            let frames = Frames::all(64, 8);
            let table = PageTable::new(64);
            let mut model: BTreeMap<PageId, FrameId> = BTreeMap::new();
            let mut free: Vec<FrameId> = (0..64).map(FrameId).collect();
            for _ in 0..2000 {
                // Few distinct pages and two per bucket on purpose, so that chains grow.
                let page = PageId(rng.below(100));
                let chain = table.lock(page);
                assert_eq!(chain.find(&frames), model.get(&page).copied(), "seed {seed}");
                assert_eq!(table.find(&frames, page), model.get(&page).copied(), "seed {seed}");
                match model.remove(&page) {
                    Some(id) => {
                        let _hold = frames.try_exclusive(id).expect("one thread");
                        chain.remove(&frames, id);
                        free.push(id);
                    }
                    None => {
                        let Some(id) = free.pop() else { continue };
                        let _hold = frames.try_exclusive(id).expect("one thread");
                        chain.insert(&frames, id);
                        model.insert(page, id);
                    }
                }
            }
        }
    }
}
