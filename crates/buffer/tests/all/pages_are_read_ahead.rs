//! Pages that are read ahead: queued, brought in by readers, used or wasted, and never in the way.

use crate::common::{World, counter_of};
use firndb_base::{PageId, Progress};
use firndb_buffer::{BufferErrorKind, InMemory, PageUse};
use firndb_log::{LogClass, Record};
use firndb_tier::{Allocation, PageTier, TierErrorKind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Runs the readers' steps until the queue is empty.
fn read_all(world: &World) {
    while world.pool.read_ahead_step() == Progress::Worked {}
}

#[test]
fn without_readers_hints_are_dropped() {
    let world = World::new(128, 20);
    assert_eq!(world.pool.read_ahead(&world.pages, PageUse::Working), 0);
    assert_eq!(world.pool.read_ahead_step(), Progress::Idle);
    assert!(world.pool.begin_read_ahead());
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
    assert!(!world.pool.begin_read_ahead(), "readers have nothing to do");
    assert_eq!(world.pool.read_ahead(&world.pages, PageUse::Once), 0);
    assert_eq!(world.pool.bring_in(&world.pages, PageUse::Working), None);
    assert_eq!(world.tier.reads.load(SeqCst), 0, "nothing is read for a hint");
    assert_eq!(world.counter(world.pages[3]), 0);
    assert_eq!(world.tier.reads.load(SeqCst), 1, "a page is read when it is fixed");
}

#[test]
fn queued_pages_come_in_together_and_their_first_use_is_counted() {
    let world = World::new(512, 20);
    assert!(world.pool.begin_read_ahead());
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

/// Pages whose places are not known wait for a map page first: a reader begins with them while the
/// calling thread reads the others, or the calling thread reads them afterwards.
#[test]
fn pages_that_wait_for_something_else_are_read_beside_the_others() {
    for has_reader in [false, true] {
        let world = World::new(512, 40);
        // Few of those that are known, then few of those that are not.
        for (pages, apart) in [(0..10, [2, 5]), (20..30, [24, 27])] {
            let (pages, apart) = (&world.pages[pages], apart.map(|at| world.pages[at]));
            let is_apart = |page: &PageId| apart.contains(page);
            let unknown = pages.iter().filter(|page| is_apart(page) == (pages[0] == world.pages[0]));
            *world.tier.unknown.lock().unwrap() = unknown.copied().collect();
            world.tier.batches.lock().unwrap().clear();
            let bring_in = || world.pool.bring_in(pages, PageUse::Working).expect("frames are free");
            let came = match has_reader {
                false => {
                    assert!(world.pool.begin_read_ahead());
                    let came = bring_in();
                    assert_eq!(world.pool.read_ahead_step(), Progress::Worked, "they are still queued");
                    came
                }
                true => {
                    world.tier.delay_us.store(2_000, SeqCst);
                    let mut came = 0;
                    with_readers(&world, || came = bring_in());
                    came
                }
            };
            // Each was read once, by either thread.
            let mut batches = world.tier.batches.lock().unwrap().clone();
            batches.retain(|batch| !batch.is_empty());
            let others: Vec<PageId> = pages.iter().copied().filter(|page| !is_apart(page)).collect();
            assert!(batches.contains(&others), "{batches:?}");
            let mut rest: Vec<PageId> =
                batches.into_iter().filter(|batch| *batch != others).flatten().collect();
            rest.sort_unstable();
            assert_eq!(rest, apart);
            assert!(if has_reader { (8..=10).contains(&came) } else { came == 10 }, "{came}");
            let mut found = Vec::new();
            world.pool.resident(pages, &mut found);
            assert_eq!(found, [true; 10]);
        }
    }
}

#[test]
fn a_page_that_cannot_be_had_is_left_to_the_fix() {
    let world = World::new(256, 10);
    assert!(world.pool.begin_read_ahead());
    let hints = [world.pages[0], PageId(10_000), PageId(u64::MAX), world.pages[1]];
    assert_eq!(world.pool.read_ahead(&hints, PageUse::Once), 3);
    read_all(&world);
    assert_eq!(world.pool.statistics().resident, 2);
    assert!(world.pool.shared(PageId(10_000)).is_err());
}

/// What was read ahead was used, was wasted, or is there unused.
fn assert_accounted(world: &World, unused: u64) {
    let statistics = world.pool.statistics();
    let ended = statistics.pages_ahead_used + statistics.pages_ahead_wasted;
    assert_eq!(statistics.pages_ahead, ended + unused, "{statistics:?}");
}

/// Runs `body` beside two reader threads.
fn with_readers(world: &World, body: impl FnOnce()) {
    assert!(world.pool.begin_read_ahead());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    if world.pool.read_ahead_step() == Progress::Idle {
                        world.pool.wait_for_read_ahead(Duration::from_secs(100));
                    }
                }
            });
        }
        let body = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        stop.store(true, SeqCst);
        world.pool.end_read_ahead();
        body.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn an_error_reaches_the_fix_that_needs_the_page_and_nothing_stays_latched() {
    for kind in [TierErrorKind::Unreadable, TierErrorKind::Damaged, TierErrorKind::Failed] {
        let world = World::new(256, 60);
        let bad = [world.pages[0], world.pages[7], world.pages[31]];
        world.tier.unreadable.lock().unwrap().extend(bad.map(|page| (page, kind)));
        world.tier.delay_us.store(2_000, SeqCst);
        with_readers(&world, || {
            world.pool.read_ahead(&world.pages, PageUse::Once);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for &page in &world.pages {
                            let outcome = world.pool.shared_for(page, PageUse::Once);
                            assert_eq!(outcome.is_err(), bad.contains(&page), "{page:?}");
                            if let Err(error) = outcome {
                                assert!(error.message.contains("asked to fail"), "{error}");
                            }
                        }
                    });
                }
            });
            world.tier.unreadable.lock().unwrap().clear();
            bad.iter().for_each(|page| assert_eq!(world.counter(*page), 0, "read once it can be"));
        });
        for &page in &world.pages {
            // Neither latched nor being filled.
            assert_eq!(world.count_up(page), 1);
        }
        assert_accounted(&world, 0);
    }
}

