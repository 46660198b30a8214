//! Failing devices, too few frames, broken rules and panics.

use crate::common::{ProbeTier, World, budget_for, count_up, counter_of};
use firndb_base::{Lsn, PageId};
use firndb_buffer::{BufferErrorKind, BufferPool, PoolOptions};
use firndb_log::{Kind, LogClass, Record};
use firndb_tier::{Allocation, PageTier};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;

#[test]
fn a_read_error_reaches_every_caller_and_leaves_nothing_behind() {
    let world = World::new(32, 2);
    world.tier.reads_fail.store(true, SeqCst);
    world.tier.delay_us.store(5_000, SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let error = world.pool.shared(world.pages[0]).err().expect("reads fail");
                assert_eq!(error.kind, BufferErrorKind::Failed);
            });
        }
    });
    assert_eq!(world.pool.statistics().resident, 0);
    world.tier.reads_fail.store(false, SeqCst);
    assert_eq!(world.counter(world.pages[0]), 0);
    // All frames are still there.
    let frames = world.pool.statistics().frames as usize;
    let world = World { pages: (0..frames).map(|_| world.allocate()).collect(), ..world };
    let guards: Vec<_> = world.pages.iter().map(|page| world.pool.shared(*page).expect("a frame")).collect();
    assert_eq!(guards.len(), frames);
}

#[test]
fn a_write_error_keeps_pages_dirty_and_misses_failing_until_it_is_repaired() {
    let world = World::new(16, 100);
    let frames = world.pool.statistics().frames as usize;
    let (changed, others) = world.pages.split_at(frames);
    changed.iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
    let oldest = world.pool.oldest_recovery_lsn();
    world.tier.writes_fail.store(true, SeqCst);
    for &page in &others[..10] {
        let error = world.pool.shared(page).err().expect("no frame can be made free");
        assert_eq!(error.kind, BufferErrorKind::Failed, "{error}");
    }
    assert!(world.pool.write_older_than(world.log.end()).is_err());
    assert!(world.pool.clean_step().is_err());
    assert_eq!(world.pool.oldest_recovery_lsn(), oldest, "nothing was written, all is still needed");
    // What is in DRAM can be used and changed on.
    changed.iter().for_each(|page| assert_eq!(world.count_up(*page), 2));

    world.tier.writes_fail.store(false, SeqCst);
    others.iter().for_each(|page| assert_eq!(world.counter(*page), 0));
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    for &page in changed {
        assert_eq!((world.counter(page), counter_of(page, &world.tier.page(page))), (2, 2));
    }
}

/// Cause: the first error of a batch that was written to free frames was returned for the page that
/// was to come in. Effect: a page was taken for damaged, by recovery until the next opening, that
/// only had to take the frame of one that was.
#[test]
fn pages_that_damage_keeps_from_being_written_concern_no_other_page() {
    let world = World::new(16, 100);
    let frames = world.pool.statistics().frames as usize;
    let (changed, others) = world.pages.split_at(frames);
    changed.iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
    // More than fit a batch, wherever the clock's hand begins.
    let (stuck, writable) = changed.split_at(frames - 1);
    world.tier.unwritable.lock().unwrap().extend(stuck);
    for page in others {
        assert_eq!(counter_of(*page, &world.pool.shared(*page).expect("another victim is found")), 0);
    }
    stuck.iter().for_each(|page| assert_eq!(world.count_up(*page), 2));
    assert_eq!(world.counter(writable[0]), 1, "it was written and read again");
    // Where no reader needs the frame, the write-back returns an error that names the page.
    let error = world.pool.write_older_than(world.log.end()).expect_err("most cannot be written");
    assert_eq!(error.kind, BufferErrorKind::Damaged);
    assert!(stuck.iter().any(|page| error.message.contains(&format!("{page:?}"))), "{error}");

    // If no frame can be had at all, the error is not one of the page that was asked for.
    world.count_up(writable[0]);
    world.tier.unwritable.lock().unwrap().extend(writable);
    let error = world.pool.shared(others[0]).err().expect("no frame can be freed");
    assert!(error.kind == BufferErrorKind::NoFrame && !error.concerns_the_page(), "{error}");
    assert!(changed.iter().any(|page| error.message.contains(&format!("{page:?}"))), "it names one: {error}");
    world.tier.unwritable.lock().unwrap().clear();
    assert_eq!(world.counter(others[0]), 0);
    assert_eq!(world.counter(writable[0]), 2);
}

