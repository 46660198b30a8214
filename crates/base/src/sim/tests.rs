//! The scheduler seen from inside: what is deterministic, what is found, what is reported.

use super::{Policy, SimFailure, SimOptions, SimOutcome, charge, is_active, note, run};
use crate::clock::{self, Moment};
use crate::rng;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, OnceLock, RawLatch, RwLock, spin_hint, thread};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn ended<R>(outcome: Result<SimOutcome<R>, SimFailure>) -> SimOutcome<R> {
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(outcome.leaked, Vec::<String>::new());
    outcome
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(name, body).expect("a thread")
}

/// Threads that use every kind of wrapper, and note in which order.
fn busy_body() -> Vec<u64> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::new((RwLock::new(0u64), RawLatch::new(), Condvar::new()));
    thread::scope(|scope| {
        for no in 0..4u64 {
            let (order, shared) = (&order, &shared);
            scope.spawn(move || {
                for turn in 0..20 {
                    *shared.0.write() += 1;
                    let seen = *shared.0.read();
                    shared.1.lock_shared();
                    // SAFETY: held shared since the line above.
                    unsafe { shared.1.unlock_shared() };
                    let mut order = order.lock();
                    order.push(no << 32 | seen);
                    if turn % 5 == no {
                        shared.2.wait_for(&mut order, MS);
                    }
                    shared.2.notify_one();
                    drop(order);
                    thread::yield_now();
                    charge(Duration::from_micros(7 * (no + 1)));
                }
            });
        }
    });
    order.lock().clone()
}

#[test]
fn one_seed_is_one_run_and_another_seed_another() {
    for policy in [Policy::Random, Policy::Priorities { changes: 3, over_steps: 1000 }, Policy::Fair] {
        let mut hashes = std::collections::BTreeSet::new();
        for seed in 0..12 {
            let options = SimOptions { policy, ..SimOptions::seeded(seed) };
            let (a, b) = (ended(run(options.clone(), busy_body)), ended(run(options, busy_body)));
            assert_eq!(a.value, b.value);
            assert_eq!(
                (a.trace_hash, a.steps, a.switches, a.virtual_time),
                (b.trace_hash, b.steps, b.switches, b.virtual_time)
            );
            assert_eq!(a.value.len(), 80);
            hashes.insert(a.value);
        }
        if policy == Policy::Fair {
            assert_eq!(hashes.len(), 1, "nothing is drawn");
        } else {
            assert_eq!(hashes.len(), 12, "{policy:?}: seeds differ");
        }
    }
}

#[test]
fn time_passes_only_while_no_thread_can_run() {
    let began = std::time::Instant::now();
    let outcome = ended(run(SimOptions::seeded(1), || {
        let start = clock::now();
        assert_eq!(start, Moment::ZERO);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let handles: Vec<_> = [3u64, 1, 2]
            .into_iter()
            .map(|hours| {
                let woken = woken.clone();
                spawn("sleeper", move || {
                    clock::sleep(Duration::from_secs(3600 * hours));
                    woken.lock().push(hours);
                })
            })
            .collect();
        assert_eq!(clock::now(), start, "computing takes no time of its own");
        handles.into_iter().for_each(|handle| handle.join().expect("no panic"));
        assert_eq!(clock::unix_time_us(), 1_767_225_600_000_000 + 3 * 3600 * 1_000_000);
        let before = clock::now();
        super::set_wall_clock(-7200 * 1_000_000);
        assert_eq!(
            clock::unix_time_us(),
            1_767_225_600_000_000 + 3600 * 1_000_000,
            "the clock on the wall went back"
        );
        assert_eq!(clock::now(), before, "no other");
        woken.lock().clone()
    }));
    assert_eq!(outcome.value, [1, 2, 3]);
    assert_eq!(outcome.virtual_time, Duration::from_secs(3 * 3600));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn charged_work_queues_for_the_cores() {
    let options = SimOptions { cores: 2, ..SimOptions::seeded(1) };
    let outcome = ended(run(options, || {
        assert_eq!(thread::available_parallelism().expect("known").get(), 2);
        thread::scope(|scope| (0..5).for_each(|_| drop(scope.spawn(|| charge(10 * MS)))));
    }));
    assert_eq!(outcome.virtual_time, 30 * MS, "five pieces of work on two cores");
}

#[test]
fn a_lonely_sleeper_moves_the_clock_itself() {
    let outcome = ended(run(SimOptions::seeded(1), || (0..10_000).for_each(|_| clock::sleep(MS))));
    assert_eq!((outcome.virtual_time, outcome.switches), (10_000 * MS, 0));
}

#[test]
fn a_deadlock_names_the_threads_and_their_locks() {
    // Some seeds let one thread take both locks before the other starts.
    let failure = (0..50).find_map(|seed| {
        run(SimOptions { preempt_one_in: 2, ..SimOptions::seeded(seed) }, || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = locks.clone();
            let handle = spawn("crosswise", move || {
                let _second = other.1.lock();
                let _first = other.0.lock();
            });
            {
                let _first = locks.0.lock();
                note(|| "the first is mine".to_owned());
                let _second = locks.1.lock();
            }
            handle.join().expect("no panic");
        })
        .err()
    });
    let Some(SimFailure::Deadlock(report)) = failure else { panic!("a deadlock: {failure:?}") };
    let text = SimFailure::Deadlock(report.clone()).to_string();
    assert_eq!(report.threads.len(), 2, "{text}");
    for line in &report.threads {
        assert!(
            line.contains("waits for lock") && line.contains("; holds lock") && line.contains("tests.rs:"),
            "{line}"
        );
    }
    assert!(text.contains("\"crosswise\"") && text.contains("the first is mine"), "{text}");
}