#[test]
fn a_slow_read_stops_only_those_that_want_its_pages() {
    let world = World::new(256, 60);
    let hot = world.pages[50];
    assert_eq!(world.counter(hot), 0);
    world.tier.delay_us.store(200_000, SeqCst);
    with_readers(&world, || {
        assert_eq!(world.pool.read_ahead(&world.pages[..8], PageUse::Working), 8);
        let begun = Instant::now();
        let mut found = Vec::new();
        while !found.iter().any(|found| *found) {
            world.pool.resident(&world.pages[..1], &mut found);
        }
        // A page that is being read, and one that is there.
        assert!(world.pool.shared_in_memory(world.pages[0]).is_none());
        assert!(world.pool.shared_in_memory(hot).is_some());
        assert!(begun.elapsed() < Duration::from_millis(150), "neither waited for the device");
        assert_eq!(counter_of(world.pages[0], &world.pool.shared(world.pages[0]).expect("waited for")), 0);
        assert_eq!(world.tier.reads.load(SeqCst), 9, "it was read once");
    });
}

#[test]
fn frames_being_filled_are_an_eighth_of_the_pool_at_most() {
    let world = World::new(64, 400);
    let frames = world.pool.statistics().frames;
    world.tier.delay_us.store(300, SeqCst);
    with_readers(&world, || {
        let mut queued = 0;
        for pages in world.pages.chunks(40) {
            let more = world.pool.read_ahead(pages, PageUse::Once) as u64;
            assert!(more <= frames / 8, "the queue is bounded, too");
            queued += more;
            std::thread::sleep(Duration::from_micros(200));
        }
        let begun = Instant::now();
        while world.pool.statistics().pages_ahead < queued {
            assert!(begun.elapsed() < Duration::from_secs(60), "the readers empty the queue");
            std::thread::yield_now();
        }
    });
    let statistics = world.pool.statistics();
    assert!((1..=frames / 8).contains(&statistics.reads_at_once_max), "{statistics:?}");
    let came = world.pool.bring_in(&world.pages, PageUse::Working).expect("frames are free");
    assert!((1..=frames as usize / 8).contains(&came), "{came}");
    assert_eq!(world.tier.reads.load(SeqCst), world.pool.statistics().misses);
}

