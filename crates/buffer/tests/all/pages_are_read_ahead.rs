//! Pages that are read ahead: queued, brought in by readers, used or wasted, and never in the way.

use crate::common::World;
use firndb_base::{PageId, Progress};
use firndb_buffer::PageUse;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Runs the readers' steps until the queue is empty.
fn read_all(world: &World) {
    while world.pool.read_ahead_step() == Progress::Worked {}
}

#[test]
fn without_readers_hints_are_dropped() {
    let world = World::new(128, 20);
    assert_eq!(world.pool.read_ahead(&world.pages, PageUse::Working), 0);
    assert_eq!(world.pool.read_ahead_step(), Progress::Idle);
    world.pool.begin_read_ahead();
    assert_eq!(world.pool.read_ahead(&world.pages[..3], PageUse::Working), 3);
    world.pool.end_read_ahead();
    assert_eq!(world.pool.read_ahead_step(), Progress::Idle, "what was queued is dropped");
    // Nothing to wait for: a reader that asks once more ends.
    world.pool.wait_for_read_ahead(Duration::MAX);
    assert_eq!((world.pool.statistics().resident, world.tier.reads.load(SeqCst)), (0, 0));
}

#[test]
fn a_pool_without_read_ahead_drops_every_hint() {
    let mut world = World::new(256, 20);
    let pool = std::sync::Arc::into_inner(world.pool).expect("the world's own").without_read_ahead();
    world.pool = pool.into();
    world.pool.begin_read_ahead();
    assert_eq!(world.pool.read_ahead(&world.pages, PageUse::Once), 0);
    assert_eq!(world.pool.bring_in(&world.pages, PageUse::Working), 0);
    assert_eq!(world.tier.reads.load(SeqCst), 0, "nothing is read for a hint");
    assert_eq!(world.counter(world.pages[3]), 0);
    assert_eq!(world.tier.reads.load(SeqCst), 1, "a page is read when it is fixed");
}

#[test]
fn queued_pages_come_in_together_and_their_first_use_is_counted() {
    let world = World::new(256, 20);
    world.pool.begin_read_ahead();
    assert_eq!(world.pool.read_ahead(&world.pages[..10], PageUse::Working), 10);
    // A thread reaches one of them first.
    assert_eq!(world.counter(world.pages[3]), 0);
    assert_eq!(world.pool.read_ahead_step(), Progress::Worked);
    assert_eq!(world.pool.read_ahead_step(), Progress::Idle);
    let mut found = Vec::new();
    world.pool.resident(&world.pages[8..12], &mut found);
    assert_eq!(found, [true, true, false, false]);
    assert_eq!(world.pool.read_ahead(&world.pages[..10], PageUse::Working), 0, "all are there");
    let statistics = world.pool.statistics();
    assert_eq!((statistics.pages_ahead, statistics.pages_ahead_used, statistics.misses), (9, 0, 10));
    assert_eq!((statistics.reads_at_once_max, statistics.reads_at_once_sum), (9, 1 + 9 * 9));
    for _ in 0..2 {
        for &page in &world.pages[..10] {
            assert!(world.pool.shared_in_memory(page).is_some());
        }
        assert_eq!(world.pool.statistics().pages_ahead_used, 9, "the first use only");
    }
    assert!(world.pool.shared_in_memory(world.pages[15]).is_none());
    assert_eq!(world.pool.statistics().misses, 10, "nothing is read for that");
}

#[test]
fn a_page_that_cannot_be_had_is_left_to_the_fix() {
    let world = World::new(256, 10);
    world.pool.begin_read_ahead();
    let hints = [world.pages[0], PageId(10_000), PageId(u64::MAX), world.pages[1]];
    assert_eq!(world.pool.read_ahead(&hints, PageUse::Once), 3);
    read_all(&world);
    assert_eq!(world.pool.statistics().resident, 2);
    assert!(world.pool.shared(PageId(10_000)).is_err());
}