#[test]
fn a_lost_notification_is_a_deadlock() {
    let failure = run(SimOptions::seeded(1), || {
        let pair = (Mutex::new(()), Condvar::new());
        let mut guard = pair.0.lock();
        pair.1.wait(&mut guard);
    })
    .expect_err("no thread notifies");
    let text = failure.to_string();
    assert!(text.contains("waits for a notification"), "{text}");
}

#[test]
fn limits_and_panics_end_a_run() {
    let options = SimOptions { step_limit: 1000, ..SimOptions::seeded(1) };
    let failure = run(options, || {
        loop {
            thread::yield_now()
        }
    })
    .map(|_: SimOutcome<()>| ())
    .expect_err("it loops");
    assert!(matches!(failure, SimFailure::StepLimit(_)), "{failure}");

    let options = SimOptions { time_limit: 10 * MS, ..SimOptions::seeded(1) };
    let failure = run(options, || clock::sleep(11 * MS)).map(drop).expect_err("too late");
    assert!(matches!(failure, SimFailure::TimeLimit(_)), "{failure}");

    let failure = run(SimOptions::seeded(9), || {
        let handle = spawn("unlucky", || panic!("three is too many"));
        let _ = handle.join();
    })
    .map(drop)
    .expect_err("a panic");
    let text = failure.to_string();
    assert!(
        text.contains("unlucky") && text.contains("three is too many") && text.contains("seed 9"),
        "{text}"
    );

    let options = SimOptions { stuck_after: 50 * MS, ..SimOptions::seeded(1) };
    let stop = Arc::new(AtomicU64::new(0));
    let spinner = stop.clone();
    let failure = run(options, move || {
        while spinner.load(Ordering::Relaxed) == 0 {
            std::hint::spin_loop()
        }
    });
    stop.store(1, Ordering::Relaxed);
    assert!(matches!(failure, Err(SimFailure::Stuck(_))), "{failure:?}");
}

#[test]
fn threads_that_outlive_the_body_may_end_or_are_named() {
    let outcome = ended(run(SimOptions::seeded(1), || drop(spawn("late", || clock::sleep(MS)))));
    assert_eq!(outcome.virtual_time, MS);
    let outcome = run(SimOptions::seeded(1), || {
        drop(spawn("slow", || clock::sleep(Duration::from_secs(1000))));
        drop(spawn("periodic", || {
            loop {
                clock::sleep(MS)
            }
        }));
    })
    .expect("that is no failure");
    assert_eq!(outcome.leaked, ["thread 1 \"slow\"", "thread 2 \"periodic\""]);
    assert!(outcome.virtual_time <= Duration::from_secs(10));
}

#[test]
fn spinners_let_others_run_and_time_pass() {
    for seed in 0..10 {
        for policy in [Policy::Random, Policy::Priorities { changes: 2, over_steps: 50 }, Policy::Fair] {
            let outcome = ended(run(SimOptions { policy, ..SimOptions::seeded(seed) }, || {
                let flag = Arc::new(AtomicU64::new(0));
                let lock = Arc::new(Mutex::new(()));
                let (setter, held) = (flag.clone(), lock.clone());
                let handle = spawn("setter", move || {
                    let _held = held.lock();
                    clock::sleep(MS);
                    setter.store(1, Ordering::Release);
                    clock::sleep(MS);
                });
                while flag.load(Ordering::Acquire) == 0 {
                    spin_hint();
                }
                while lock.try_lock().is_none() {}
                let until = clock::now().after(MS).expect("soon");
                while clock::now() < until {}
                handle.join().expect("no panic");
            }));
            assert!(outcome.virtual_time >= 3 * MS);
        }
    }
}

