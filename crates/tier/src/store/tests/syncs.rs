//! Syncs that several batches share: what they make durable, and what their failures do.

use super::harness::*;
use crate::error::{TierError, TierErrorKind};
use crate::page_tier::PageTier;
use crate::store::syncs::Syncs;
use crate::store::{Journal, Policy, Store, StoreOptions};
use crate::testing::Took;
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use firndb_base::sync::{Arc, Mutex, thread};
use firndb_base::{Lsn, PageId};
use firndb_device::{DeviceError, DeviceErrorKind, Durability, MemoryDevice};
use firndb_testkit::hooked::{Call, Hooked};
use std::collections::BTreeMap;
use std::time::Duration;

fn in_threads(threads: u64, body: impl Fn(u64) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let handles: Vec<_> = (0..threads)
        .map(|number| {
            let body = body.clone();
            thread::spawn("writer", move || body(number)).expect("a thread")
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().expect("no assertion fails"));
}

/// A device in small: a write is volatile until a sync that began after it has ended.
#[derive(Default)]
struct Medium {
    written: AtomicU64,
    durable: AtomicU64,
    syncs: AtomicU64,
    /// This sync fails, counted from one, and loses what it was to make durable.
    fails: AtomicU64,
}

impl Medium {
    fn sync(&self) -> Result<(), TierError> {
        let written = self.written.load(SeqCst);
        let number = self.syncs.fetch_add(1, SeqCst) + 1;
        clock::sleep(Duration::from_micros(500));
        if number == self.fails.load(SeqCst) {
            return Err(TierError::new(TierErrorKind::Failed, "the test says so"));
        }
        self.durable.fetch_max(written, SeqCst);
        Ok(())
    }
}

#[test]
fn a_sync_counts_for_a_write_only_if_it_began_after_it() {
    for seed in 0..200 {
        let run = sim::run(SimOptions::seeded(seed), move || {
            let medium = Arc::new(Medium::default());
            let syncs = Arc::new(Syncs::new());
            // In some runs a sync fails, and later ones would succeed, as they do on Linux.
            let fails = if seed % 2 == 0 { 0 } else { 1 + seed / 2 % 10 };
            medium.fails.store(fails, SeqCst);
            let (m, s) = (medium.clone(), syncs.clone());
            let failed = Arc::new(AtomicBool::new(false));
            let has_failed = failed.clone();
            in_threads(5, move |number| {
                for round in 0..6 {
                    clock::sleep(Duration::from_micros((seed * 31 + number * 170 + round * 90) % 700));
                    let mine = m.written.fetch_add(1, SeqCst) + 1;
                    let was_failed = has_failed.load(SeqCst);
                    match s.join(|| m.sync()) {
                        Ok(()) => {
                            assert!(!was_failed, "after a failure no sync is good");
                            assert!(m.durable.load(SeqCst) >= mine, "write {mine} of writer {number}");
                        }
                        Err(error) => {
                            assert_eq!(error.kind, TierErrorKind::Failed);
                            has_failed.store(true, SeqCst);
                        }
                    }
                }
            });
            assert_eq!(failed.load(SeqCst), fails > 0);
            let (ended, shared) = syncs.counts();
            assert_eq!(ended, medium.syncs.load(SeqCst));
            if fails == 0 {
                assert_eq!(ended + shared, 30, "each call led or shared");
                assert!(ended < 25, "{ended} syncs for 30 calls of five threads");
            } else {
                assert_eq!(ended, fails, "no sync begins after one that failed");
            }
        });
        run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// A device that takes its time, and what was asked of it.
#[derive(Default)]
struct Slow {
    /// Whether calls take time, are counted, and may fail.
    is_on: AtomicBool,
    syncs: AtomicU64,
    /// Counted down with each write or sync; that which reaches zero fails.
    fails_at: AtomicU64,
}

impl Slow {
    fn call(&self, call: Call<'_>) -> Result<(), DeviceError> {
        if !self.is_on.load(SeqCst) {
            return Ok(());
        }
        let us = match call {
            Call::Write { durability: Durability::Later, .. } => 5,
            Call::Write { durability: Durability::Durable, .. } => 900,
            Call::Sync => {
                self.syncs.fetch_add(1, SeqCst);
                900
            }
            _ => return Ok(()),
        };
        clock::sleep(Duration::from_micros(us));
        let left = self.fails_at.load(SeqCst);
        if left > 0 {
            self.fails_at.store(left - 1, SeqCst);
            if left == 1 {
                return Err(DeviceError::new(DeviceErrorKind::Failed, "the test says so"));
            }
        }
        Ok(())
    }
}

const PAGES_EACH: usize = 75;
const BATCH: usize = 24;

/// A store on a slow device, the free places of which are scattered, with some pages a writer.
fn slow_store(writers: usize, options: StoreOptions) -> (Arc<TestLog>, Arc<Store>, Arc<Slow>, Vec<PageId>) {
    let log = TestLog::new();
    let slow = Arc::new(Slow::default());
    let times = slow.clone();
    let device = Hooked::over(Arc::new(MemoryDevice::new("store")), move |call| times.call(call));
    let policy = Policy { batch_pages: BATCH, ..POLICY };
    let store = Store::create_with(device, DATABASE, options, LAYOUT, policy).expect("created");
    store.attach_journal(log.clone());
    let pages = allocate(&store, &log, PAGES_EACH * writers).expect("there is space");
    let mut rng = Rng::new(1);
    for _ in 0..20 * writers {
        write_some(&store, &log, &pages, &mut rng).iter().for_each(|(.., outcome)| assert!(outcome.is_ok()));
        log.flush(log.end()).expect("flushed");
    }
    slow.is_on.store(true, SeqCst);
    (log, Arc::new(store), slow, pages)
}

type Outcome = (PageId, Lsn, Result<Took, TierError>);

/// Writes a batch of random ones of `pages`.
fn write_some(store: &Store, log: &TestLog, pages: &[PageId], rng: &mut Rng) -> Vec<Outcome> {
    let mut some: Vec<PageId> =
        (0..2 * BATCH).map(|_| pages[rng.below(pages.len() as u64) as usize]).collect();
    some.sort_unstable();
    some.dedup();
    some.truncate(BATCH);
    let outcomes = write(store, log, &some);
    some.into_iter().zip(outcomes).map(|(page, (version, outcome))| (page, version, outcome)).collect()
}

/// Syncs for some batches of each of several writers, calls that shared one, and the time taken.
fn flushes_of(writers: usize, rounds: usize) -> (u64, u64, Duration) {
    let run = sim::run(SimOptions::measuring(7, 8), move || {
        // No writer waits for the map to be written.
        let options = StoreOptions { map_budget_bytes: 1 << 20, ..options() };
        let (log, store, slow, pages) = slow_store(writers, options);
        let (before, began, shared) = (store.statistics(), clock::now(), store.clone());
        in_threads(writers as u64, move |number| {
            let mine = &pages[PAGES_EACH * number as usize..][..PAGES_EACH];
            let mut rng = Rng::new(number);
            for _ in 0..rounds {
                let outcomes = write_some(&shared, &log, mine, &mut rng);
                assert!(outcomes.iter().all(|(.., outcome)| *outcome == Ok(Took::Taken)));
                log.flush(log.end()).expect("flushed");
            }
        });
        let (took, after) = (began.elapsed(), store.statistics());
        assert_eq!(after.syncs - before.syncs, slow.syncs.load(SeqCst));
        assert_eq!(store.check(true, &mut |_| {}).expect("checked").faults, 0);
        (after.syncs - before.syncs, after.syncs_shared - before.syncs_shared, took)
    });
    run.unwrap_or_else(|failure| panic!("{failure}")).value
}

/// Before they were shared, each batch of many runs had a sync of its own, whatever else ran.
#[test]
fn batches_under_way_together_share_syncs() {
    let (alone, shared_alone, took_alone) = flushes_of(1, 40);
    let (together, shared, took_together) = flushes_of(6, 40);
    println!("{alone} {shared_alone} {took_alone:?}, {together} {shared} {took_together:?}");
    assert!(alone >= 10 && shared_alone == 0, "batches of many runs: {alone}");
    assert!(shared >= together / 3, "{together} syncs served {} calls", together + shared);
    assert!(took_together < 4 * took_alone, "{took_together:?} for six times what took {took_alone:?}");
}

/// The n-th write or sync of four writers fails: each batch whose images are not known to be
/// durable gets an error, keeps its old version, and its places are not lost.
#[test]
fn a_failed_write_or_sync_fails_every_batch_that_needed_it() {
    for fails_at in 1..60 {
        let run = sim::run(SimOptions::seeded(fails_at), move || {
            let (log, store, slow, pages) = slow_store(4, options());
            let taken: Arc<Mutex<BTreeMap<PageId, Lsn>>> = Arc::default();
            slow.fails_at.store(fails_at, SeqCst);
            let failed = Arc::new(AtomicU64::new(0));
            let (s, l, t, p, f) = (store.clone(), log.clone(), taken.clone(), pages, failed.clone());
            in_threads(4, move |number| {
                let mine = &p[PAGES_EACH * number as usize..][..PAGES_EACH];
                let mut rng = Rng::new(fails_at + number);
                for _ in 0..3 {
                    for (page, version, outcome) in write_some(&s, &l, mine, &mut rng) {
                        match outcome {
                            Ok(written) => {
                                assert_eq!(written, Took::Taken);
                                t.lock().insert(page, version);
                            }
                            Err(error) => {
                                assert_eq!(error.kind, TierErrorKind::Failed, "{error}");
                                f.fetch_add(1, SeqCst);
                            }
                        }
                    }
                }
            });
            let fired = slow.fails_at.load(SeqCst) == 0;
            assert_eq!(fired, failed.load(SeqCst) > 0, "an error reaches a writer, if there was one");
            for (page, version) in &*taken.lock() {
                assert_eq!(store.version_of(*page).expect("readable"), Some(*version));
                assert_eq!(read(&store, *page).expect("its image is there").1, image(*page, *version));
            }
            // So does a store that is opened with what the device has got.
            log.flush(log.end()).expect("flushed");
            let records = log.records();
            let again = recover(copy(&*store.device), &records, Lsn::FIRST, log.end()).expect("recovered");
            compare(&again, &fold(&records, log.end()));
        });
        run.unwrap_or_else(|failure| panic!("failing at {fails_at}: {failure}"));
    }
}
