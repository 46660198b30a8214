//! Scripted interleavings: several transactions, each in a thread of its own, given one statement
//! at a time.
//!
//! A script is a list of steps `who what`, ended by semicolons:
//!
//! | step | what it does | what it returns |
//! |---|---|---|
//! | `1 get x` | reads a row | its value, or `none` |
//! | `1 lock x` | reads it for update | its value, or `none` |
//! | `1 put x 11`, `1 insert x 11`, `1 update x 11`, `1 delete x` | writes | `true`, `false`; `new` |
//! | `1 all`, `1 back` | reads all rows, forward or backward | `x=10 y=20` |
//! | `1 range a c`, `1 rangeback a c` | reads the rows from `a` up to, not including, `c` | the same |
//! | `1 where 30` | reads by index the rows of this value | the same |
//! | `1 purge 20` | deletes the rows that it finds by index to have this value | the keys |
//! | `1 save`, `1 undo` | makes a savepoint, goes back to it | `done` |
//! | `1 commit`, `1 rollback` | ends | `done` |
//!
//! A step that waits for a lock is known by the engine's own count of waits; the script goes on
//! without it, and later steps of its transaction queue behind it. A statement that is refused
//! (conflict, deadlock, timeout) rolls its transaction back and ends it; a duplicate only returns
//! `duplicate`.

use crate::support::small::{create, quiet, scan};
use firndb::{
    Database, Direction, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Savepoint, Table, TableSpec,
    Transaction, TransactionOptions,
};
use firndb_testkit::watchdog::within;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long steps that wait are given to go on after another step.
const GRACE: Duration = Duration::from_millis(25);
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Committed,
    RolledBack,
    Refused(ErrorKind),
}

/// What came of a script.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Transaction, step and result, in the order of the results.
    pub answers: Vec<(usize, String, String)>,
    /// Steps that waited for a lock.
    pub waited: Vec<(usize, String)>,
    pub ends: BTreeMap<usize, End>,
    /// All rows afterwards, as `all` shows them.
    pub rows: String,
}

impl Outcome {
    /// The results of the transaction's steps beginning with `verb`, in order.
    pub fn of(&self, who: usize, verb: &str) -> Vec<&str> {
        let wanted = |what: &str| what.split(' ').next() == Some(verb) || what == verb;
        self.answers
            .iter()
            .filter(|(by, what, _)| *by == who && wanted(what))
            .map(|(_, _, answer)| answer.as_str())
            .collect()
    }
    /// Whether all these committed.
    pub fn committed(&self, all: &[usize]) -> bool {
        all.iter().all(|who| self.ends.get(who) == Some(&End::Committed))
    }
    pub fn waited(&self, who: usize, what: &str) -> bool {
        self.waited.iter().any(|(by, step)| *by == who && step == what)
    }
}

/// A database with a table `rows`, `x=10` and `y=20` in it, and an index by value.
pub fn two_rows() -> (Database, Table) {
    let db = create(quiet());
    let spec = TableSpec::raw().with_index(IndexSpec::ranges("value", false, vec![IndexPart::Value(0..2)]));
    let table = db.create_table_with("rows", spec).expect("created");
    db.transact(|tx| {
        tx.insert(&table, b"x", b"10")?;
        tx.insert(&table, b"y", b"20")
    })
    .expect("committed");
    (db, table)
}

/// Runs a script over [`two_rows`], all transactions at one level.
pub fn run(isolation: Isolation, script: &'static str) -> Outcome {
    let (done, outcome) = channel();
    within(LIMIT, move || {
        let (db, table) = two_rows();
        let options = TransactionOptions { isolation, ..Default::default() };
        done.send(run_on(&db, &table, &options, script)).expect("the caller waits");
    });
    outcome.recv().expect("within() ended well")
}

/// Runs a script.
pub fn run_on(db: &Database, table: &Table, options: &TransactionOptions, script: &str) -> Outcome {
    let mut conductor =
        Conductor { db, table, options, workers: BTreeMap::new(), outcome: Outcome::default() };
    for step in script.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        let (who, what) = step.split_once(' ').expect("who, and what");
        conductor.play(who.parse().expect("a number"), what);
    }
    conductor.finish()
}

