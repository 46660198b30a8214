//! Dropping a table always works: the pages that can be reached come back, whatever of the table is
//! damaged and however full the log is; the rest of the database goes on, now and after every
//! opening.

mod beside_checks;
mod in_a_small_log;
mod of_cached_pages;
mod of_damaged_trees;

use firndb::Database;
use std::time::{Duration, Instant};

const PAGE: usize = 1024;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn pages(db: &Database) -> u64 {
    db.statistics().store.pages_allocated
}
