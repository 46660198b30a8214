//! Fixing, creating, forgetting, prefetching and evicting pages.

use crate::common::{PAGE_SIZE, World, budget_for, count_up, counter_of};
use firndb_base::PageId;
use firndb_buffer::{BufferErrorKind, BufferPool, Changed, PageUse, PoolOptions};
use firndb_log::{LogClass, Record};
use firndb_tier::testing::MemoryTier;
use firndb_tier::{Allocation, PageTier};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

#[test]
fn a_page_is_read_once_however_many_threads_ask_for_it() {
    let world = World::new(32, 4);
    world.tier.delay_us.store(20_000, SeqCst);
    let barrier = std::sync::Barrier::new(6);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (world, barrier) = (&world, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let page = world.pages[0];
                if thread % 2 == 0 {
                    assert_eq!(counter_of(page, &world.pool.shared(page).expect("read")), 0);
                } else {
                    assert_eq!(counter_of(page, &world.pool.exclusive(page).expect("read")), 0);
                }
            });
        }
    });
    assert_eq!(world.tier.reads.load(SeqCst), 1);
    let statistics = world.pool.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.resident), (5, 1, 1));
}

#[test]
fn pages_beyond_the_pool_are_written_and_read_again() {
    let world = World::new(16, 300);
    for round in 1..=3 {
        for &page in &world.pages {
            assert_eq!(world.count_up(page), round);
        }
    }
    for &page in &world.pages {
        assert_eq!(world.counter(page), 3);
    }
    let statistics = world.pool.statistics();
    assert!(statistics.evictions >= 3 * 300 - 16, "{statistics:?}");
    // No cleaner ran in the background, so misses wrote the dirty pages, in groups.
    assert!(statistics.batches_written_by_misses > 0);
    assert_eq!(world.tier.wal_violations.load(SeqCst), 0);
}

#[test]
fn groups_leave_together_where_frames_allow() {
    let world = World::new(512, 1500);
    for &page in &world.pages {
        world.count_up(page);
    }
    assert_eq!(world.tier.largest_batch.load(SeqCst), 16, "what the tier prefers");
    let statistics = world.pool.statistics();
    assert!(statistics.pages_written >= 10 * statistics.batches_written, "{statistics:?}");
}

#[test]
fn a_working_set_survives_a_scan() {
    let world = World::new(64, 1000);
    let (hot, cold) = world.pages.split_at(16);
    for _ in 0..2 {
        hot.iter().for_each(|page| drop(world.pool.shared(*page).expect("fixed")));
    }
    for (at, page) in cold.iter().enumerate() {
        drop(world.pool.shared(*page).expect("fixed"));
        // The working set is used once while as many other pages are read as the pool holds.
        drop(world.pool.shared(hot[at % 16]).expect("fixed"));
    }
    let misses = world.pool.statistics().misses;
    assert_eq!(misses, 1000, "each page was read once, the hot ones never again");
}

#[test]
fn the_background_step_keeps_frames_ready_for_misses() {
    let world = World::new(256, 2000);
    for &page in &world.pages {
        world.count_up(page);
        while world.pool.clean_step().expect("cleaned") == firndb_base::Progress::Worked {}
    }
    assert_eq!(world.pool.statistics().batches_written_by_misses, 0, "no miss had to write");
    assert!(world.tier.largest_batch.load(SeqCst) > 4);
}

#[test]
fn a_tier_that_wants_clean_pages_is_offered_each_that_leaves() {
    let world = World::with(32, 200, true);
    for &page in &world.pages {
        assert_eq!(world.counter(page), 0);
    }
    let statistics = world.pool.statistics();
    assert!(world.tier.clean_writes.load(SeqCst) >= statistics.evictions, "{statistics:?}");
    assert_eq!(statistics.pages_written, 0);
}

/// The store asks for pages that it wants to write whole, whether they changed or not.
#[test]
fn unchanged_pages_that_the_tier_wants_back_are_offered_once_and_no_others() {
    let world = World::new(32, 200);
    world.tier.merges.store(true, SeqCst);
    for &page in &world.pages {
        assert_eq!(world.counter(page), 0);
    }
    let evictions = world.pool.statistics().evictions;
    let merged = world.tier.merged.load(SeqCst);
    assert!(evictions >= 160 && merged >= evictions, "{merged} offered, {evictions} evicted");
    assert!(merged <= world.pages.len() as u64, "each once");

    // What the tier refuses does not keep the frame.
    world.tier.writes_fail.store(true, SeqCst);
    let mut refused = 0;
    for &page in &world.pages {
        refused += u64::from(world.pool.shared(page).is_err());
    }
    assert!(refused < 100, "{refused} of 200 pages found no frame: each batch that fails frees the next");
    world.tier.writes_fail.store(false, SeqCst);

    world.tier.merges.store(false, SeqCst);
    world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 0));
    let before = world.tier.merged.load(SeqCst);
    world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 0));
    assert_eq!(world.tier.merged.load(SeqCst), before, "none that was read without a delta page");
    assert_eq!(world.pool.statistics().pages_written, 0);
}

