//! Opening with a large buffer takes no time and no memory: both come with the pages.

use firndb_base::sync::Arc;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{LogClass, testing};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier};

/// Bytes of this process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux tells of its memory");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("in kB") << 10
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no memory map")]
fn a_buffer_of_four_gibibytes_is_not_touched_at_opening() {
    const BUDGET: usize = 4 << 30;
    const PAGES: usize = 2000;
    let log = testing::memory_log();
    let tier = Arc::new(MemoryTier::new(4096));
    let before = resident();
    let pool = BufferPool::new(tier.clone(), log.clone(), PoolOptions { budget_bytes: BUDGET }).unwrap();
    let frames = pool.statistics().frames as usize;
    assert!(frames > 900_000, "{frames}");
    // Eight bytes a frame for recovery LSNs, eight for the page table; staging buffers.
    let opened = resident() - before;
    assert!(opened < BUDGET / 100, "{opened} bytes");
    // And the pages that come are there.
    let pages: Vec<_> = (0..PAGES).map(|_| tier.reserve(LogClass::Normal).unwrap()).collect();
    let change = Allocation { allocate: &pages, free: &[] };
    tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).unwrap();
    for page in &pages {
        assert!(pool.shared(*page).unwrap().iter().all(|byte| *byte == 0));
    }
    let used = resident() - before;
    assert!(used < opened + PAGES * 4096 + (32 << 20), "{used} bytes");
    assert_eq!(pool.statistics().resident, PAGES as u64);
}
