//! Many threads read and change more pages than there are frames, while others clean, take
//! checkpoints and truncate the log. Every page shows its last change; the WAL rule holds; recovery
//! LSNs cover every change.

use crate::common::{World, count_up, counter_of};
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId, Progress};
use firndb_buffer::PageUse;
use firndb_log::LogErrorKind;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// What should be there: counters, and the LSNs of all changes of each page, in order.
#[derive(Default)]
struct Model {
    changes: Mutex<BTreeMap<PageId, Vec<Lsn>>>,
    running: AtomicBool,
    checks: AtomicU64,
}

fn change(world: &World, model: &Model, page: PageId) {
    let intent = world.pool.exclusive(page).expect("fixed").intend();
    // The model's lock spans the append, so that the thread that holds it knows of every record
    // before the log's end.
    let mut changes = model.changes.lock().unwrap();
    match world.try_append() {
        Ok(lsn) => {
            changes.entry(page).or_default().push(lsn);
            let expected = changes[&page].len() as u64;
            drop(changes);
            let guard = intent.apply(lsn, |bytes| count_up(page, bytes));
            assert_eq!(counter_of(page, &guard), expected);
            assert_eq!(guard.version(), lsn);
        }
        Err(error) => {
            assert_eq!(error.kind, LogErrorKind::Full, "{error}");
            drop(changes);
            drop(intent);
            std::thread::yield_now();
        }
    }
}

fn work(world: &World, model: &Model, seed: u64, steps: u32) {
    let mut rng = Rng::new(seed);
    for _ in 0..steps {
        // A third of the work goes to a few hot pages.
        let count = if rng.one_in(3) { 5 } else { world.pages.len() as u64 };
        let page = world.pages[rng.below(count) as usize];
        match rng.below(18) {
            0..=4 => change(world, model, page),
            5 => {
                let intent = world.pool.exclusive(page).expect("fixed").intend();
                let before = intent.version();
                assert_eq!(intent.withdraw().downgrade().version(), before);
            }
            6 => {
                let seen = {
                    let guard = world.pool.shared(page).expect("fixed");
                    (guard.optimistic(), guard.to_vec())
                };
                if let Some(guard) = world.pool.shared_if_unchanged(seen.0) {
                    assert_eq!(*guard, *seen.1, "unchanged means unchanged");
                }
                if let Some(guard) = world.pool.exclusive_if_unchanged(seen.0) {
                    assert_eq!(*guard, *seen.1, "unchanged means unchanged");
                }
            }
            7 => {
                world.pool.bring_in(&[page, PageId(page.0 + 1), world.pages[0]], PageUse::Working);
            }
            16 => {
                let hints: Vec<PageId> = (0..20).map(|step| PageId(page.0 + step)).collect();
                world.pool.read_ahead(&hints, PageUse::Working);
            }
            17 => {
                // A scan; the leaves before its end are not used.
                let pages: Vec<PageId> = (0..12).map(|step| PageId(page.0 + step)).collect();
                world.pool.read_ahead(&pages, PageUse::Once);
                for page in pages.into_iter().take(8).filter(|page| world.pages.contains(page)) {
                    counter_of(page, &world.pool.shared_for(page, PageUse::Once).expect("fixed"));
                    if let Some(guard) = world.pool.shared_in_memory_for(page, PageUse::Once) {
                        counter_of(page, &guard);
                    }
                }
            }
            8 => {
                // Two latches at once, in ascending order.
                let other = world.pages[rng.below(world.pages.len() as u64) as usize];
                let (low, high) = (page.min(other), page.max(other));
                let first = world.pool.shared(low).expect("fixed");
                counter_of(low, &first);
                if low < high {
                    counter_of(high, &world.pool.exclusive(high).expect("fixed"));
                }
            }
            _ => {
                counter_of(page, &world.pool.shared(page).expect("fixed"));
            }
        }
    }
}

