//! Threads run random statements against each other and note every result. Then the order of
//! commits, as the commits' LSNs tell it, must explain all of them:
//!
//! * *serializable*: the transactions run again in that order, one after the other, on sorted maps
//!   give the same results;
//! * *snapshot*: each transaction's results are those of the state after some commit not older than
//!   what had been acknowledged when it began, and no other transaction committed a write to its
//!   rows since; a transaction that only read says which commit that is.
//!
//! One seed again: `FIRN_SEED=7` (the threads' timing is not repeated); more: `FIRN_SEEDS=1000`.

use crate::support::bed::Bed;
use crate::support::small::{Rows, scan};
use firndb::{
    Database, Direction, Error, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Options, Table,
    TableSpec, Transaction, TransactionOptions,
};
use firndb_base::rng::Rng;
use firndb_testkit::seeds::for_seeds;
use firndb_testkit::watchdog::within;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Table 0 has no index; table 1 has a unique one on the first two bytes of its values, and a plain
/// one on the third.
type State = [Rows; 2];
type Found = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Statement {
    Get(usize, Vec<u8>),
    Lock(usize, Vec<u8>),
    Insert(usize, Vec<u8>, Vec<u8>),
    Put(usize, Vec<u8>, Vec<u8>),
    Update(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    Scan(usize, Vec<u8>, Vec<u8>, Direction),
    ScanPlain(u8),
    FindUnique([u8; 2]),
    /// Makes the savepoint, or goes back to it.
    Mark,
    Back,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Row(Option<Vec<u8>>),
    Existed(bool),
    Duplicate,
    Rows(Found),
    Nothing,
}

use Answer::{Duplicate, Existed, Nothing};
use Statement::{Back, Delete, FindUnique, Get, Insert, Lock, Mark, Put, Scan, ScanPlain, Update};

/// A committed transaction.
struct Committed {
    lsn: u64,
    statements: Vec<(Statement, Answer)>,
    /// What had been acknowledged when it began.
    floor: u64,
}

impl Committed {
    /// Rows written and not undone, with their last values.
    fn writes(&self) -> Vec<(usize, Vec<u8>, Option<Vec<u8>>)> {
        let mut writes = Vec::new();
        let mut mark = 0;
        for (statement, answer) in &self.statements {
            match (statement, answer) {
                (Mark, _) => mark = writes.len(),
                (Back, _) => writes.truncate(mark),
                (Put(table, key, value), Existed(_))
                | (Insert(table, key, value), Existed(_))
                | (Update(table, key, value), Existed(true)) => {
                    writes.push((*table, key.clone(), Some(value.clone())))
                }
                (Delete(table, key), Existed(true)) => writes.push((*table, key.clone(), None)),
                _ => {}
            }
        }
        writes
    }

    fn has_written(&self) -> bool {
        let wrote = |(statement, answer): &(Statement, Answer)| {
            matches!(
                (statement, answer),
                (Put(..) | Insert(..), Existed(_)) | (Update(..) | Delete(..), Existed(true))
            )
        };
        self.statements.iter().any(wrote)
    }

    /// Whether it has tried to write: even if nothing came of it, it may have a commit record.
    fn has_tried_to_write(&self) -> bool {
        let tried = |(statement, _): &(Statement, Answer)| {
            matches!(statement, Put(..) | Insert(..) | Update(..) | Delete(..))
        };
        self.statements.iter().any(tried)
    }

    /// Runs it on a state; the first statement that should have answered otherwise, and how.
    fn replay(&self, state: &mut State) -> Result<(), String> {
        let mut mark = state.clone();
        for (statement, answer) in &self.statements {
            match statement {
                Mark => mark = state.clone(),
                Back => *state = mark.clone(),
                _ => {
                    let expected = answer_of(state, statement);
                    if expected != *answer {
                        return Err(format!("{statement:?} answered {answer:?}, not {expected:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A table's place, a key, and its row; none if it was deleted.
type Write = (usize, Vec<u8>, Option<Vec<u8>>);

fn apply(state: &mut State, writes: &[Write]) {
    for (table, key, value) in writes {
        match value {
            Some(value) => drop(state[*table].insert(key.clone(), value.clone())),
            None => drop(state[*table].remove(key)),
        }
    }
}

/// What a statement must return, and does to the state.
fn answer_of(state: &mut State, statement: &Statement) -> Answer {
    let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    match statement {
        Get(table, key) | Lock(table, key) => Answer::Row(state[*table].get(key).cloned()),
        Insert(table, key, value) => {
            let refused = state[*table].contains_key(key) || is_taken(&state[*table], *table, key, value);
            if !refused {
                state[*table].insert(key.clone(), value.clone());
            }
            if refused { Duplicate } else { Existed(false) }
        }
        Put(table, key, value) => {
            if is_taken(&state[*table], *table, key, value) {
                return Duplicate;
            }
            Existed(state[*table].insert(key.clone(), value.clone()).is_some())
        }
        Update(table, key, value) => {
            if !state[*table].contains_key(key) {
                return Existed(false);
            }
            if is_taken(&state[*table], *table, key, value) {
                return Duplicate;
            }
            Existed(state[*table].insert(key.clone(), value.clone()).is_some())
        }
        Delete(table, key) => Existed(state[*table].remove(key).is_some()),
        Scan(table, low, high, direction) => {
            let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
            let mut found: Found = if low < high {
                state[*table].range::<[u8], _>(bounds).map(pair).collect()
            } else {
                Found::new()
            };
            if *direction == Direction::Backward {
                found.reverse();
            }
            Answer::Rows(found)
        }
        ScanPlain(byte) => Answer::Rows(state[1].iter().filter(|row| row.1[2] == *byte).map(pair).collect()),
        FindUnique(bytes) => {
            Answer::Rows(state[1].iter().filter(|row| row.1[..2] == bytes[..]).map(pair).collect())
        }
        Mark | Back => Nothing,
    }
}

fn is_taken(rows: &Rows, table: usize, key: &[u8], value: &[u8]) -> bool {
    table == 1 && rows.iter().any(|(other, row)| other != key && row[..2] == value[..2])
}

fn perform(tx: &mut Transaction, tables: &[Table; 2], statement: &Statement) -> Result<Answer, Error> {
    let written = |answer: Result<bool, Error>| match answer {
        Err(error) if error.kind() == ErrorKind::Duplicate => Ok(Duplicate),
        other => other.map(Existed),
    };
    match statement {
        Get(table, key) => tx.get(&tables[*table], key).map(Answer::Row),
        Lock(table, key) => tx.get_for_update(&tables[*table], key).map(Answer::Row),
        Insert(table, key, value) => written(tx.insert(&tables[*table], key, value).map(|()| false)),
        Put(table, key, value) => written(tx.put(&tables[*table], key, value)),
        Update(table, key, value) => written(tx.update(&tables[*table], key, value)),
        Delete(table, key) => written(tx.delete(&tables[*table], key)),
        Scan(table, low, high, direction) => {
            let range = KeyRange::new(Bound::Included(low), Bound::Excluded(high));
            let mut cursor = tx.scan(&tables[*table], range, *direction);
            let mut found = Found::new();
            while let Some((key, value)) = cursor.next(tx)? {
                found.push((key.to_vec(), value.to_vec()));
            }
            Ok(Answer::Rows(found))
        }
        ScanPlain(byte) => {
            let index = tables[1].index("plain")?;
            let mut cursor = tx.scan_index(&index, KeyRange::prefix(&[*byte]), Direction::Forward);
            let mut found = Found::new();
            while let Some(row) = cursor.next(tx)? {
                found.push((row.primary_key.to_vec(), row.row.to_vec()));
            }
            Ok(Answer::Rows(found))
        }
        FindUnique(bytes) => {
            let index = tables[1].index("unique")?;
            let (mut key, mut row) = (Vec::new(), Vec::new());
            let found = tx.get_by_index(&index, bytes, &mut key, &mut row)?;
            Ok(Answer::Rows(if found { vec![(key, row)] } else { Found::new() }))
        }
        Mark | Back => unreachable!("the caller's"),
    }
}

fn random_statement(rng: &mut Rng, keys: u64, unique: u32) -> Statement {
    let table = rng.below(2) as usize;
    let key = |rng: &mut Rng| rng.below(keys).to_be_bytes()[6..].to_vec();
    let value = |rng: &mut Rng| {
        let mut value = vec![b'u', rng.below(keys) as u8, b'0' + rng.below(3) as u8];
        value.extend_from_slice(&unique.to_be_bytes());
        // Some are longer than any page, and are kept in pieces.
        let more = if rng.one_in(12) { rng.below(9000) } else { rng.below(20) };
        value.resize(7 + more as usize, b'.');
        value
    };
    match rng.below(12) {
        0..=1 => Get(table, key(rng)),
        2 => Lock(table, key(rng)),
        3 => Insert(table, key(rng), value(rng)),
        4..=5 => Put(table, key(rng), value(rng)),
        6 => Update(table, key(rng), value(rng)),
        7 => Delete(table, key(rng)),
        8..=9 => {
            let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
            Scan(table, key(rng), key(rng), direction)
        }
        10 => ScanPlain(b'0' + rng.below(3) as u8),
        _ => FindUnique([b'u', rng.below(keys) as u8]),
    }
}

struct Shared {
    db: Database,
    tables: [Table; 2],
    isolation: Isolation,
    keys: u64,
    acknowledged: AtomicU64,
    next: AtomicU64,
    committed: Mutex<Vec<Committed>>,
}

impl Shared {
    fn transaction(&self, rng: &mut Rng) {
        let floor = self.acknowledged.load(Ordering::SeqCst);
        let mut tx =
            self.db.begin_with(TransactionOptions { isolation: self.isolation, ..Default::default() });
        let mut statements = Vec::new();
        let read_only = rng.one_in(4);
        for _ in 0..rng.between(1, 8) {
            let unique = self.next.fetch_add(1, Ordering::Relaxed) as u32;
            let statement = random_statement(rng, self.keys, unique);
            if read_only && !matches!(statement, Get(..) | Scan(..) | ScanPlain(_) | FindUnique(_)) {
                continue;
            }
            let savepoint = rng.one_in(6).then(|| tx.savepoint());
            if savepoint.is_some() {
                statements.push((Mark, Nothing));
            }
            match perform(&mut tx, &self.tables, &statement) {
                Ok(answer) => statements.push((statement, answer)),
                Err(error) => {
                    assert!(error.is_retry(), "{statement:?}: {error}");
                    return tx.rollback().expect("rolled back");
                }
            }
            if let Some(savepoint) = savepoint {
                tx.rollback_to(&savepoint).expect("rolled back");
                statements.push((Back, Nothing));
            }
            if rng.one_in(2) {
                std::thread::yield_now();
            }
        }
        if statements.is_empty() || rng.one_in(10) {
            return tx.rollback().expect("rolled back");
        }
        let commit = tx.commit_async().expect("ordered");
        let lsn = commit.lsn().0;
        self.acknowledged.fetch_max(lsn, Ordering::SeqCst);
        if rng.one_in(3) {
            commit.wait().expect("durable");
        }
        self.committed.lock().expect("no panic").push(Committed { lsn, statements, floor });
    }
}

fn run(seed: u64, isolation: Isolation) -> (Shared, Bed, Options) {
    let mut rng = Rng::new(seed);
    let options = Options::new()
        .page_size(1024 << rng.below(3))
        .buffer_bytes(512 << 10)
        .tuning(|tuning| {
            tuning.version_bytes([0, 2000, 1 << 20][rng.below(3) as usize]).checkpoint_log_bytes(64 << 10)
        })
        .log(|log| log.devices(2).bytes(1 << 20))
        .background_threads(rng.one_in(2));
    let disks = Bed::new(2);
    let db = options.clone().create_on(disks.devices()).expect("created");
    let indexed = TableSpec::raw()
        .with_index(IndexSpec::ranges("unique", true, vec![IndexPart::Value(0..2)]))
        .with_index(IndexSpec::ranges("plain", false, vec![IndexPart::Value(2..3)]));
    let tables = [
        db.create_table("plain").expect("created"),
        db.create_table_with("indexed", indexed).expect("created"),
    ];
    let shared = Shared {
        db,
        tables,
        isolation,
        keys: [5, 20, 200][rng.below(3) as usize],
        acknowledged: AtomicU64::new(0),
        next: AtomicU64::new(0),
        committed: Mutex::default(),
    };
    let threads = rng.between(2, 5);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let shared = &shared;
            let mut rng = Rng::new(seed * 100 + thread);
            scope.spawn(move || {
                for at in 0..300 / threads {
                    shared.transaction(&mut rng);
                    if thread == 0 && at % 20 == 0 {
                        shared.db.checkpoint().expect("a checkpoint");
                    }
                    let _ = shared.db.step().expect("a step");
                }
            });
        }
    });
    (shared, disks, options)
}

fn read_all(db: &Database) -> State {
    let mut tx = db.snapshot();
    ["plain", "indexed"].map(|name| {
        let table = db.table(name).expect("there");
        scan(&mut tx, &table, KeyRange::all(), Direction::Forward).into_iter().collect()
    })
}

/// Compares the end of the history with the database, and with what a crash leaves of it.
fn check_end(shared: &Shared, disks: &Bed, options: &Options, end: &State) {
    assert_eq!(read_all(&shared.db), *end);
    shared.db.checkpoint().expect("a checkpoint");
    let report = shared.db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    let crashed = disks.duplicate();
    let again = options.clone().open_on(crashed.devices()).expect("opens");
    assert_eq!(read_all(&again), *end);
}

fn serializable(seed: u64) {
    let (shared, disks, options) = run(seed, Isolation::Serializable);
    let mut committed = std::mem::take(&mut *shared.committed.lock().expect("no panic"));
    // One that only read comes behind the last commit that it may have seen.
    committed.sort_by_key(|txn| (txn.lsn, !txn.has_written()));
    let mut state = State::default();
    for txn in &committed {
        if let Err(error) = txn.replay(&mut state) {
            panic!("the transaction at {} does not fit its place: {error}", txn.lsn);
        }
    }
    check_end(&shared, &disks, &options, &state);
}

fn snapshot(seed: u64) {
    let (shared, disks, options) = run(seed, Isolation::Snapshot);
    let committed = std::mem::take(&mut *shared.committed.lock().expect("no panic"));
    let (mut writers, readers): (Vec<_>, Vec<_>) =
        committed.into_iter().partition(Committed::has_tried_to_write);
    writers.sort_by_key(|txn| (txn.lsn, !txn.has_written()));
    let mut states = vec![State::default()];
    for txn in &writers {
        let mut state = states.last().expect("one").clone();
        apply(&mut state, &txn.writes());
        states.push(state);
    }
    let commits_to = |lsn: u64| writers.partition_point(|txn| txn.lsn <= lsn);
    // A range without room for a key is not even looked at.
    let looked = |(statement, _): &(Statement, Answer)| match statement {
        Scan(_, low, high, _) => low < high,
        other => !matches!(other, Mark | Back),
    };
    for txn in readers.iter().filter(|txn| txn.statements.iter().any(looked)) {
        let at = commits_to(txn.lsn);
        assert!(at >= commits_to(txn.floor), "a reader missed what had been acknowledged");
        if let Err(error) = txn.replay(&mut states[at].clone()) {
            panic!("a reader at {} does not see its snapshot: {error}", txn.lsn);
        }
    }
    for (own, txn) in writers.iter().enumerate() {
        let rows: BTreeSet<_> = txn.writes().into_iter().map(|(table, key, _)| (table, key)).collect();
        let first = commits_to(txn.floor).min(own);
        let mut why = Vec::new();
        let explained = (first..=own).rev().any(|at| {
            let overlaps = writers[at..own].iter().any(|other| {
                other.writes().iter().any(|(table, key, _)| rows.contains(&(*table, key.clone())))
            });
            let outcome = txn.replay(&mut states[at].clone());
            why.push(format!("after {at} commits: {outcome:?}, rows written by others: {overlaps}"));
            outcome.is_ok() && !overlaps
        });
        assert!(explained, "no snapshot explains commit {own}:\n{}", why.join("\n"));
    }
    check_end(&shared, &disks, &options, states.last().expect("one"));
}

#[test]
fn serializable_transactions_are_explained_by_their_commit_order() {
    within(Duration::from_secs(300), || for_seeds(25, serializable));
}

#[test]
fn snapshot_transactions_are_explained_by_their_snapshots() {
    within(Duration::from_secs(300), || for_seeds(25, snapshot));
}
