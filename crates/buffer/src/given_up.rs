//! Frames that the pool gives up, so that the tier below has their memory for its tables.
//!
//! A thread that has read a page looks whether the tier wants memory, and gives it a frame that is
//! at hand: one frame for each page read at most, so that the pool shrinks no faster than pages
//! come in. The frame holds no page and is on no list of free ones; the clock's hand passes over it.

use crate::layout::FRAMES_MIN;
use crate::page_use::PageUse;
use crate::pool::BufferPool;
use firndb_device::AlignedBuf;

/// Of the pool's frames, those that it may give up, as a divisor.
const SHARE: u64 = 3;
/// Frames that it keeps in any case.
const KEPT: u64 = 4 * FRAMES_MIN as u64;

impl BufferPool {
    /// Gives a frame's memory to the tier, if that wants it. The caller may hold latches: nothing is
    /// waited for.
    pub(crate) fn give_memory_down(&self) {
        let page_size = self.page_size();
        // Of a smaller frame the system takes nothing back.
        if self.tier.wants_memory() < page_size || page_size < AlignedBuf::ALIGNMENT {
            return;
        }
        let most = u64::from(self.frames.count()).saturating_sub(KEPT) / SHARE;
        if self.counters.given_up.get() >= most {
            return;
        }
        if let Some(claimed) = self.claim_at_hand(PageUse::Working) {
            claimed.give_up();
            self.counters.given_up.add(1);
            self.tier.take_memory(page_size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changed::Changed;
    use crate::pool::PoolOptions;
    use firndb_base::PageId;
    use firndb_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
            for (number, page) in pages.iter().enumerate() {
                assert_eq!(pool.shared(*page).expect("fixed")[..8], number.to_le_bytes());
            }
            let most = if page_size < 4096 { 0 } else { (frames - KEPT) / SHARE };
            let given = most.min(wanted as u64);
            assert_eq!(tier.got.load(Relaxed) as u64, given * page_size as u64);
            let statistics = pool.statistics();
            assert_eq!((statistics.frames, statistics.resident), (frames - given, frames - given));
        }
    }
}