struct Worker {
    commands: Option<Sender<String>>,
    answers: Receiver<Result<String, ErrorKind>>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// The step being performed, and those behind it.
    queue: VecDeque<String>,
}

struct Conductor<'a> {
    db: &'a Database,
    table: &'a Table,
    options: &'a TransactionOptions,
    workers: BTreeMap<usize, Worker>,
    outcome: Outcome,
}

impl Conductor<'_> {
    fn play(&mut self, who: usize, what: &str) {
        if !self.workers.contains_key(&who) {
            let worker = start(self.db, self.table, self.options);
            self.workers.insert(who, worker);
        }
        let worker = self.workers.get_mut(&who).expect("just made");
        worker.queue.push_back(what.to_owned());
        if worker.queue.len() == 1 {
            self.perform(who);
        }
        self.let_others_go_on(who);
    }

    /// Has the first step of the queue performed; false if it waits for a lock.
    fn perform(&mut self, who: usize) -> bool {
        let waits_before = self.db.statistics().txn.lock_waits;
        let worker = self.workers.get_mut(&who).expect("it plays");
        let what = worker.queue.front().expect("a step").clone();
        let Some(commands) = &worker.commands else {
            worker.queue.clear(); // its transaction was refused
            return true;
        };
        commands.send(what.clone()).expect("the thread lives");
        let began = Instant::now();
        while !self.collect(who, Duration::from_micros(200)) {
            if self.db.statistics().txn.lock_waits > waits_before {
                self.outcome.waited.push((who, what));
                return false;
            }
            assert!(began.elapsed() < LIMIT, "step {who} {what} neither ends nor waits");
        }
        true
    }

    /// Takes in the result of the step being performed; false if there is none yet.
    fn collect(&mut self, who: usize, patience: Duration) -> bool {
        let worker = self.workers.get_mut(&who).expect("it plays");
        if worker.queue.is_empty() {
            return true;
        }
        let answer = match worker.answers.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => panic!("transaction {who} panicked"),
        };
        let what = worker.queue.pop_front().expect("a step");
        let end = match &answer {
            Ok(_) if what == "commit" => Some(End::Committed),
            Ok(_) if what == "rollback" => Some(End::RolledBack),
            Ok(_) => None,
            Err(kind) => Some(End::Refused(*kind)),
        };
        if let Some(end) = end {
            self.outcome.ends.insert(who, end);
            worker.commands = None;
            worker.queue.clear();
        }
        self.outcome.answers.push((who, what, answer.unwrap_or_else(|kind| kind.code().to_owned())));
        true
    }

    /// Gives waiting transactions the time to see that they need not wait any more.
    fn let_others_go_on(&mut self, but: usize) {
        let waiting: Vec<usize> = self.workers.keys().copied().filter(|who| *who != but).collect();
        for who in waiting {
            self.go_on(who);
        }
    }

    /// Goes on with the steps of one that waits, as far as that goes.
    fn go_on(&mut self, who: usize) {
        let mut done = self.collect(who, GRACE);
        while done && !self.workers[&who].queue.is_empty() {
            done = self.perform(who);
        }
    }

    fn finish(mut self) -> Outcome {
        let began = Instant::now();
        while self.workers.values().any(|worker| !worker.queue.is_empty()) {
            let all: Vec<usize> = self.workers.keys().copied().collect();
            all.into_iter().for_each(|who| self.go_on(who));
            assert!(began.elapsed() < LIMIT, "waits without end: {:?}", self.outcome);
        }
        for worker in self.workers.values_mut() {
            worker.commands = None;
            worker.thread.take().expect("joined once").join().expect("no panic");
        }
        let mut tx = self.db.snapshot();
        self.outcome.rows = show(scan(&mut tx, self.table, KeyRange::all(), Direction::Forward));
        self.outcome
    }
}

fn start(db: &Database, table: &Table, options: &TransactionOptions) -> Worker {
    let (commands, steps) = channel::<String>();
    let (answer, answers) = channel();
    let (db, table, options) = (db.clone(), table.clone(), options.clone());
    let thread = std::thread::spawn(move || {
        let mut tx = Some(db.begin_with(options));
        let mut savepoint = None;
        for step in steps {
            let outcome = perform(&mut tx, &table, &mut savepoint, &step);
            let refused = outcome.is_err();
            if refused {
                drop(tx.take()); // rolled back before the answer is given: the others can go on
            }
            if answer.send(outcome).is_err() || refused {
                return;
            }
        }
    });
    Worker { commands: Some(commands), answers, thread: Some(thread), queue: VecDeque::new() }
}

