//! What a fix of a page in DRAM costs: `cargo run --release -p firndb-buffer --example fix_cost`.

use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{PageId, clock};
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::{Kind, LogClass, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier};

const ROUNDS: u64 = 5_000_000;

fn measure(what: &str, mut body: impl FnMut(u64)) {
    (0..ROUNDS / 10).for_each(&mut body);
    let start = clock::now();
    (0..ROUNDS).for_each(body);
    println!("{what:<44} {:>7.1} ns", start.elapsed().as_nanos() as f64 / ROUNDS as f64);
}

fn main() {
    let log = firndb_log::testing::memory_log();
    let tier = Arc::new(MemoryTier::new(4096));
    let mut pages = Vec::new();
    for _ in 0..8192 {
        let page = tier.reserve(LogClass::Normal).expect("a memory tier is never full");
        let change = Allocation { allocate: &[page], free: &[] };
        tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).expect("the log has space");
        pages.push(page);
    }
    let pool =
        BufferPool::new(tier, log.clone(), PoolOptions { budget_bytes: 64 << 20 }).expect("a large budget");
    let shared = |page: PageId| pool.shared(page).expect("a frame");
    pages.iter().for_each(|page| drop(shared(*page)));

    measure("shared, one page", |_| drop(shared(pages[0])));
    measure("exclusive, one page", |_| drop(pool.exclusive(pages[0]).expect("a frame")));
    let seen = shared(pages[0]).optimistic();
    measure("shared_if_unchanged, one page", |_| drop(pool.shared_if_unchanged(seen).expect("unchanged")));
    let hot = &pages[..256];
    measure("shared, 256 pages in turn", |round| drop(shared(hot[round as usize % 256])));
    let mut rng = Rng::new(1);
    measure("shared, 8192 pages at random (rng included)", |_| drop(shared(pages[rng.below(8192) as usize])));
    measure("exclusive, intend, withdraw", |_| drop(pool.exclusive(pages[0]).expect("a frame").intend()));
    let lsn = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: b"one" }).expect("space").first;
    println!("{} frames, log at {lsn}", pool.statistics().frames);
}