#[test]
fn a_created_page_is_zero_is_not_read_and_can_be_forgotten() {
    let world = World::new(32, 1);
    let reads = world.tier.reads.load(SeqCst);
    let page = world.tier.reserve(LogClass::Normal).expect("reserved");
    let intent = world.pool.create(page).expect("a frame").intend();
    assert!(intent.iter().all(|byte| *byte == 0));
    let change = Allocation { allocate: &[page], free: &[] };
    let mut append = |record: Record<'_>| world.log.try_append(LogClass::Normal, record);
    let appended = world.tier.publish(change, &mut append).expect("published");
    assert!(appended.end <= world.log.end());
    let lsn = world.append();
    drop(intent.apply(lsn, |bytes| count_up(page, bytes)));
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(counter_of(page, &world.tier.page(page)), 1);

    // Freed: what is in DRAM is forgotten, even if it is dirty.
    assert_eq!(world.count_up(page), 2);
    let guard = world.pool.exclusive(page).expect("there");
    let change = Allocation { allocate: &[], free: &[page] };
    world.tier.publish(change, &mut append).expect("published");
    guard.discard();
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    assert_eq!(world.pool.shared(page).err().expect("freed").kind, BufferErrorKind::NotAllocated);
    assert_eq!(world.tier.reads.load(SeqCst), reads + 1);

    // A page number that comes back starts from zeros, whatever DRAM holds.
    drop(world.pool.create(page).expect("a frame"));
    let again = world.pool.create(page).expect("a frame");
    assert!(again.iter().all(|byte| *byte == 0));
    again.discard();
    assert_eq!(world.pool.statistics().resident, 0);
}

#[test]
fn a_page_freed_without_being_forgotten_does_not_stop_checkpoints() {
    let world = World::new(32, 2);
    let page = world.pages[0];
    world.count_up(page);
    let change = Allocation { allocate: &[], free: &[page] };
    let mut append = |record: Record<'_>| world.log.try_append(LogClass::Normal, record);
    world.tier.publish(change, &mut append).expect("published");
    world.pool.write_older_than(world.log.end()).expect("the freed page is no error");
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    assert_eq!(world.pool.statistics().resident, 0);
}

#[test]
fn prefetched_pages_come_with_one_read_and_are_hits() {
    let world = World::new(128, 20);
    assert_eq!(world.pool.bring_in(&world.pages[..5], PageUse::Working), Some(5));
    assert_eq!(world.pool.bring_in(&world.pages[..10], PageUse::Working), Some(5));
    assert_eq!(
        world.pool.bring_in(&[PageId(10_000)], PageUse::Working),
        Some(0),
        "an error is left to the fix"
    );
    for &page in &world.pages[..10] {
        assert_eq!(world.counter(page), 0);
    }
    let statistics = world.pool.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.resident), (10, 11, 10));
}

#[test]
fn a_note_of_a_page_is_good_until_the_page_changes_or_leaves() {
    let world = World::new(16, 200);
    let page = world.pages[0];
    let seen = world.pool.shared(page).expect("fixed").optimistic();
    assert_eq!(seen.page(), page);
    drop(world.pool.exclusive(page).expect("fixed"));
    drop(world.pool.exclusive(page).expect("fixed").intend());
    assert!(world.pool.shared_if_unchanged(seen).is_some());
    world.count_up(page);
    assert!(world.pool.shared_if_unchanged(seen).is_none());
    assert!(world.pool.exclusive_if_unchanged(seen).is_none());

    let seen = world.pool.shared(page).expect("fixed").optimistic();
    let guard = world.pool.exclusive_if_unchanged(seen).expect("no thread changed it");
    assert_eq!(counter_of(page, &guard), 1);
    drop(guard);
    world.pages[1..].iter().for_each(|page| drop(world.pool.shared(*page).expect("fixed")));
    assert!(world.pool.shared_if_unchanged(seen).is_none(), "it has left");
    assert_eq!(world.counter(page), 1);
    assert!(world.pool.shared_if_unchanged(seen).is_none(), "it came back, perhaps to the same frame");
}

#[test]
fn a_page_seen_is_refused_once_its_frame_got_a_page_anew() {
    let world = World::new(16, 2);
    let page = world.pages[0];
    let seen = world.pool.shared(page).expect("fixed").optimistic();
    world.count_up(page);
    assert!(world.pool.exclusive_seen(seen).is_some(), "changes do not matter");
    drop(world.pool.create(page).expect("a frame"));
    let now = world.pool.shared(page).expect("fixed").optimistic();
    assert!(world.pool.exclusive_seen(now).is_some());
    assert!(world.pool.exclusive_seen(seen).is_none(), "another incarnation of that page number");
}