#[test]
fn changes_of_a_failed_write_are_part_of_the_next_delta() {
    // The probe rebuilds each image from the one before and the changed ranges it gets.
    let world = World::new(32, 1);
    let page = world.pages[0];
    let checkpoint = || world.pool.write_older_than(world.log.end());
    world.count_up(page);
    checkpoint().expect("written");
    world.count_up(page);
    world.tier.writes_fail.store(true, SeqCst);
    assert!(checkpoint().is_err() && checkpoint().is_err());
    world.count_up(page);
    world.tier.writes_fail.store(false, SeqCst);
    checkpoint().expect("written");
    assert_eq!(counter_of(page, &world.tier.page(page)), 3);
    world.count_up(page);
    checkpoint().expect("written");
    assert_eq!(counter_of(page, &world.tier.page(page)), 4);
    assert!(world.tier.deltas_checked.load(SeqCst) >= 2, "changes were few enough to be listed");
}

#[test]
fn an_image_in_flight_cannot_land_on_the_next_incarnation_of_its_page() {
    for round in 0..20 {
        let world = World::new(32, 1);
        let page = world.pages[0];
        world.count_up(page);
        world.tier.delay_us.store(3_000, SeqCst);
        std::thread::scope(|scope| {
            let end = world.log.end();
            let pool = &world.pool;
            let checkpoint = scope.spawn(move || pool.write_older_than(end));
            // From before the write to after it.
            std::thread::sleep(std::time::Duration::from_micros(200 * round));
            let guard = world.pool.exclusive(page).expect("resident");
            let mut append = |record: Record<'_>| world.log.try_append(LogClass::Normal, record);
            let freed = Allocation { allocate: &[], free: &[page] };
            world.tier.publish(freed, &mut append).expect("published");
            guard.discard();
            let intent = world.pool.create(page).expect("a frame").intend();
            let allocated = Allocation { allocate: &[page], free: &[] };
            world.tier.publish(allocated, &mut append).expect("published");
            let lsn = world.append();
            let guard = intent.apply(lsn, |bytes| count_up(page, bytes));
            assert_eq!(counter_of(page, &guard), 1, "it started from zeros");
            drop(guard);
            checkpoint.join().expect("no assertion of the pool fails").expect("a freed page is no error");
        });
        assert!(world.pool.oldest_recovery_lsn().is_some(), "the new life is only in DRAM");
        world.pool.write_older_than(world.log.end()).expect("written");
        assert_eq!(counter_of(page, &world.tier.page(page)), 1);
    }
}

#[test]
fn clean_frames_serve_misses_while_writes_fail() {
    let world = World::new(32, 200);
    world.pages[..20].iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
    world.tier.writes_fail.store(true, SeqCst);
    world.pages.iter().for_each(|page| assert!(world.counter(*page) <= 1));
    world.pages[..20].iter().for_each(|page| assert_eq!(world.counter(*page), 1));
}

#[test]
fn a_pool_whose_frames_are_all_latched_says_so_and_recovers() {
    let world = World::new(16, 60);
    let frames = world.pool.statistics().frames as usize;
    let mut guards: Vec<_> =
        world.pages[..frames].iter().map(|page| world.pool.shared(*page).expect("a frame")).collect();
    let error = world.pool.shared(world.pages[frames]).err().expect("no frame is left");
    assert_eq!(error.kind, BufferErrorKind::NoFrame);
    assert!(error.message.contains("larger"), "{error}");
    guards.pop();
    assert_eq!(world.counter(world.pages[frames]), 0);
    drop(guards);
    world.pages.iter().for_each(|page| assert_eq!(world.counter(*page), 0));
}

#[test]
fn a_miss_that_finds_all_frames_latched_waits_a_while_for_one() {
    let world = World::new(16, 60);
    let frames = world.pool.statistics().frames as usize;
    let held = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guards: Vec<_> = world.pages[..frames].iter().map(|page| world.pool.shared(*page)).collect();
            held.wait();
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(guards);
        });
        held.wait();
        assert_eq!(world.counter(world.pages[frames]), 0);
    });
}

#[test]
fn the_wal_rule_holds_and_the_probe_would_see_it_broken() {
    for broken in [false, true] {
        let log = firndb_log::testing::memory_log_with(4 << 20);
        let tier = ProbeTier::new(log.clone(), false);
        let make = if broken { BufferPool::new_breaking_the_wal_rule } else { BufferPool::new };
        let pool =
            make(tier.clone(), log.clone(), PoolOptions { budget_bytes: budget_for(16) }).expect("a pool");
        for _ in 0..100 {
            let page = tier.reserve(LogClass::Normal).expect("a page");
            let change = Allocation { allocate: &[page], free: &[] };
            tier.publish(change, &mut |record| log.append(LogClass::Normal, record)).expect("published");
            let intent = pool.exclusive(page).expect("a frame").intend();
            let record = Record { kind: Kind(0x20), body: &[7; 100] };
            let lsn = log.try_append(LogClass::Normal, record).expect("appended").first;
            drop(intent.apply(lsn, |bytes| count_up(page, bytes)));
        }
        assert_eq!(tier.wal_violations.load(SeqCst) > 0, broken);
    }
}

