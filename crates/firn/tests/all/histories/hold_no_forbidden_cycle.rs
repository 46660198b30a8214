//! Threads run random transactions against each other; the history they saw is judged by its direct
//! serialization graph. No level shows what it forbids, and snapshot isolation, provoked, shows the
//! write skew that it allows.
//!
//! One seed again: `FIRN_SEED=7` (the threads' timing is not repeated); more: `FIRN_SEEDS=1000`.

use crate::support::bed::Bed;
use crate::support::small;
use firndb::{Database, Direction, Error, ErrorKind, Isolation, Options, TransactionOptions};
use firndb_adapter::lists::{ListTables, ListTransaction};
use firndb_base::rng::Rng;
use firndb_testkit::seeds::for_seeds;
use firndb_testkit::watchdog::within;
use firndb_workloads::history::{Element, Findings, Phenomenon, Txn, judge};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// What all threads of a run share.
struct Shared {
    db: Database,
    tables: ListTables,
    isolation: Isolation,
    keys: u32,
    /// Ticks whenever a transaction begins or has ended.
    clock: AtomicU64,
    next: AtomicU32,
    history: Mutex<Vec<Txn>>,
}

impl Shared {
    fn new(options: Options, isolation: Isolation, keys: u32) -> Arc<Shared> {
        let db = options.create_on(Bed::new(2).devices()).expect("created");
        let tables = ListTables(["even", "odd"].map(|name| db.create_table(name).expect("created")));
        let (clock, next, history) = (AtomicU64::new(1), AtomicU32::new(1), Mutex::default());
        Arc::new(Shared { db, tables, isolation, keys, clock, next, history })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs one transaction of random statements.
    fn transaction(&self, rng: &mut Rng) {
        let began = self.tick();
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let tx = self.db.begin_with(TransactionOptions { isolation: self.isolation, ..Default::default() });
        let mut running = ListTransaction::new(&self.tables, tx, id);
        let outcome = self.statements(&mut running, rng);
        let ListTransaction { tx, events, .. } = running;
        let committed = match outcome {
            Ok(()) if !rng.one_in(8) => match rng.below(2) {
                0 => tx.commit().map(|()| true),
                _ => tx.commit_async().map(|_| true),
            },
            other => tx.rollback().and(other).map(|()| false),
        };
        let committed = committed.unwrap_or_else(|error| {
            assert!(error.is_retry(), "{error}");
            false
        });
        let ended = self.tick();
        self.history.lock().expect("no panic").push(Txn { id, committed, events, began, ended });
    }

    fn last(&self) -> BTreeMap<u32, Vec<Element>> {
        self.tables.read_all(&mut self.db.snapshot(), self.keys).expect("readable")
    }

    fn judge(&self) -> Findings {
        judge(&self.history.lock().expect("no panic"), &self.last())
    }

    /// Random statements of one transaction.
    fn statements(&self, running: &mut ListTransaction<'_>, rng: &mut Rng) -> Result<(), Error> {
        for _ in 0..rng.between(1, 6) {
            let key = rng.below(u64::from(self.keys)) as u32;
            match rng.below(10) {
                0..=3 => running.append(key, self.locks(rng), || pause(rng, 4))?,
                4..=6 => drop(running.read(key, rng.one_in(4))?),
                7..=8 => self.scan(running, rng)?,
                _ => running.append_and_undo(key, self.locks(rng), || pause(rng, 4))?,
            }
            pause(rng, 2);
        }
        Ok(())
    }

    /// Whether what is to be changed is read for update.
    fn locks(&self, rng: &mut Rng) -> bool {
        self.isolation == Isolation::ReadCommitted || rng.one_in(3)
    }

    /// Reads all lists of a range of one table.
    fn scan(&self, running: &mut ListTransaction<'_>, rng: &mut Rng) -> Result<(), Error> {
        let mut key = || rng.below(u64::from(self.keys)) as u32;
        let (a, b) = (key(), key());
        let which = rng.below(2) as u32;
        let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
        let outside = running.scan((a.min(b), a.max(b)), which, direction)?;
        assert!(outside.is_empty(), "rows outside the range");
        Ok(())
    }
}

/// Once in so often, lets another thread run.
fn pause(rng: &mut Rng, one_in: u64) {
    if rng.one_in(one_in) {
        std::thread::yield_now();
    }
}

/// Several threads, a few dozen transactions each.
fn run(seed: u64, isolation: Isolation) -> Arc<Shared> {
    let mut rng = Rng::new(seed);
    let options = Options::new()
        .page_size(4096 << rng.below(2))
        .buffer_bytes(1 << 20)
        .tuning(|tuning| tuning.version_bytes([1000, 1 << 20][rng.below(2) as usize]))
        .log(|log| log.devices(2).bytes(2 << 20))
        .background_threads(rng.one_in(2));
    let shared = Shared::new(options, isolation, [3, 8, 24][rng.below(3) as usize]);
    let threads = rng.between(2, 5);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let shared = shared.clone();
            let mut rng = Rng::new(seed * 100 + thread);
            scope.spawn(move || {
                for at in 0..160 / threads {
                    shared.transaction(&mut rng);
                    if thread == 0 && at % 16 == 0 {
                        shared.db.checkpoint().expect("a checkpoint");
                        let _ = shared.db.step().expect("a step");
                    }
                }
            });
        }
    });
    shared
}