#[test]
fn pages_freed_while_they_are_read_ahead_are_wasted_and_forgotten() {
    let world = World::new(256, 40);
    let mut append = |record: Record<'_>| world.log.try_append(LogClass::Normal, record);
    assert!(world.pool.begin_read_ahead());
    assert_eq!(world.pool.read_ahead(&world.pages[..20], PageUse::Working), 20);
    // Some are freed while they are queued, some when they are in memory.
    let freed = Allocation { allocate: &[], free: &world.pages[..5] };
    world.tier.publish(freed, &mut append).expect("published");
    read_all(&world);
    assert_eq!(world.pool.statistics().pages_ahead, 15);
    let freed = Allocation { allocate: &[], free: &world.pages[5..10] };
    world.tier.publish(freed, &mut append).expect("published");
    for &page in &world.pages[5..10] {
        // The page's next incarnation.
        world.pool.create(page).expect("a frame").discard();
    }
    assert_eq!(world.pool.statistics().pages_ahead_wasted, 5);
    assert_accounted(&world, 10);
    for &page in &world.pages[..10] {
        let error = world.pool.shared(page).err().expect("freed");
        assert_eq!(error.kind, BufferErrorKind::NotAllocated);
    }
}

#[test]
fn pages_evicted_before_their_use_are_wasted() {
    let world = World::new(64, 400);
    assert!(world.pool.begin_read_ahead());
    assert!(world.pool.read_ahead(&world.pages[..8], PageUse::Working) > 0);
    read_all(&world);
    let ahead = world.pool.statistics().pages_ahead;
    assert_eq!(world.counter(world.pages[0]), 0);
    world.pages[10..].iter().for_each(|page| assert_eq!(world.counter(*page), 0));
    let statistics = world.pool.statistics();
    assert_eq!((statistics.pages_ahead_used, statistics.pages_ahead_wasted), (1, ahead - 1));
}

/// Cause: a thread that frees a page which is in no frame has nothing to latch, and hints name
/// pages as nodes had them earlier. Effect: the page came in between, and its frame outlived it; a
/// note of the page could find it there, as if it were still in the tree.
#[test]
fn a_page_that_is_freed_while_absent_is_not_read_ahead_meanwhile() {
    let world = World::new(256, 10);
    let page = world.pages[4];
    world.pool.begin_read_ahead();
    assert_eq!(world.pool.read_ahead(&world.pages, PageUse::Once), 10);
    let InMemory::Absent(absent) = world.pool.exclusive_in_memory(page) else { panic!("never read") };
    assert_eq!(absent.page(), page);
    read_all(&world);
    assert_eq!(world.pool.bring_in(&world.pages, PageUse::Working), Some(0));
    assert_eq!(world.pool.statistics().resident, 9);
    assert!(matches!(world.pool.exclusive_in_memory(page), InMemory::Absent(_)));
    let mut append = |record: Record<'_>| world.log.try_append(LogClass::Normal, record);
    world.tier.publish(Allocation { allocate: &[], free: &[page] }, &mut append).expect("published");
    drop(absent);
    assert_eq!(world.pool.bring_in(&[page], PageUse::Working), Some(0), "it is free");
    assert_eq!(world.pool.statistics().resident, 9);
}
