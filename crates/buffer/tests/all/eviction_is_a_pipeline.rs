//! Cleaners beside threads that miss: who writes, how fast, and what failures do. In virtual time.

use crate::common::{World, budget_for, count_up, counter_of};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use firndb_base::sync::{Arc, thread};
use firndb_base::{DatabaseId, PageId, Progress, clock};
use firndb_buffer::{BufferErrorKind, BufferPool, PoolOptions};
use firndb_device::{Device, MemoryDevice};
use firndb_emulate::{Emulated, profiles};
use firndb_log::{Kind, LogClass, Record};
use firndb_tier::store::{Store, StoreOptions};
use firndb_tier::{Allocation, PageTier};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Threads that clean until this is dropped, as the engine's do.
struct Cleaners {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Cleaners {
    fn start(pool: &Arc<BufferPool>, count: usize) -> Cleaners {
        let stop = Arc::new(AtomicBool::new(false));
        let clean = |pool: Arc<BufferPool>, stop: Arc<AtomicBool>| {
            move || {
                let mut cleaner = pool.cleaner();
                while !stop.load(SeqCst) {
                    match cleaner.step() {
                        Ok(Progress::Worked) => {}
                        Ok(Progress::Idle) => cleaner.wait(Duration::from_millis(100)),
                        Err(_) => clock::sleep(Duration::from_millis(250)),
                    }
                }
            }
        };
        let start = |_| thread::spawn("cleaner", clean(pool.clone(), stop.clone())).expect("a thread");
        Cleaners { threads: (0..count).map(start).collect(), stop }
    }
}

impl Drop for Cleaners {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no cleaner panics"));
    }
}

fn in_threads<R: Send + 'static>(threads: u64, body: impl Fn(u64) -> R + Send + Sync + 'static) -> Vec<R> {
    let body = Arc::new(body);
    let spawn = |number| {
        let body = body.clone();
        thread::spawn("client", move || body(number)).expect("a thread")
    };
    let clients: Vec<_> = (0..threads).map(spawn).collect();
    clients.into_iter().map(|client| client.join().expect("no assertion fails")).collect()
}

const PAGE_SIZE: usize = 1024;

/// What a second of random changes by clients came to, with eight times as many pages as frames.
#[derive(Debug)]
struct Second {
    changes: u64,
    pages_written: u64,
    flushes: u64,
    by_misses: u64,
    under_way_max: u64,
    looks: u64,
    longest: Duration,
}

