//! A check beside other threads: none waits for more than one of its requests, and it reports no
//! fault where there is none.

use super::harness::*;
use crate::error::TierError;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::testing::Took;
use firndb_base::Progress;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use firndb_base::sync::{Arc, thread};
use firndb_device::{Device, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::time::Duration;

/// Duration of one request, as of a disk.
const LATENCY: Duration = Duration::from_millis(5);

/// A device in memory with slow requests, once they are switched on.
fn slow_device(slow: &Arc<AtomicBool>) -> Arc<dyn Device> {
    let slow = slow.clone();
    Hooked::over(Arc::new(MemoryDevice::new("store")), move |call| {
        if slow.load(Relaxed) && matches!(call, Call::Read { .. } | Call::Write { .. } | Call::Sync) {
            clock::sleep(LATENCY);
        }
        Ok(())
    })
}

/// Duration of the longest of a writer's calls, and what it ran beside.
fn longest_call(with_check: bool) -> (Duration, Duration) {
    let ran = sim::run(SimOptions::measuring(1, 4), move || {
        let slow = Arc::new(AtomicBool::new(false));
        let log = TestLog::new();
        let store = create(slow_device(&slow), &log);
        let pages = allocate(&store, &log, 4000).unwrap();
        for chunk in pages.chunks(60) {
            write(&store, &log, chunk);
        }
        store.sync().unwrap();
        slow.store(true, Relaxed);
        let stop = AtomicBool::new(false);
        let (mut longest, mut took) = (Duration::ZERO, Duration::ZERO);
        thread::scope(|scope| {
            let checker = scope.spawn(|| {
                let began = clock::now();
                if with_check {
                    let report = store.check(false, &mut |_| {}).unwrap();
                    assert_eq!((report.faults, report.damage), (0, Vec::new()));
                } else {
                    clock::sleep(Duration::from_secs(3));
                }
                stop.store(true, Relaxed);
                began.elapsed()
            });
            let mut rng = Rng::new(7);
            while !stop.load(Relaxed) {
                let at = rng.below(pages.len() as u64) as usize;
                let mut call = |work: &dyn Fn()| {
                    let began = clock::now();
                    work();
                    longest = longest.max(began.elapsed());
                };
                call(&|| {
                    let outcomes = write(&store, &log, &pages[at..at + 1]);
                    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
                });
                call(&|| publish(&store, &log, &[], &allocate(&store, &log, 1).unwrap()).map(drop).unwrap());
                if rng.one_in(10) {
                    call(&|| store.sync().unwrap());
                }
            }
            took = checker.join().expect("no panic");
        });
        (longest, took)
    });
    ran.unwrap_or_else(|failure| panic!("{failure}")).value
}

#[test]
fn writers_wait_for_no_more_than_one_request() {
    let (alone, _) = longest_call(false);
    let (beside, took) = longest_call(true);
    assert!(took > Duration::from_secs(1), "a check of {took:?} delays no other thread");
    // One request of eight metadata pages; and one more of a metadata page that the check has
    // evicted.
    assert!(beside <= alone + Duration::from_millis(100), "{beside:?} beside a check, {alone:?} alone");
}

/// Writes, allocates, frees, returns space to the file system and grows into it again, until
/// stopped.
fn churn(store: &Store, log: &TestLog, stop: &AtomicBool, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut pages = Vec::new();
    while !stop.load(Relaxed) {
        let count = rng.below(30) as usize;
        if rng.one_in(2) {
            pages.extend(allocate(store, log, count).unwrap());
        } else {
            let keep = pages.len() - pages.len().min(if rng.one_in(4) { 200 } else { count });
            publish(store, log, &[], &pages.split_off(keep)).unwrap();
        }
        let from = rng.below(pages.len() as u64 + 1) as usize;
        let some = &pages[from..pages.len().min(from + 20)];
        assert!(write(store, log, some).iter().all(|(_, outcome)| *outcome == Ok(Took::Taken)));
        if rng.one_in(8) {
            log.flush(log.end()).unwrap();
            store.sync().unwrap();
            while store.give_back_step().unwrap() == Progress::Worked {}
        }
    }
}

/// Ends the other threads, also if the check fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn no_fault_is_seen_where_there_is_none() {
    let log = TestLog::new();
    let store = create(Arc::new(MemoryDevice::new("store")), &log);
    let kept = allocate(&store, &log, 900).unwrap();
    write(&store, &log, &kept);
    let stop = AtomicBool::new(false);
    let groups = std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, log, stop) = (&store, &log, &stop);
            scope.spawn(move || churn(store, log, stop, seed));
        }
        let _ends = SetOnDrop(&stop);
        let mut groups = Vec::new();
        // On a loaded machine the other threads may get no turn in the first ones.
        let saw_both = |groups: &[u64]| groups.iter().min() < groups.iter().max();
        while groups.len() < if cfg!(miri) { 1 } else { 60 } || !saw_both(&groups) && groups.len() < 6000 {
            let report = store.check(true, &mut |_| {}).unwrap();
            assert_eq!((report.faults, &report.damage), (0, &Vec::new()));
            assert!(report.pages >= 900 && report.pages_placed >= 900);
            groups.push(report.groups);
        }
        groups
    });
    assert!(groups.iter().min() < groups.iter().max(), "the file grew and shrank: {groups:?}");
    let report = store.check(true, &mut |_| {}).unwrap();
    assert_eq!((report.faults, report.damage), (0, Vec::new()));
}

/// What a thread meets that lists all pages while another has groups cut off.
fn listed_beside_cuts(seed: u64) -> Option<TierError> {
    let options =
        SimOptions { preempt_one_in: [2, 5, 10, 20][seed as usize % 4], ..SimOptions::seeded(seed) };
    let outcome = sim::run(options, || {
        let log = TestLog::new();
        let store = create(Arc::new(MemoryDevice::new("store")), &log);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..4 {
                    let pages = allocate(&store, &log, 300).unwrap();
                    publish(&store, &log, &[], &pages).unwrap();
                    log.flush(log.end()).unwrap();
                    while store.give_back_step().unwrap() == Progress::Worked {}
                }
                stop.store(true, Relaxed);
            });
            let mut failed = None;
            while !stop.load(Relaxed) {
                failed = failed.or(store.pages(&mut |_, _| {}).err());
            }
            failed
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// Cause: a group was cut off after a walk had read how many there are. Effect: checks and online
/// backups failed beside compaction.
#[test]
fn pages_are_listed_beside_groups_that_are_cut_off() {
    for seed in 0..12 {
        assert_eq!(listed_beside_cuts(seed), None, "seed {seed}");
    }
}