/// Every change before the log's end is in the tier or at or after the oldest recovery LSN.
fn check_recovery_lsns(world: &World, model: &Model) {
    let known = model.changes.lock().unwrap().clone();
    let oldest = world.pool.oldest_recovery_lsn().unwrap_or(Lsn::MAX);
    for (page, lsns) in &known {
        use firndb_tier::PageTier;
        let held = world.tier.version_of(*page).unwrap().expect("allocated");
        if let Some(missing) = lsns.iter().find(|lsn| **lsn > held) {
            assert!(
                oldest <= *missing,
                "{page:?}: {missing:?} is only in DRAM, the oldest recovery LSN is {oldest:?}"
            );
        }
    }
    model.checks.fetch_add(1, SeqCst);
}

fn checkpoint(world: &World) {
    let end = world.log.end();
    world.pool.write_older_than(end).expect("written");
    let oldest = world.pool.oldest_recovery_lsn().unwrap_or(end).min(end);
    assert!(oldest >= end, "all that was older than {end:?} is written, {oldest:?} is left");
    world.log.flush(oldest).expect("flushed");
    world.log.truncate(oldest);
}

fn run(seed: u64, frames: usize, pages: usize, wants_clean: bool, steps: u32) {
    let world = World::with(frames, pages, wants_clean);
    let model = Model { running: AtomicBool::new(true), ..Model::default() };
    world.tier.delay_us.store(20, SeqCst);
    assert!(world.pool.begin_read_ahead());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while model.running.load(SeqCst) {
                    if world.pool.read_ahead_step() == Progress::Idle {
                        world.pool.wait_for_read_ahead(Duration::from_millis(1));
                    }
                }
            });
        }
        let background = [
            scope.spawn(|| {
                while model.running.load(SeqCst) {
                    if world.pool.clean_step().expect("cleaned") == Progress::Idle {
                        world.pool.wait_for_cleaning(Duration::from_millis(1));
                    }
                }
            }),
            scope.spawn(|| {
                while model.running.load(SeqCst) {
                    checkpoint(&world);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }),
            scope.spawn(|| {
                while model.running.load(SeqCst) {
                    check_recovery_lsns(&world, &model);
                }
            }),
        ];
        let workers: Vec<_> = (0..4)
            .map(|thread| {
                let (world, model) = (&world, &model);
                scope.spawn(move || work(world, model, seed * 100 + thread, steps))
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        model.running.store(false, SeqCst);
        background.into_iter().for_each(|thread| thread.join().expect("the background thread asserts"));
        outcomes.into_iter().for_each(|outcome| outcome.expect("the worker asserts"));
    });

    checkpoint(&world);
    assert_eq!(world.pool.statistics().dirty, 0, "no thread changes pages any more: all are written");
    for (page, lsns) in model.changes.lock().unwrap().iter() {
        assert_eq!(world.counter(*page), lsns.len() as u64, "seed {seed}");
        assert_eq!(counter_of(*page, &world.tier.page(*page)), lsns.len() as u64, "seed {seed}");
    }
    assert_eq!(world.tier.wal_violations.load(SeqCst), 0);
    assert!(model.checks.load(SeqCst) > 0);
    let statistics = world.pool.statistics();
    assert!(statistics.evictions > 0 && statistics.resident <= statistics.frames, "{statistics:?}");
    let ended = statistics.pages_ahead_used + statistics.pages_ahead_wasted;
    assert!(ended <= statistics.pages_ahead && statistics.pages_ahead - ended <= statistics.resident);
    assert!(statistics.pages_ahead_used > 0, "{statistics:?}");
}

/// Few steps, for Miri, which searches for races and weak orders rather than for rare schedules.
#[test]
fn in_small() {
    run(40, 12, 30, true, if cfg!(miri) { 12 } else { 300 });
}

#[test]
fn with_few_frames() {
    for seed in 0..4 {
        run(seed, 24, 200, false, 3000);
    }
}

#[test]
fn with_more_frames() {
    run(10, 128, 400, false, 6000);
}

#[test]
fn with_a_tier_that_wants_clean_pages() {
    for seed in 20..22 {
        run(seed, 32, 200, true, 3000);
    }
}

#[test]
#[ignore = "minutes long; for the night"]
fn for_long() {
    for seed in 1000..1100 {
        run(seed, 16 + seed as usize % 50, 300, seed % 2 == 0, 10_000);
    }
}