fn second(profile: &'static str, clients: u64, cleaners: usize) -> Second {
    let options = SimOptions { step_limit: u64::MAX, ..SimOptions::measuring(1, 64) };
    let run = sim::run(options, move || {
        let log = firndb_log::testing::memory_log_with(256 << 20);
        let profile = profiles::get(profile).expect("shipped");
        let inner = Arc::new(MemoryDevice::new("store"));
        let device = Arc::new(Emulated::new(inner, &profile, 1).expect("emulated"));
        device.run_free(true);
        let options = StoreOptions { page_size: PAGE_SIZE, map_budget_bytes: 8 << 20 };
        let store =
            Store::create(device.clone() as Arc<dyn Device>, DatabaseId([1; 16]), options).expect("created");
        store.attach(log.clone());
        let store = Arc::new(store);
        let options = PoolOptions { budget_bytes: 24 << 20 };
        let pool = Arc::new(BufferPool::new(store.clone(), log.clone(), options).expect("a pool"));
        let frames = pool.statistics().frames;
        let pages: Arc<Vec<PageId>> = Arc::new(
            (0..8 * frames).map(|_| store.reserve(LogClass::Normal).expect("there is space")).collect(),
        );
        for some in pages.chunks(100) {
            let _held = store.prepare(some).expect("in memory");
            let change = Allocation { allocate: some, free: &[] };
            store.publish(change, &mut |record| log.try_append(LogClass::Normal, record)).expect("published");
        }
        let cleaners = Cleaners::start(&pool, cleaners);
        let change = {
            let (pool, log, pages) = (pool.clone(), log.clone(), pages.clone());
            Arc::new(move |rng: &mut Rng| {
                let page = pages[rng.below(pages.len() as u64) as usize];
                let intent = pool.exclusive(page).expect("fixed").intend();
                let record = Record { kind: Kind(0x20), body: b"change" };
                let lsn = log.try_append(LogClass::Normal, record).expect("the log has space").first;
                drop(intent.apply(lsn, |bytes| count_up(page, bytes)));
            })
        };
        let mut rng = Rng::new(0);
        (0..4 * frames).for_each(|_| change(&mut rng));
        device.run_free(false);

        let (before, tier) = (pool.statistics(), store.statistics());
        let (durable, begun) = (device.statistics().durable_writes.requests, clock::now());
        let counts = in_threads(clients, move |client| {
            let (mut rng, mut count, mut longest) = (Rng::new(client), 0, Duration::ZERO);
            while begun.elapsed() < Duration::from_secs(1) {
                let one = clock::now();
                change(&mut rng);
                count += 1;
                longest = longest.max(one.elapsed());
            }
            (count, longest)
        });
        let (after, written) = (pool.statistics(), store.statistics());
        let flushes = written.syncs - tier.syncs + device.statistics().durable_writes.requests - durable;
        drop(cleaners);
        Second {
            changes: counts.iter().map(|(count, _)| count).sum(),
            pages_written: after.pages_written - before.pages_written,
            flushes,
            by_misses: after.batches_written_by_misses - before.batches_written_by_misses,
            under_way_max: after.batches_under_way_max,
            looks: after.cleaner_looks - before.cleaner_looks,
            longest: counts.iter().map(|(_, longest)| *longest).max().expect("clients"),
        }
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// On an SSD that takes a millisecond for a sync, writes are what such clients wait for.
#[test]
fn several_cleaners_write_more_than_one_and_misses_write_nothing() {
    let one = second("nvme", 32, 1);
    let seven = second("nvme", 32, 7);
    println!("one cleaner {one:?}\nseven {seven:?}");
    assert_eq!((one.by_misses, seven.by_misses), (0, 0));
    assert_eq!(seven.under_way_max, 7);
    assert!(seven.pages_written >= 3 * one.pages_written);
    assert!(seven.changes >= 3 * one.changes);
    // A batch of 64 has a run or two, each written durably. Adjacent places are a run.
    assert!(seven.flushes * 48 <= seven.pages_written);
    // A step once looked at thousands of frames for each batch.
    assert!(seven.looks <= 2 * seven.pages_written);
}

/// One client misses one page at a time: cleaners that wait for its frames do not make it wait.
#[test]
fn a_single_client_hardly_waits_for_cleaners() {
    let alone = second("nvme", 1, 7);
    println!("{alone:?}");
    assert_eq!(alone.by_misses, 0);
    // A read takes 59 µs.
    assert!(alone.changes >= 15_000 && alone.longest < Duration::from_millis(3));
}

/// A pool of some hundred frames over a probe, in a simulation, with `cleaners`.
fn simulated(seed: u64, cleaners: usize, body: impl FnOnce(&Arc<World>) + Send + 'static) {
    let run = sim::run(SimOptions::seeded(seed), move || {
        let world = Arc::new(World::new(96, 400));
        assert_eq!(world.pool.cleaners_max(), 3);
        world.tier.delay_us.store(300, SeqCst);
        let cleaners = Cleaners::start(&world.pool, cleaners);
        body(&world);
        drop(cleaners);
        assert_eq!(world.tier.wal_violations.load(SeqCst), 0);
    });
    run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
}

/// Each client counts its own pages up, and reads those of all.
fn clients_count(world: &Arc<World>, clients: u64, rounds: u64) {
    let shared = world.clone();
    in_threads(clients, move |client| {
        let mut rng = Rng::new(client);
        for round in 1..=rounds {
            for page in shared.pages.iter().skip(client as usize).step_by(clients as usize) {
                assert_eq!(shared.count_up(*page), round);
                let other = shared.pages[rng.below(shared.pages.len() as u64) as usize];
                assert!(shared.counter(other) <= rounds);
            }
        }
    });
    assert!(world.pages.iter().all(|page| world.counter(*page) == rounds));
}

#[test]
fn misses_wait_for_cleaners_whatever_the_order_of_threads() {
    for seed in 0..20 {
        simulated(seed, 3, |world| {
            clients_count(world, 6, 2);
            let statistics = world.pool.statistics();
            assert_eq!(statistics.batches_written_by_misses, 0, "{statistics:?}");
            world.pool.write_older_than(world.log.end()).expect("written");
            world.pages.iter().for_each(|page| assert_eq!(counter_of(*page, &world.tier.page(*page)), 2));
        });
    }
}

/// A flash cache wants clean pages, too, and has space for few at a time: the rest is put back.
#[test]
fn misses_wait_for_cleaners_that_write_a_part_of_what_they_pick() {
    for seed in 0..12 {
        let run = sim::run(SimOptions::seeded(seed), move || {
            let world = Arc::new(World::with(96, 400, true));
            world.tier.delay_us.store(300, SeqCst);
            world.tier.batch_space.store(seed % 4, SeqCst);
            let cleaners = Cleaners::start(&world.pool, 3);
            clients_count(&world, 6, 2);
            let statistics = world.pool.statistics();
            world.pool.write_older_than(world.log.end()).expect("written");
            drop(cleaners);
            assert_eq!(statistics.batches_written_by_misses, 0, "{statistics:?}");
            world.pages.iter().for_each(|page| assert_eq!(counter_of(*page, &world.tier.page(*page)), 2));
        });
        run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

#[test]
fn a_slow_device_makes_misses_wait_and_not_fail() {
    simulated(1, 3, |world| {
        world.tier.delay_us.store(2_000_000, SeqCst);
        world.pages[..200].iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
        assert_eq!(world.pool.statistics().batches_written_by_misses, 0);
    });
}

#[test]
fn an_error_of_the_cleaners_reaches_the_misses_and_passes() {
    for seed in 0..10 {
        simulated(seed, 3, |world| {
            clients_count(world, 4, 1);
            world.tier.writes_fail.store(true, SeqCst);
            let begun = clock::now();
            let errors: usize = in_threads(4, {
                let world = world.clone();
                move |client| {
                    let mine = world.pages.iter().skip(client as usize).step_by(4);
                    mine.filter(|page| {
                        // A clean page may be found, and is made dirty.
                        let Ok(guard) = world.pool.exclusive(**page) else { return true };
                        let intent = guard.intend();
                        let lsn = world.append();
                        drop(intent.apply(lsn, |bytes| count_up(**page, bytes)));
                        false
                    })
                    .count()
                }
            })
            .into_iter()
            .sum();
            assert!(errors >= 200, "{errors} of 400: the pool has some hundred frames");
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "no miss waits for long: {:?}",
                begun.elapsed()
            );
            let error =
                world.pages.iter().find_map(|page| world.pool.shared(*page).err()).expect("all dirty");
            assert_eq!(error.kind, BufferErrorKind::Failed);
            assert!(error.message.contains("asked to fail writes"), "{error}");
            world.tier.writes_fail.store(false, SeqCst);
            let total: u64 = world.pages.iter().map(|page| world.counter(*page)).sum();
            assert_eq!(total, 400 + (400 - errors as u64), "every change that was made is there");
        });
    }
}

#[test]
fn pages_that_cannot_be_written_do_not_stop_others() {
    simulated(3, 3, |world| {
        world.tier.unwritable.lock().expect("no panic").extend(&world.pages[..40]);
        clients_count(world, 4, 2);
        world.tier.unwritable.lock().expect("no panic").clear();
        world.pool.write_older_than(world.log.end()).expect("written");
        world.pages.iter().for_each(|page| assert_eq!(counter_of(*page, &world.tier.page(*page)), 2));
    });
}

/// A cleaner that does not come: its thread is busy elsewhere, or was never scheduled.
#[test]
fn a_miss_writes_itself_if_no_cleaner_begins() {
    simulated(5, 0, |world| {
        let _never_steps = world.pool.cleaner();
        let begun = clock::now();
        world.pages[..100].iter().for_each(|page| assert_eq!(world.count_up(*page), 1));
        world.pages[100..120].iter().for_each(|page| assert_eq!(world.counter(*page), 0));
        assert!(world.pool.statistics().batches_written_by_misses > 0);
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

/// Cleaners end, and others die in the tier, while misses wait for them.
#[test]
fn misses_outlive_their_cleaners() {
    for seed in 0..20 {
        simulated(seed, 0, move |world| {
            let stop = Arc::new(AtomicBool::new(false));
            let short_lived = |number: u64| {
                let (world, stop) = (world.clone(), stop.clone());
                thread::spawn("cleaner", move || {
                    let mut rng = Rng::new(seed * 8 + number);
                    while !stop.load(SeqCst) {
                        let _ = catch_unwind(AssertUnwindSafe(|| {
                            let mut cleaner = world.pool.cleaner();
                            for _ in 0..rng.below(20) {
                                match cleaner.step().expect("written") {
                                    Progress::Worked => {}
                                    Progress::Idle => cleaner.wait(Duration::from_millis(1 + rng.below(100))),
                                }
                            }
                            if rng.below(2) == 0 {
                                world.tier.panics_once.store(true, SeqCst);
                            }
                        }));
                        clock::sleep(Duration::from_millis(rng.below(3)));
                    }
                })
                .expect("a thread")
            };
            let cleaners: Vec<_> = (0..3).map(short_lived).collect();
            let (shared, begun) = (world.clone(), clock::now());
            in_threads(5, move |client| {
                for round in 1..=2 {
                    for page in shared.pages.iter().skip(client as usize).step_by(5) {
                        // A miss that reads, or writes itself, may be what panics; no change does.
                        let change = || shared.count_up(*page);
                        let mut tries =
                            std::iter::repeat_with(|| catch_unwind(AssertUnwindSafe(change)).ok());
                        assert_eq!(tries.find_map(|counter| counter), Some(round));
                    }
                }
            });
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            stop.store(true, SeqCst);
            world.pool.end_cleaning();
            cleaners.into_iter().for_each(|thread| thread.join().expect("it catches its panics"));
            world.tier.panics_once.store(false, SeqCst);
            world.pool.write_older_than(world.log.end()).expect("no staging buffer is lost");
            world.pages.iter().for_each(|page| assert_eq!(counter_of(*page, &world.tier.page(*page)), 2));
        });
    }
}

#[test]
fn the_memory_of_batches_under_way_is_part_of_the_budget() {
    for frames in [16, 64, 500, 5200] {
        let budget_bytes = budget_for(frames);
        let world = World::new(frames, 1);
        let statistics = world.pool.statistics();
        assert!(statistics.memory_bytes <= budget_bytes as u64);
        assert_eq!(
            world.pool.cleaners_max(),
            match statistics.frames {
                ..64 => 1,
                64..5120 => 3,
                _ => 4,
            }
        );
    }
}