const READ_COMMITTED: &[Phenomenon] = {
    use Phenomenon::*;
    &[Internal, LostUpdate, G0, G1a, G1b, G1c]
};
const SNAPSHOT: &[Phenomenon] = {
    use Phenomenon::*;
    &[Internal, LostUpdate, G0, G1a, G1b, G1c, GSingle, GNonadjacent]
};
const SERIALIZABLE: &[Phenomenon] = {
    use Phenomenon::*;
    &[Internal, LostUpdate, G0, G1a, G1b, G1c, GSingle, GNonadjacent, G2Item, G2]
};

fn no_forbidden_cycle(isolation: Isolation, forbidden: &'static [Phenomenon]) {
    within(Duration::from_secs(300), move || {
        for_seeds(25, |seed| {
            let shared = run(seed, isolation);
            let findings = shared.judge();
            let bad: Vec<_> = forbidden.iter().filter(|phenomenon| findings.has(**phenomenon)).collect();
            assert!(bad.is_empty(), "{isolation:?} shows {bad:?}: {findings:?}");
            let committed =
                shared.history.lock().expect("no panic").iter().filter(|txn| txn.committed).count();
            assert!(committed > 10, "only {committed} transactions came through");
        });
    });
}

#[test]
fn read_committed() {
    no_forbidden_cycle(Isolation::ReadCommitted, READ_COMMITTED);
}

#[test]
fn snapshot() {
    no_forbidden_cycle(Isolation::Snapshot, SNAPSHOT);
}

#[test]
fn serializable() {
    no_forbidden_cycle(Isolation::Serializable, SERIALIZABLE);
}

/// Two threads that read both rows before either writes one: write skew, in every round.
fn provoked(isolation: Isolation) -> Findings {
    let shared = Shared::new(small::busy().page_size(4096), isolation, 2);
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for key in 0..2u32 {
            let (shared, barrier) = (&shared, &barrier);
            scope.spawn(move || {
                let mut rng = Rng::new(7);
                for _ in 0..10 {
                    let began = shared.tick();
                    let options = TransactionOptions { isolation, ..Default::default() };
                    let id = shared.next.fetch_add(1, Ordering::SeqCst);
                    let tx = shared.db.begin_with(options);
                    let mut running = ListTransaction::new(&shared.tables, tx, id);
                    let read = running.read(0, false).and_then(|_| running.read(1, false));
                    barrier.wait();
                    let locks = shared.locks(&mut rng);
                    let outcome = read.and_then(|_| running.append(key, locks, || pause(&mut rng, 4)));
                    let ListTransaction { tx, events, .. } = running;
                    let committed = match outcome {
                        Ok(()) => tx.commit().is_ok(),
                        Err(error) => {
                            assert!(
                                matches!(error.kind(), ErrorKind::Deadlock | ErrorKind::Conflict),
                                "{error}"
                            );
                            tx.rollback().expect("rolled back");
                            false
                        }
                    };
                    let ended = shared.tick();
                    shared.history.lock().expect("no panic").push(Txn {
                        id,
                        committed,
                        events,
                        began,
                        ended,
                    });
                    barrier.wait();
                }
            });
        }
    });
    shared.judge()
}

#[test]
fn snapshot_isolation_shows_write_skew_and_serializable_does_not() {
    within(Duration::from_secs(60), || {
        let findings = provoked(Isolation::Snapshot);
        assert!(findings.has(Phenomenon::G2Item), "{findings:?}");
        assert!(!findings.has(Phenomenon::GNonadjacent), "{findings:?}");
        let findings = provoked(Isolation::Serializable);
        assert!(findings.0.is_empty(), "{findings:?}");
    });
}