#[test]
fn a_panic_inside_a_change_poisons_the_pool_and_nothing_of_it_is_written() {
    let world = World::new(32, 10);
    world.count_up(world.pages[1]);
    for between_append_and_apply in [false, true] {
        let world = World::new(32, 10);
        let page = world.pages[0];
        world.count_up(page);
        world.count_up(world.pages[1]);
        let writes = world.tier.dirty_writes.load(SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let intent = world.pool.exclusive(page).expect("fixed").intend();
            let lsn = world.append();
            assert!(!between_append_and_apply, "on purpose");
            let _ = intent.apply(lsn, |bytes| {
                bytes.fill(1);
                panic!("on purpose");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(
            world.pool.write_older_than(world.log.end()).expect_err("poisoned").kind,
            BufferErrorKind::Failed
        );
        assert_eq!(world.pool.shared(world.pages[5]).err().expect("poisoned").kind, BufferErrorKind::Failed);
        if !between_append_and_apply {
            assert!(world.pool.shared(page).is_err(), "the half changed page is not shown");
        }
        assert_eq!(world.counter(world.pages[1]), 1, "what is in DRAM and whole can still be read");
        assert_eq!(world.tier.dirty_writes.load(SeqCst), writes);
        assert!(world.pool.oldest_recovery_lsn().is_some(), "the log is still needed");
    }
}

#[test]
fn a_tier_that_panics_leaves_nothing_latched_or_waiting() {
    let world = World::new(32, 10);
    world.pages[..4].iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
    world.tier.panics.store(true, SeqCst);
    for _ in 0..5 {
        assert!(catch_unwind(AssertUnwindSafe(|| world.pool.write_older_than(world.log.end()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| world.pool.shared(world.pages[9]).is_ok())).is_err());
    }
    world.tier.panics.store(false, SeqCst);
    assert_eq!(world.counter(world.pages[9]), 0);
    world.pages[..4].iter().for_each(|page| assert_eq!(world.count_up(*page), 2));
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
}

#[test]
fn announcements_cover_the_record_and_are_withdrawn_without_one() {
    let world = World::new(32, 2);
    let page = world.pages[0];
    let intent = world.pool.exclusive(page).expect("fixed").intend();
    let announced = world.pool.oldest_recovery_lsn().expect("announced");
    let lsn = world.append();
    assert!(announced <= lsn);
    let guard = intent.apply(lsn, |bytes| count_up(page, bytes));
    // A second change keeps the first one's recovery LSN, and a second intent withdraws nothing of
    // it.
    drop(guard.intend());
    assert_eq!(world.pool.oldest_recovery_lsn(), Some(announced));
    world.pool.write_older_than(world.log.end()).expect("written");
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    drop(world.pool.exclusive(page).expect("fixed").intend());
    assert_eq!(world.pool.oldest_recovery_lsn(), None);
    // A checkpoint of an LSN before the change leaves it alone.
    let before = world.log.end();
    world.count_up(page);
    world.pool.write_older_than(before).expect("nothing to do");
    assert_eq!(world.pool.oldest_recovery_lsn(), Some(before));
}

#[test]
#[should_panic(expected = "is to be changed at")]
fn a_record_older_than_the_page_is_refused() {
    let world = World::new(32, 1);
    let old = world.append();
    world.count_up(world.pages[0]);
    let intent = world.pool.exclusive(world.pages[0]).expect("fixed").intend();
    let _ = intent.apply(old, |_| unreachable!());
}

#[test]
fn a_version_past_the_end_of_the_log_is_damage() {
    let world = World::new(32, 1);
    let other = firndb_log::testing::memory_log_with(4 << 20);
    let page = world.pages[0];
    // The same tier under a log that has not come as far.
    let pool = BufferPool::new(world.tier.clone(), other, PoolOptions { budget_bytes: budget_for(16) })
        .expect("a pool");
    world.count_up(page);
    world.pool.write_older_than(world.log.end()).expect("written");
    let error = pool.shared(page).err().expect("its version is not of this log");
    assert_eq!(error.kind, BufferErrorKind::Damaged);
    assert!(pool.shared(PageId(u64::MAX)).is_err() && pool.shared(PageId(0)).is_err());
    assert_eq!(pool.oldest_recovery_lsn().unwrap_or(Lsn::MAX), Lsn::MAX);
}