fn perform(
    slot: &mut Option<Transaction>,
    table: &Table,
    savepoint: &mut Option<Savepoint>,
    step: &str,
) -> Result<String, ErrorKind> {
    let words: Vec<&str> = step.split(' ').collect();
    let text = |bytes: Option<Vec<u8>>| bytes.map_or("none".to_owned(), |bytes| string(&bytes));
    let Some(tx) = slot else { return Err(ErrorKind::Closed) };
    let answer = match words[..] {
        ["get", key] => tx.get(table, key.as_bytes()).map(text),
        ["lock", key] => tx.get_for_update(table, key.as_bytes()).map(text),
        ["put", key, value] => tx.put(table, key.as_bytes(), value.as_bytes()).map(|was| was.to_string()),
        ["update", key, value] => {
            tx.update(table, key.as_bytes(), value.as_bytes()).map(|was| was.to_string())
        }
        ["add", key, more] => {
            let (mut row, more) = (Vec::new(), more.parse::<u32>().expect("a number"));
            let changed = tx.update_with(table, key.as_bytes(), &mut row, |row| {
                let sum = string(row).parse::<u32>().expect("a number") + more;
                *row = sum.to_string().into_bytes();
            });
            changed.map(|there| text(there.then_some(row)))
        }
        ["insert", key, value] => match tx.insert(table, key.as_bytes(), value.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::Duplicate => Ok("duplicate".to_owned()),
            other => other.map(|()| "new".to_owned()),
        },
        ["delete", key] => tx.delete(table, key.as_bytes()).map(|was| was.to_string()),
        ["all"] => rows(tx, table, KeyRange::all(), Direction::Forward),
        ["back"] => rows(tx, table, KeyRange::all(), Direction::Backward),
        ["range", low, high] => rows(tx, table, between(low, high), Direction::Forward),
        ["rangeback", low, high] => rows(tx, table, between(low, high), Direction::Backward),
        ["where", value] => found_by(tx, table, value).map(show),
        ["purge", value] => found_by(tx, table, value).and_then(|found| {
            found.iter().try_for_each(|(key, _)| tx.delete(table, key).map(|_| ()))?;
            Ok(found.iter().map(|(key, _)| string(key)).collect::<Vec<_>>().join(" "))
        }),
        ["save"] => {
            *savepoint = Some(tx.savepoint());
            Ok("done".to_owned())
        }
        ["undo"] => tx.rollback_to(savepoint.as_ref().expect("a savepoint")).map(|()| "done".to_owned()),
        ["commit"] => slot.take().expect("open").commit().map(|()| "done".to_owned()),
        ["rollback"] => slot.take().expect("open").rollback().map(|()| "done".to_owned()),
        _ => panic!("{step:?} is not a step"),
    };
    answer.map_err(|error| error.kind())
}

type Found = Vec<(Vec<u8>, Vec<u8>)>;

fn between(low: &str, high: &str) -> KeyRange {
    KeyRange::new(Bound::Included(low.as_bytes()), Bound::Excluded(high.as_bytes()))
}

fn rows(
    tx: &mut Transaction,
    table: &Table,
    range: KeyRange,
    direction: Direction,
) -> Result<String, firndb::Error> {
    let mut cursor = tx.scan(table, range, direction);
    let mut found = Found::new();
    while let Some((key, value)) = cursor.next(tx)? {
        found.push((key.to_vec(), value.to_vec()));
    }
    Ok(show(found))
}

fn found_by(tx: &mut Transaction, table: &Table, value: &str) -> Result<Found, firndb::Error> {
    let index = table.index("value")?;
    let mut cursor = tx.scan_index(&index, KeyRange::prefix(value.as_bytes()), Direction::Forward);
    let mut found = Found::new();
    while let Some(row) = cursor.next(tx)? {
        found.push((row.primary_key.to_vec(), row.row.to_vec()));
    }
    Ok(found)
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("tests write text")
}

fn show(rows: Found) -> String {
    let row = |(key, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", string(key), string(value));
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}
