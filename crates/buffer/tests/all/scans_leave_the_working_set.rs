//! Pages that only a scan wants: they take each other's frames, and leave cache and working set
//! alone.

use crate::common::{World, counter_of};
use firndb_base::rng::Rng;
use firndb_base::{PageId, Progress};
use firndb_buffer::PageUse;
use std::sync::atomic::Ordering::SeqCst;

/// Hits among 1,000 fixes of a working set, beside a scan that fixes `scanned` pages after each of
/// them. The fixes go to pages with probabilities that fall with their number.
fn hits_beside_a_scan(working_pages: usize, scanned: usize, page_use: PageUse, ahead: bool) -> u64 {
    const FRAMES: usize = 512;
    const FIXES: usize = 20_000;
    let world = World::new(FRAMES, working_pages + 10 * FRAMES);
    let (working, table) = world.pages.split_at(working_pages);
    assert!(world.pool.begin_read_ahead());
    let mut rng = Rng::new(7);
    let mut scan = table.iter().copied().cycle();
    let mut hits = 0;
    for fix in 0..2 * FIXES {
        let skewed = rng.below(working_pages as u64).min(rng.below(working_pages as u64));
        let page = working[skewed as usize];
        let misses = world.pool.statistics().misses;
        assert_eq!(world.counter(page), 0);
        // The first half warms the pool.
        hits += u64::from(fix >= FIXES && world.pool.statistics().misses == misses);
        let pages: Vec<PageId> = scan.by_ref().take(scanned).collect();
        if ahead {
            world.pool.read_ahead(&pages, page_use);
            while world.pool.read_ahead_step() == Progress::Worked {}
        }
        for page in pages {
            // A leaf is visited in steps.
            for _ in 0..2 {
                counter_of(page, &world.pool.shared_for(page, page_use).expect("fixed"));
            }
        }
    }
    let statistics = world.pool.statistics();
    if ahead {
        let wasted = statistics.pages_ahead_wasted as f64 / statistics.pages_ahead as f64;
        assert!(wasted < 0.01, "{statistics:?}");
    }
    hits / (FIXES as u64 / 1000)
}

#[test]
fn the_hit_rate_of_a_working_set_beside_a_scan_of_ten_times_memory_falls_by_a_tenth_at_most() {
    for working_pages in [400, 512, 1500] {
        let alone = hits_beside_a_scan(working_pages, 0, PageUse::Once, false);
        let ordinary = hits_beside_a_scan(working_pages, 8, PageUse::Working, false);
        for ahead in [false, true] {
            let beside = hits_beside_a_scan(working_pages, 8, PageUse::Once, ahead);
            eprintln!(
                "{working_pages} pages, ahead {ahead}: {alone} alone, {beside} beside, {ordinary} ordinary"
            );
            assert!(
                beside * 10 >= alone * 9,
                "{beside} of 1,000 fixes are hits, and {alone} without the scan"
            );
            assert!(ordinary < beside, "the test sees what a scan does to the working set: {ordinary}");
        }
    }
}

#[test]
fn a_scan_fills_memory_that_no_page_has_taken() {
    let world = World::new(512, 400);
    let scan = || {
        let before = world.pool.statistics().misses;
        for &page in &world.pages {
            counter_of(page, &world.pool.shared_for(page, PageUse::Once).expect("fixed"));
        }
        world.pool.statistics().misses - before
    };
    assert_eq!((scan(), scan()), (400, 0));
}

#[test]
fn pages_of_a_scan_are_not_offered_to_the_cache() {
    let world = World::with(64, 600, true);
    for &page in &world.pages {
        counter_of(page, &world.pool.shared_for(page, PageUse::Once).expect("fixed"));
    }
    assert!(world.pool.statistics().evictions > 500);
    assert_eq!(world.tier.clean_writes.load(SeqCst), 0);
    // A use by any other thread makes it an ordinary page, which is offered when it leaves.
    let page = world.pages[599];
    assert_eq!(world.counter(page), 0);
    for &page in &world.pages[..500] {
        counter_of(page, &world.pool.shared_for(page, PageUse::Once).expect("fixed"));
    }
    assert!(world.pool.shared_in_memory(page).is_some(), "and no scan takes its frame");
    for &page in &world.pages[..200] {
        assert_eq!(world.counter(page), 0);
    }
    assert!(world.tier.clean_writes.load(SeqCst) > 100);
}

#[test]
fn a_scan_that_changes_pages_loses_nothing() {
    let world = World::new(64, 600);
    for round in 1..=2 {
        for &page in &world.pages {
            assert_eq!(
                counter_of(page, &world.pool.shared_for(page, PageUse::Once).expect("fixed")),
                round - 1
            );
            assert_eq!(world.count_up(page), round);
        }
    }
    world.pool.write_older_than(world.log.end()).expect("written");
    world.pages.iter().for_each(|page| assert_eq!(counter_of(*page, &world.tier.page(*page)), 2));
}
