//! Frames that the pool gives up, so that the tier below has their memory for its tables.
//!
//! A thread that has read a page looks whether the tier wants memory, and gives up a frame that
//! holds a clean page which was not used since the clock's hand came by: one frame for each page
//! read at most, so that the pool shrinks no faster than pages come in. The frame holds no page any
//! more and is on no list of free ones; the hand passes over it.
//!
//! All of them lie in the last third of the pool. The system puts no huge pages under that from
//! then on: it makes those of what it finds, and fills up what was given back.

use crate::frame::FrameId;
use crate::layout::FRAMES_MIN;
use crate::pool::BufferPool;
use firndb_base::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Of the pool's frames, those that it may give up, as a divisor.
const SHARE: u32 = 3;
/// Frames that it keeps in any case.
const KEPT: u32 = 4 * FRAMES_MIN as u32;
/// Frames looked at each time.
const TRIES: u32 = 8;

/// What was given up.
pub(crate) struct GivenUp {
    /// The first frame that may be; all up to the pool's end.
    first: u32,
    most: u32,
    count: AtomicU32,
    /// The next one to look at, from `first` on, round and round.
    next: AtomicU32,
    /// Set by the one thread that gives a frame up; for good if the system takes none.
    is_busy: AtomicBool,
}

impl GivenUp {
    /// Of a pool of `frames` frames.
    pub(crate) fn new(frames: u32) -> GivenUp {
        let most = frames.saturating_sub(KEPT) / SHARE;
        let (count, next, is_busy) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        GivenUp { first: frames - most, most, count, next, is_busy }
    }
    /// Frames given up so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed).into()
    }
}

impl BufferPool {
    /// Gives a frame's memory to the tier, if that wants it. The caller may hold latches: nothing
    /// is waited for.
    #[inline]
    pub(crate) fn give_memory_down(&self) {
        if self.tier.wants_memory() >= self.page_size() {
            self.give_up_one();
        }
    }

    #[cold]
    fn give_up_one(&self) {
        let given = &self.given_up;
        // While there are frames that never held a page, the pool does not use its memory itself.
        if self.frames.made() < self.frames.count() || given.is_busy.swap(true, Acquire) {
            return;
        }
        let is_wanted = self.tier.wants_memory() >= self.page_size();
        if is_wanted && given.count.load(Relaxed) < given.most && !self.try_give_up() {
            // The system takes nothing back: the flag stays.
            return;
        }
        given.is_busy.store(false, Release);
    }

    /// Gives up one of the next frames if it can be evicted; false if the system refuses. One
    /// thread at a time.
    fn try_give_up(&self) -> bool {
        let given = &self.given_up;
        for _ in 0..TRIES {
            let step = given.next.load(Relaxed);
            given.next.store((step + 1) % given.most, Relaxed);
            let id = FrameId(given.first + step);
            let frame = self.frames.get(id);
            if frame.page().is_none() || frame.is_referenced() {
                continue;
            }
            let Some(claimed) = self.evict(id) else { continue };
            if given.count.load(Relaxed) == 0 {
                self.frames.use_small_pages(FrameId(given.first));
            }
            if !claimed.give_up() {
                return false;
            }
            given.count.fetch_add(1, Relaxed);
            self.tier.take_memory(self.page_size());
            return true;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changed::Changed;
    use crate::pool::PoolOptions;
    use firndb_base::PageId;
    use firndb_base::sync::atomic::AtomicUsize;
    use firndb_base::sync::{Arc, DevicePermit};
    use firndb_log::{Kind, LogClass, Record};
    use firndb_tier::testing::MemoryTier;
    use firndb_tier::{Allocation, PageRead, PageTier};

    /// Wants memory, and counts what it gets.
    struct Hungry {
        inner: MemoryTier,
        wants: AtomicUsize,
        got: AtomicUsize,
    }

    impl PageTier for Hungry {
        firndb_tier::forward_tier!(inner: page_size, write_batch, make_batch_space, reserve, unreserve);
        firndb_tier::forward_tier!(inner: prepare, publish, sync, version_of, oldest_needed_lsn, statistics);
        fn read_batch(&self, reads: &mut [PageRead<'_>]) {
            self.inner.read_batch(reads);
        }
        fn wants_memory(&self) -> usize {
            self.wants.load(Relaxed)
        }
        fn take_memory(&self, bytes: usize) {
            self.wants.fetch_sub(bytes, Relaxed);
            self.got.fetch_add(bytes, Relaxed);
        }
    }

    #[test]
    fn a_tier_gets_what_it_wants_a_third_of_the_pool_at_most_and_no_page_is_lost() {
        for (page_size, wanted) in [(4096, 3), (4096, 1000), (512, 1000)] {
            let log = firndb_log::testing::memory_log_with(4 << 20);
            let (wants, got) = (AtomicUsize::new(wanted * page_size), AtomicUsize::new(0));
            let tier = Arc::new(Hungry { inner: MemoryTier::new(page_size), wants, got });
            let options = PoolOptions { budget_bytes: 300 * page_size };
            let pool = BufferPool::new(tier.clone(), log.clone(), options).expect("a large budget");
            let frames = pool.frame_count();
            let pages: Vec<PageId> = (0..1000)
                .map(|_| {
                    let page = tier.reserve(LogClass::Normal).expect("a memory tier is never full");
                    let change = Allocation { allocate: &[page], free: &[] };
                    tier.publish(change, &mut |record| log.append(LogClass::Normal, record))
                        .expect("published");
                    page
                })
                .collect();
            for (number, page) in pages.iter().enumerate() {
                // Appends under a latch, as trees do, which try only.
                let _permit = DevicePermit::granted();
                let intent = pool.exclusive(*page).expect("fixed").intend();
                let record = Record { kind: Kind(0x20), body: b"change" };
                let lsn = log.append(LogClass::Normal, record).expect("the log has space").first;
                let guard = intent.apply(lsn, |bytes| {
                    bytes[..8].copy_from_slice(&number.to_le_bytes());
                    Changed::Most
                });
                drop(guard);
            }
            for (number, page) in pages.iter().enumerate().cycle().take(5 * pages.len()) {
                assert_eq!(pool.shared(*page).expect("fixed")[..8], number.to_le_bytes());
            }
            let most = if page_size < 4096 { 0 } else { (frames - u64::from(KEPT)) / u64::from(SHARE) };
            let given = most.min(wanted as u64);
            assert_eq!(tier.got.load(Relaxed) as u64, given * page_size as u64);
            let statistics = pool.statistics();
            assert_eq!((statistics.frames, statistics.resident), (frames - given, frames - given));
        }
    }
}
