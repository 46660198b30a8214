//! Threads run random transactions against each other; the history they saw is judged by its direct
//! serialization graph. No level shows what it forbids, and snapshot isolation, provoked, shows the
//! write skew that it allows.
//!
//! One seed again: `FIRN_SEED=7` (the threads' timing is not repeated); more: `FIRN_SEEDS=1000`.

use crate::histories_support;
use crate::histories_support::{Disks, for_seeds, within};
use firndb::{
    Database, Direction, Error, ErrorKind, Isolation, KeyRange, Options, Table, Transaction,
    TransactionOptions,
};
use firndb_base::rng::Rng;
use firndb_workloads::history::{Element, Event, Findings, Phenomenon, Txn, judge};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

fn encode(list: &[Element]) -> Vec<u8> {
    list.iter().flat_map(|(txn, part)| [txn.to_be_bytes(), part.to_be_bytes()].concat()).collect()
}

fn decode(bytes: &[u8]) -> Vec<Element> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    assert!(bytes.len().is_multiple_of(8), "a list that no transaction wrote");
    bytes.chunks(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect()
}

/// What all threads of a run share.
struct Shared {
    db: Database,
    tables: [Table; 2],
    isolation: Isolation,
    keys: u32,
    /// Ticks whenever a transaction begins or has ended.
    clock: AtomicU64,
    next: AtomicU32,
    history: Mutex<Vec<Txn>>,
}

impl Shared {
    fn new(options: Options, isolation: Isolation, keys: u32) -> Arc<Shared> {
        let db = options.create_on(Disks::new(2).devices()).expect("created");
        let tables = ["even", "odd"].map(|name| db.create_table(name).expect("created"));
        let (clock, next, history) = (AtomicU64::new(1), AtomicU32::new(1), Mutex::default());
        Arc::new(Shared { db, tables, isolation, keys, clock, next, history })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn table(&self, key: u32) -> &Table {
        &self.tables[key as usize % 2]
    }

    /// Runs one transaction of random statements.
    fn transaction(&self, rng: &mut Rng) {
        let began = self.tick();
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let mut running = Running {
            shared: self,
            tx: self.db.begin_with(TransactionOptions { isolation: self.isolation, ..Default::default() }),
            id,
            appended: 0,
            events: Vec::new(),
        };
        let outcome = running.statements(rng);
        let Running { tx, events, .. } = running;
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
        let mut tx = self.db.snapshot();
        let list = |tx: &mut Transaction, key: u32| {
            let found = tx.get(self.table(key), &key.to_be_bytes()).expect("readable");
            decode(&found.unwrap_or_default())
        };
        (0..self.keys).map(|key| (key, list(&mut tx, key))).collect()
    }

    fn judge(&self) -> Findings {
        judge(&self.history.lock().expect("no panic"), &self.last())
    }
}

struct Running<'a> {
    shared: &'a Shared,
    tx: Transaction,
    id: u32,
    appended: u32,
    events: Vec<Event>,
}

impl Running<'_> {
    fn statements(&mut self, rng: &mut Rng) -> Result<(), Error> {
        for _ in 0..rng.between(1, 6) {
            let key = rng.below(u64::from(self.shared.keys)) as u32;
            match rng.below(10) {
                0..=3 => self.append(key, rng)?,
                4..=6 => drop(self.read(key, rng.one_in(4))?),
                7..=8 => self.scan(rng)?,
                _ => {
                    let savepoint = self.tx.savepoint();
                    let before = self.events.len();
                    self.append(key, rng)?;
                    self.tx.rollback_to(&savepoint)?;
                    let undone: Vec<Event> = self.events[before..]
                        .iter()
                        .filter_map(|event| match event {
                            Event::Append(key, element) => Some(Event::Undo(*key, *element)),
                            _ => None,
                        })
                        .collect();
                    self.events.extend(undone);
                }
            }
            if rng.one_in(2) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn read(&mut self, key: u32, lock: bool) -> Result<Vec<Element>, Error> {
        let (table, bytes) = (self.shared.table(key), key.to_be_bytes());
        let found = if lock { self.tx.get_for_update(table, &bytes)? } else { self.tx.get(table, &bytes)? };
        let list = decode(&found.unwrap_or_default());
        self.events.push(Event::Read(key, list.clone(), false));
        Ok(list)
    }

    fn append(&mut self, key: u32, rng: &mut Rng) -> Result<(), Error> {
        // Under read committed only a read for update keeps others from writing in between.
        let lock = self.shared.isolation == Isolation::ReadCommitted || rng.one_in(3);
        let mut list = self.read(key, lock)?;
        if rng.one_in(4) {
            std::thread::yield_now();
        }
        let element = (self.id, self.appended);
        list.push(element);
        self.tx.put(self.shared.table(key), &key.to_be_bytes(), &encode(&list))?;
        self.appended += 1;
        self.events.push(Event::Append(key, element));
        Ok(())
    }

    /// Reads all lists of a range of one table, those that are not there included.
    fn scan(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let (a, b) =
            (rng.below(u64::from(self.shared.keys)) as u32, rng.below(u64::from(self.shared.keys)) as u32);
        let (low, high) = (a.min(b), a.max(b));
        let which = rng.below(2) as u32;
        let (from, to) = (low.to_be_bytes(), high.to_be_bytes());
        let range = KeyRange::new(Bound::Included(&from), Bound::Included(&to));
        let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
        let mut cursor = self.tx.scan(self.shared.table(which), range, direction);
        let mut found = BTreeMap::new();
        while let Some((key, value)) = cursor.next(&mut self.tx)? {
            found.insert(u32::from_be_bytes(key.try_into().expect("four bytes")), decode(value));
        }
        for key in (low..=high).filter(|key| key % 2 == which) {
            self.events.push(Event::Read(key, found.remove(&key).unwrap_or_default(), true));
        }
        assert!(found.is_empty(), "rows outside the range");
        Ok(())
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
    let shared = Shared::new(histories_support::busy().page_size(4096), isolation, 2);
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
                    let mut running = Running { shared, tx, id, appended: 0, events: Vec::new() };
                    let read = running.read(0, false).and_then(|_| running.read(1, false));
                    barrier.wait();
                    let outcome = read.and_then(|_| running.append(key, &mut rng));
                    let Running { tx, events, .. } = running;
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