#[test]
fn waits_end_in_time_and_say_so() {
    ended(run(SimOptions::seeded(4), || {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let mut guard = pair.0.lock();
        let before = clock::now();
        assert!(!pair.1.wait_for(&mut guard, 5 * MS));
        assert_eq!(before.elapsed(), 5 * MS);
        assert!(!pair.1.wait_until(&mut guard, before), "the past is not waited for");
        let other = pair.clone();
        let handle = spawn("notifier", move || {
            clock::sleep(MS);
            *other.0.lock() = true;
            other.1.notify_all();
        });
        assert!(pair.1.wait_for(&mut guard, 5 * MS));
        assert!(*guard);
        assert_eq!(before.elapsed(), 6 * MS);
        drop(guard);
        handle.join().expect("no panic");
    }));
}

#[test]
fn waits_end_without_cause_if_the_options_ask_for_it() {
    let wakes = |spurious_one_in| {
        let options = SimOptions { spurious_one_in, ..SimOptions::seeded(4) };
        let outcome = ended(run(options, || {
            let pair = (Mutex::new(()), Condvar::new());
            let mut guard = pair.0.lock();
            (0..1000).filter(|_| pair.1.wait_for(&mut guard, MS)).count()
        }));
        outcome.value
    };
    assert_eq!(wakes(0), 0);
    assert!((150..250).contains(&wakes(5)), "{}", wakes(5));
}

#[test]
fn a_waiting_writer_keeps_new_readers_out() {
    for seed in 0..20 {
        ended(run(SimOptions { preempt_one_in: 0, ..SimOptions::seeded(seed) }, || {
            let lock = Arc::new(RwLock::new(0));
            let reader = lock.read();
            let other = lock.clone();
            let writer = spawn("writer", move || *other.write() += 1);
            clock::sleep(MS);
            assert!(lock.try_read().is_none(), "the writer waits");
            let other = lock.clone();
            let late = spawn("late reader", move || assert_eq!(*other.read(), 1));
            clock::sleep(MS);
            drop(reader);
            writer.join().expect("no panic");
            late.join().expect("no panic");
        }));
    }
}

#[test]
fn cells_are_filled_once_even_if_filling_blocks() {
    for seed in 0..10 {
        ended(run(SimOptions::seeded(seed), || {
            let (cell, made) = (Arc::new(OnceLock::new()), Arc::new(AtomicU64::new(0)));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let value = cell.get_or_init(|| {
                            clock::sleep(MS);
                            made.fetch_add(1, Ordering::Relaxed)
                        });
                        assert_eq!(*value, 0);
                    });
                }
            });
            assert_eq!(cell.set(7), Err(7));
        }));
    }
}

#[test]
fn entropy_and_stripes_follow_from_the_seed() {
    let body = || {
        let mine = thread::stripe();
        let other = thread::scope(|scope| scope.spawn(thread::stripe).join().expect("no panic"));
        (rng::entropy(), rng::entropy(), mine, other, is_active())
    };
    let (a, b) =
        (ended(run(SimOptions::seeded(5), body)).value, ended(run(SimOptions::seeded(5), body)).value);
    assert_eq!(a, b);
    assert_eq!((a.2, a.3, a.4), (0, 1, true));
    assert_ne!(a.0, a.1);
    assert_ne!(a.0, ended(run(SimOptions::seeded(6), body)).value.0);
    assert!(!is_active());
}

#[test]
fn simulations_run_side_by_side_with_real_threads() {
    let real = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let lock = Mutex::new(0u64);
            while real.load(Ordering::Relaxed) {
                *lock.lock() += 1;
            }
        });
        let runs: Vec<_> =
            (0..3).map(|_| scope.spawn(|| ended(run(SimOptions::seeded(8), busy_body)).trace_hash)).collect();
        let hashes: Vec<u64> = runs.into_iter().map(|run| run.join().expect("no panic")).collect();
        real.store(false, Ordering::Relaxed);
        noise.join().expect("no panic");
        assert!(hashes.iter().all(|hash| *hash == hashes[0]));
    });
}

/// A counter that reads and writes under a lock, but releases it between the two.
#[test]
fn a_lost_update_is_found_within_a_few_seeds() {
    let racy = || {
        let count = Arc::new(Mutex::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let seen = *count.lock();
                    *count.lock() = seen + 1;
                });
            }
        });
        *count.lock()
    };
    for policy in [Policy::Random, Policy::Priorities { changes: 1, over_steps: 16 }] {
        let results: Vec<i32> = (0..100)
            .map(|seed| ended(run(SimOptions { policy, ..SimOptions::seeded(seed) }, racy)).value)
            .collect();
        let lost = results.iter().filter(|sum| **sum == 1).count();
        assert!(lost > 0 && lost < 100, "{policy:?}: {lost} of 100");
    }
    let fair = ended(run(SimOptions::measuring(1, 2), racy));
    assert_eq!(fair.value, 2, "without preemption it never shows");
}
