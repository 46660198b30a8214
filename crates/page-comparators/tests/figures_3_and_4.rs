//! The paper's figures 3 and 4 as a script: a write buffer of two logs, and a page of logs that has
//! space for four.
//!
//! Pages 1 and 2, then 3 and 4, then both pairs again are given down: eight pages leave DRAM.

use firndb_page_comparators::{Incremental, Medium, Method, Naive, Start, granules};
use firndb_tier::Changes;

const START: Start = Start { page_size: 8192, pages: 16 };
/// A log: 16 + 4 bytes and 30 granules of 64.
const LOG: u64 = 20 + 30 * 64;

fn changes() -> Option<Changes> {
    Some(granules(0..30))
}

/// The eight pages of figure 3.
fn give_down(method: &mut dyn Method, medium: &mut Medium<'_>) {
    for page in [1, 2, 3, 4, 1, 2, 3, 4] {
        method.write(page, changes(), medium);
        method.end_batch(medium);
    }
}

fn log_pages(medium: &Medium<'_>) -> u64 {
    medium.counts().written.deltas / START.page_size
}

#[test]
fn eight_pages_become_four_log_pages_and_a_page_is_read_with_three_reads_or_with_two() {
    let (mut naive, mut incremental) = (Naive::new(START, 2 * LOG, 8), Incremental::new(START, 2 * LOG, 8));
    let methods: [(&mut dyn Method, u64, u64); 2] = [(&mut naive, 3, 0), (&mut incremental, 2, 2)];
    for (method, reads, copied) in methods {
        let mut medium = Medium::new(START.page_size);
        give_down(method, &mut medium);
        assert_eq!((log_pages(&medium), medium.counts().written.images), (4, 0));
        // The third flush reads the first page of logs, the fourth the second.
        assert_eq!(medium.counts().read.deltas / START.page_size, copied);
        for page in [1, 2, 3, 4] {
            let before = medium.counts().read.all();
            assert_eq!(method.read(page, &mut medium), reads - 1, "page {page}");
            assert_eq!((medium.counts().read.all() - before) / START.page_size, reads, "page {page}");
        }
        let before = medium.counts().read.all();
        assert_eq!(method.read(5, &mut medium), 0, "a page without logs");
        assert_eq!(medium.counts().read.all() - before, START.page_size);
    }
}

#[test]
fn when_no_log_page_is_left_the_latest_logs_are_merged_and_the_log_pages_are_used_again() {
    let mut incremental = Incremental::new(START, 2 * LOG, 4);
    let mut medium = Medium::new(START.page_size);
    give_down(&mut incremental, &mut medium);
    assert_eq!(medium.counts().merges, 0);
    medium.restart();
    // The logs of 5 and 6 find no page: 1 to 6 are merged, from two pages of logs and DRAM.
    for page in [5, 6] {
        incremental.write(page, changes(), &mut medium);
    }
    let counts = medium.counts();
    assert_eq!((counts.merges, counts.written.images / START.page_size), (6, 6));
    assert_eq!((counts.read.images / START.page_size, counts.read.deltas / START.page_size), (6, 2));
    assert_eq!(counts.written.deltas, 0, "a reset writes nothing");
    for page in 1..=6 {
        assert_eq!(incremental.read(page, &mut medium), 0);
    }
    give_down(&mut incremental, &mut medium);
    assert_eq!((log_pages(&medium), medium.counts().merges), (4, 6), "the space is used again");
}

#[test]
fn a_log_that_passes_half_a_page_is_merged() {
    let mut incremental = Incremental::new(START, 2 * LOG, 8);
    let mut medium = Medium::new(START.page_size);
    give_down(&mut incremental, &mut medium);
    medium.restart();
    // Two logs have 3,880 bytes; a third would pass 4,096.
    incremental.write(1, changes(), &mut medium);
    incremental.write(5, changes(), &mut medium);
    let counts = medium.counts();
    assert_eq!((counts.merges, counts.written.images / START.page_size), (1, 1));
    assert_eq!(incremental.read(1, &mut medium), 0);
    assert_eq!(incremental.read(5, &mut medium), 1);
}

#[test]
fn naive_logs_are_merged_when_no_log_page_is_left() {
    let mut naive = Naive::new(START, 2 * LOG, 4);
    let mut medium = Medium::new(START.page_size);
    give_down(&mut naive, &mut medium);
    medium.restart();
    for page in [5, 1] {
        naive.write(page, changes(), &mut medium);
    }
    let counts = medium.counts();
    assert_eq!((counts.merges, counts.read.deltas / START.page_size), (5, 4));
    assert_eq!(naive.read(1, &mut medium), 0);
}