#[test]
fn memory_is_what_the_budget_says() {
    for budget_bytes in [64 << 10, 1 << 20, 5_000_000] {
        let tier = Arc::new(MemoryTier::new(4096));
        let log = firndb_log::testing::memory_log_with(4 << 20);
        match BufferPool::new(tier, log, PoolOptions { budget_bytes }) {
            Ok(pool) => {
                let statistics = pool.statistics();
                assert!(statistics.memory_bytes <= budget_bytes as u64);
                assert!(statistics.frames * 4096 >= budget_bytes as u64 / 100 * 80, "{statistics:?}");
            }
            Err(error) => {
                assert_eq!(error.kind, BufferErrorKind::BadArgument);
                assert!(budget_bytes < 100 << 10, "{error}");
            }
        }
    }
    assert!(budget_for(16) >= 16 * PAGE_SIZE);
}

#[test]
fn redo_applies_what_the_page_lacks_and_pins_the_log_from_there() {
    let world = World::new(16, 100);
    let page = world.pages[0];
    let records: Vec<_> = (0..10).map(|_| world.append()).collect();
    let mut guard = world.pool.exclusive(page).expect("fixed");
    assert!(guard.redo(records[2], |bytes| count_up(page, bytes)));
    assert!(!guard.redo(records[1], |_| unreachable!("older than the page")));
    assert!(!guard.redo(records[2], |_| unreachable!("the page has it")));
    assert!(guard.redo(records[5], |bytes| count_up(page, bytes)));
    assert_eq!((counter_of(page, &guard), guard.version()), (2, records[5]));
    drop(guard);
    assert_eq!(world.pool.oldest_recovery_lsn(), Some(records[2]));

    // Written and changed again by an older record than the log's end: covered from there.
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    let mut guard = world.pool.exclusive(page).expect("fixed");
    assert!(guard.redo(records[7], |bytes| count_up(page, bytes)));
    drop(guard);
    assert_eq!(world.pool.oldest_recovery_lsn(), Some(records[7]));

    world.pages.iter().for_each(|page| drop(world.pool.shared(*page).expect("fixed")));
    assert_eq!(world.counter(page), 3);
}

#[test]
fn redo_during_a_write_of_the_same_page_stays_covered() {
    let world = World::new(32, 1);
    let page = world.pages[0];
    let records: Vec<_> = (0..40).map(|_| world.append()).collect();
    world.tier.delay_us.store(200, SeqCst);
    std::thread::scope(|scope| {
        let redo = scope.spawn(|| {
            for &lsn in &records {
                assert!(world.pool.exclusive(page).expect("fixed").redo(lsn, |bytes| count_up(page, bytes)));
                std::thread::sleep(std::time::Duration::from_micros(150));
                let held = world.tier.version_of(page).unwrap().unwrap();
                if held < lsn {
                    let first_missing = *records.iter().find(|record| **record > held).expect("this one is");
                    // Asked before the tier, as a checkpoint must: a write may have ended in
                    // between.
                    let oldest = world.pool.oldest_recovery_lsn();
                    let held_now = world.tier.version_of(page).unwrap().unwrap();
                    assert!(held_now > held || oldest.is_some_and(|oldest| oldest <= first_missing));
                }
            }
        });
        while !redo.is_finished() {
            world.pool.write_older_than(world.log.end()).expect("written");
        }
    });
    assert_eq!(world.counter(page), 40);
}

#[test]
fn a_page_that_changes_all_the_time_is_written_once_by_a_checkpoint() {
    let world = World::new(32, 1);
    let page = world.pages[0];
    world.count_up(page);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hot = scope.spawn(|| {
            while !stop.load(SeqCst) {
                world.count_up(page);
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        for _ in 0..20 {
            let before = world.tier.dirty_writes.load(SeqCst);
            let end = world.log.end();
            world.pool.write_older_than(end).expect("written");
            assert!(world.tier.dirty_writes.load(SeqCst) <= before + 1);
            assert!(world.pool.oldest_recovery_lsn().is_none_or(|oldest| oldest >= end));
        }
        stop.store(true, SeqCst);
        hot.join().expect("asserts");
    });
    assert_eq!(world.tier.wal_violations.load(SeqCst), 0);
}

#[test]
fn changes_of_most_of_a_page_are_written_whole() {
    let world = World::new(32, 1);
    let page = world.pages[0];
    let intent = world.pool.exclusive(page).expect("fixed").intend();
    let lsn = world.append();
    let guard = intent.apply(lsn, |bytes| {
        bytes.fill(0x5A);
        Changed::Most
    });
    drop(guard);
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.tier.page(page), vec![0x5A; PAGE_SIZE]);
}
