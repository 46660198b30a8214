//! Random statements on several tables return what sorted maps return: through savepoints,
//! rollbacks, commits waited for and not, two-phase commits, checkpoints, clean closes and crashes;
//! with pages, buffers and version budgets so small that everything splits, is evicted and spills.
//! Snapshots that are kept open go on seeing what they saw.
//!
//! One seed again: `FIRN_SEED=7`; more seeds: `FIRN_SEEDS=100000`.

use crate::histories_support;
use crate::histories_support::{Disks, Rows, for_seeds, scan};
use firndb::{
    Database, Direction, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Options, Savepoint, Table,
    TableSpec, Transaction, TransactionOptions,
};
use firndb_base::rng::Rng;
use std::ops::Bound;
use std::time::Duration;

/// Tables 0 and 1 have no index; table 2 has a plain one and a unique one.
const TABLES: [&str; 3] = ["plain", "other", "indexed"];
const INDEXED: usize = 2;
/// Bytes of a value that the unique index is made of, and those of the plain one.
const UNIQUE: std::ops::Range<usize> = 0..2;
const PLAIN: std::ops::Range<usize> = 2..3;

type Model = [Rows; 3];

/// The transaction that writes.
struct Writer {
    tx: Transaction,
    model: Model,
    savepoints: Vec<(Savepoint, Model)>,
    isolation: Isolation,
    /// Whether it has been shown anything: its commit then waits until that is durable.
    exposed: bool,
}

struct Run {
    rng: Rng,
    page_size: usize,
    options: Options,
    disks: Disks,
    db: Database,
    tables: Vec<Table>,
    /// What is committed.
    committed: Model,
    /// States that a crash may go back to; the last is `committed`. More than one while commits are
    /// not known to be durable.
    possible: Vec<Model>,
    writer: Option<Writer>,
    /// Snapshots and what they must see.
    readers: Vec<(Transaction, Model)>,
    keys: u64,
    long: bool,
    /// Whether some values are larger than a page.
    large: bool,
    /// Whether every step is printed: `FIRN_TRACE=1`.
    trace: bool,
}

fn random_options(rng: &mut Rng) -> (usize, usize, Options) {
    let page_size = 1024 << rng.below(3);
    let logs = 1 + rng.below(3) as usize;
    let options = Options::new()
        .page_size(page_size)
        .buffer_bytes(page_size * (64 + rng.below(100) as usize))
        .tuning(|tuning| tuning.version_bytes([0, 300, 5000, 1 << 20][rng.below(4) as usize]))
        .tuning(|tuning| tuning.checkpoint_log_bytes(64 << 10).eager_recovery(true))
        .log(|log| log.devices(logs).bytes((256 << 10) * logs as u64))
        // A wait is in vain in one thread, and one that may not last undoes no loser: so recovery
        // has undone them all.
        .lock_deadline(Duration::ZERO)
        .background_threads(false);
    (page_size, logs, options)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let (page_size, logs, options) = random_options(&mut rng);
        let disks = Disks::new(logs);
        let db = options.clone().create_on(disks.devices()).expect("created");
        let indexes = TableSpec::raw()
            .with_index(IndexSpec::ranges("plain", false, vec![IndexPart::Value(PLAIN)]))
            .with_index(IndexSpec::ranges("unique", true, vec![IndexPart::Value(UNIQUE)]));
        db.create_table(TABLES[0]).expect("created");
        db.create_table(TABLES[1]).expect("created");
        db.create_table_with(TABLES[2], indexes).expect("created");
        let tables = open_tables(&db);
        let keys = [6, 30, 200][rng.below(3) as usize];
        let long = rng.one_in(3);
        let large = rng.one_in(2);
        Run {
            rng,
            page_size,
            options,
            disks,
            db,
            tables,
            committed: Model::default(),
            possible: vec![Model::default()],
            writer: None,
            readers: Vec::new(),
            keys,
            long,
            large,
            trace: std::env::var_os("FIRN_TRACE").is_some(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        random_key(&mut self.rng, self.keys, self.long)
    }

    fn value(&mut self, table: usize, key: &[u8]) -> Vec<u8> {
        let most = firndb_txn::max_row_len(self.page_size) - key.len();
        let len = match self.rng.below(20) {
            // The longest that stands beside its key, and longer ones, which are cut into chunks.
            0 => most + self.rng.below(2) as usize,
            1 if self.large => self.rng.below(self.page_size as u64 * 6) as usize,
            1 => 0,
            2..=6 => self.rng.below(most as u64 + 1) as usize,
            _ => self.rng.below(24) as usize,
        };
        let len = if table == INDEXED { len.max(3) } else { len };
        let mut value: Vec<u8> = (0..len).map(|_| b'a' + self.rng.below(4) as u8).collect();
        if table == INDEXED {
            value[0] = b'0' + self.rng.below(10) as u8;
            value[1] = b'0' + self.rng.below(if self.keys > 30 { 60 } else { 5 }) as u8;
        }
        value
    }

    fn range(&mut self) -> (KeyRange, Option<Vec<u8>>, Option<Vec<u8>>) {
        let low = (!self.rng.one_in(3)).then(|| self.key());
        let high = (!self.rng.one_in(3)).then(|| self.key());
        let bound = |key: &Option<Vec<u8>>| key.clone();
        let (from, to) = (bound(&low), bound(&high));
        let range = KeyRange::new(
            low.as_deref().map_or(Bound::Unbounded, Bound::Included),
            high.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        (range, from, to)
    }

    fn writer(&mut self) -> &mut Writer {
        if self.writer.is_none() {
            let isolation = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable]
                [self.rng.below(3) as usize];
            let tx = self.db.begin_with(TransactionOptions { isolation, ..Default::default() });
            let model = self.committed.clone();
            self.writer = Some(Writer { tx, model, savepoints: Vec::new(), isolation, exposed: false });
        }
        self.writer.as_mut().expect("begun")
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", what());
        }
    }

    fn step(&mut self) {
        let kind = self.rng.below(100);
        self.tell(|| format!("{kind}: {:?}", self.writer.as_ref().map(|writer| &writer.tx)));
        match kind {
            0..=44 => self.write(),
            45..=54 => self.read(),
            55..=62 => self.scan(),
            63..=66 => self.scan_while_writing(),
            67..=70 => self.savepoint(),
            71..=74 => self.roll_back_to(),
            75..=82 => self.commit(),
            83..=85 => self.roll_back(),
            86..=88 => self.take_snapshot(),
            89..=90 => self.check_snapshots(),
            91..=93 => self.maintain(),
            94..=95 => self.second_writer_is_refused(),
            96 => self.two_phase(),
            97 => self.reopen(),
            98 => self.crash(),
            _ => self.recreate_table(),
        }
    }

    fn write(&mut self) {
        let which = self.rng.below(3) as usize;
        let key = self.key();
        let value = self.value(which, &key);
        let kind = self.rng.below(4);
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let rows = &mut writer.model[which];
        let existed = rows.contains_key(&key);
        let writes = match kind {
            0 => !existed,
            2 => existed,
            _ => true,
        };
        let taken = which == INDEXED
            && kind != 3
            && writes
            && rows.iter().any(|(other, row)| *other != key && row[UNIQUE] == value[UNIQUE]);
        let tx = &mut writer.tx;
        let answer = match kind {
            0 => tx.insert(&table, &key, &value).map(|()| false),
            1 => tx.put(&table, &key, &value),
            2 => tx.update(&table, &key, &value),
            _ => tx.delete(&table, &key),
        };
        let show = format!("statement {kind} on {}: {} = {answer:?}", TABLES[which], key.escape_ascii());
        if taken || (kind == 0 && existed) {
            let error = answer.expect_err("a duplicate");
            assert_eq!(error.kind(), ErrorKind::Duplicate, "{show}");
            return;
        }
        assert_eq!(answer, Ok(existed), "{show}");
        match kind {
            3 => drop(rows.remove(&key)),
            _ if writes => drop(rows.insert(key, value)),
            _ => {}
        }
        self.tell(|| show);
    }

    fn read(&mut self) {
        let which = self.rng.below(3) as usize;
        let key = self.key();
        let lock = self.rng.one_in(3);
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let found = if lock { writer.tx.get_for_update(&table, &key) } else { writer.tx.get(&table, &key) };
        assert_eq!(found.as_ref(), Ok(&writer.model[which].get(&key).cloned()));
        if which == INDEXED {
            let index = table.index("unique").expect("there");
            let wanted = [b'0' + (key[0] % 10), b'0' + (key[1] % 5)];
            let (mut primary, mut row) = (Vec::new(), Vec::new());
            let found = writer.tx.get_by_index(&index, &wanted, &mut primary, &mut row).expect("readable");
            let expected = writer.model[which].iter().find(|(_, row)| row[UNIQUE] == wanted);
            assert_eq!(found.then_some((&primary, &row)), expected);
        }
    }

    fn scan(&mut self) {
        let which = self.rng.below(3) as usize;
        let (range, low, high) = self.range();
        let direction = self.direction();
        let table = self.tables[which].clone();
        let writer = self.writer();
        writer.exposed = true;
        let found = scan(&mut writer.tx, &table, range, direction);
        let mut expected = within(&writer.model[which], low.as_deref(), high.as_deref());
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected);
        if which == INDEXED {
            compare_indexes(&mut writer.tx, &table, &writer.model[which], direction);
        }
    }

    /// A cursor that its own transaction writes around, refreshed after each write.
    fn scan_while_writing(&mut self) {
        let which = self.rng.below(2) as usize;
        let direction = self.direction();
        let table = self.tables[which].clone();
        let mut cursor = self.writer().tx.scan(&table, KeyRange::all(), direction);
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..self.rng.between(1, 12) {
            let writer = self.writer();
            let rows = &writer.model[which];
            let expected = match (&last, direction) {
                (None, Direction::Forward) => rows.first_key_value(),
                (None, Direction::Backward) => rows.last_key_value(),
                (Some(last), Direction::Forward) => {
                    rows.range::<[u8], _>((Bound::Excluded(&last[..]), Bound::Unbounded)).next()
                }
                (Some(last), Direction::Backward) => {
                    rows.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&last[..]))).next_back()
                }
            };
            let found = cursor.next(&mut writer.tx).expect("readable");
            assert_eq!(found, expected.map(|(key, value)| (&key[..], &value[..])));
            match found {
                Some((key, _)) => last = Some(key.to_vec()),
                None => return,
            }
            if self.rng.one_in(2) {
                self.write();
                cursor.refresh();
            }
        }
    }

    fn direction(&mut self) -> Direction {
        if self.rng.one_in(2) { Direction::Forward } else { Direction::Backward }
    }

    fn savepoint(&mut self) {
        let writer = self.writer();
        writer.savepoints.push((writer.tx.savepoint(), writer.model.clone()));
    }

    fn roll_back_to(&mut self) {
        let pick = self.rng.next_u64() as usize;
        let writer = self.writer();
        if writer.savepoints.is_empty() {
            return;
        }
        let at = pick % writer.savepoints.len();
        writer.savepoints.truncate(at + 1);
        let (savepoint, model) = &writer.savepoints[at];
        writer.tx.rollback_to(savepoint).expect("rolled back");
        writer.model = model.clone();
    }

    fn commit(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.committed = writer.model;
        match self.rng.below(3) {
            0 => {
                let commit = writer.tx.commit_async().expect("ordered");
                self.possible.push(self.committed.clone());
                if self.rng.one_in(2) {
                    commit.wait().expect("durable");
                    if writer.exposed {
                        self.all_is_durable();
                    }
                }
            }
            _ => {
                writer.tx.commit().expect("committed");
                if writer.exposed {
                    self.all_is_durable();
                }
            }
        }
    }

    fn all_is_durable(&mut self) {
        self.possible = vec![self.committed.clone()];
    }

    fn roll_back(&mut self) {
        if let Some(writer) = self.writer.take() {
            match self.rng.below(2) {
                0 => writer.tx.rollback().expect("rolled back"),
                _ => drop(writer),
            }
        }
    }

    fn take_snapshot(&mut self) {
        if self.readers.len() == 3 {
            let which = self.rng.below(3) as usize;
            let (mut tx, model) = self.readers.swap_remove(which);
            compare(&mut tx, &self.tables, &model);
            tx.commit().expect("what it saw becomes durable");
        }
        let mut tx = self.db.snapshot();
        // It sees the database as it is at its first read.
        let first = tx.get(&self.tables[0], b"no such key").expect("readable");
        assert_eq!(first, None);
        self.readers.push((tx, self.committed.clone()));
    }

    fn check_snapshots(&mut self) {
        for (tx, model) in &mut self.readers {
            compare(tx, &self.tables, model);
        }
        let mut latest = self.db.snapshot();
        compare(&mut latest, &self.tables, &self.committed);
    }

    fn maintain(&mut self) {
        match self.rng.below(3) {
            0 => {
                self.db.checkpoint().expect("a checkpoint");
                self.all_is_durable();
            }
            _ => {
                for _ in 0..self.rng.below(20) {
                    self.db.step().expect("a step");
                }
            }
        }
    }

    /// Rows that the writer has changed cannot be written or locked by another; all others can.
    fn second_writer_is_refused(&mut self) {
        let which = self.rng.below(2) as usize;
        let key = self.key();
        let table = self.tables[which].clone();
        let committed = self.committed[which].get(&key).cloned();
        let writer = self.writer();
        let changed = writer.model[which].get(&key) != committed.as_ref();
        let locks_nothing = writer.tx.id().is_none();
        let isolation = writer.isolation;
        let mut other = self.db.begin();
        let answer = other.get_for_update(&table, &key);
        if changed {
            assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
        } else if locks_nothing {
            assert_eq!(answer, Ok(committed), "{isolation:?}");
        }
        let answer = other.put(&table, &key, b"other");
        if changed {
            assert_eq!(answer.expect_err("it is locked").kind(), ErrorKind::Timeout);
        }
        other.rollback().expect("rolled back");
    }

    fn two_phase(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let wrote = writer.model != self.committed;
        let gid = self.rng.next_u64().to_be_bytes();
        match writer.tx.prepare(&gid) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                assert!(!wrote, "{error}");
                return;
            }
        }
        self.all_is_durable();
        let after = writer.model;
        for _ in 0..self.rng.below(3) {
            match self.rng.below(3) {
                0 => self.reopen_now(),
                1 => self.crash_now(),
                _ => self.maintain(),
            }
            assert_eq!(self.db.prepared(), [gid.to_vec()]);
            self.check_snapshots();
            for (which, rows) in after.iter().enumerate().take(2) {
                let changed = rows.iter().find(|(key, row)| self.committed[which].get(*key) != Some(row));
                if let Some((key, _)) = changed {
                    let mut other = self.db.begin();
                    let error = other.put(&self.tables[which], key, b"other").expect_err("it is locked");
                    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                }
            }
        }
        if self.rng.one_in(2) {
            self.db.commit_prepared(&gid).expect("committed");
            self.committed = after;
        } else {
            self.db.rollback_prepared(&gid).expect("rolled back");
        }
        assert_eq!(self.db.commit_prepared(&gid).expect_err("ended").kind(), ErrorKind::BadArgument);
        // A rollback is not waited for: a crash may bring the prepared transaction back. So make it
        // durable.
        self.db.checkpoint().expect("a checkpoint");
        self.all_is_durable();
    }

    /// Closes and opens, with transactions open or not.
    fn reopen(&mut self) {
        self.roll_back();
        self.reopen_now();
    }

    fn reopen_now(&mut self) {
        let db = self.db.clone();
        if self.rng.one_in(2) {
            self.readers.clear();
        }
        db.close().expect("closed");
        self.open_again(self.disks.crashed());
        // Closing makes everything durable.
        self.all_is_durable();
        self.check_snapshots();
    }

    /// What was written stays, what was only in memory is gone.
    fn crash(&mut self) {
        self.crash_now();
        self.writer = None;
    }

    fn crash_now(&mut self) {
        let disks = self.disks.crashed();
        self.open_again(disks);
        let mut tx = self.db.snapshot();
        let found: Model = std::array::from_fn(|which| {
            scan(&mut tx, &self.tables[which], KeyRange::all(), Direction::Forward).into_iter().collect()
        });
        assert!(
            self.possible.contains(&found),
            "a crash brought back a state that never was; it differs from the last in {:?}",
            differences(&found, &self.committed)
        );
        self.committed = found;
        self.all_is_durable();
        drop(tx);
        self.check_snapshots();
    }

    fn open_again(&mut self, disks: Disks) {
        self.readers.clear();
        self.writer = None;
        self.tables.clear();
        if self.rng.one_in(3) {
            // The memory for versions may differ between two openings.
            let bytes = [0, 2000, 1 << 20][self.rng.below(3) as usize];
            self.options = self.options.clone().tuning(|tuning| tuning.version_bytes(bytes));
        }
        let mut db = self.options.clone().open_on(disks.devices()).expect("opens");
        if self.rng.one_in(3) {
            // Recovery is repeated: a crash comes right after it.
            let again = disks.crashed();
            let second = self.options.clone().open_on(again.devices()).expect("opens twice");
            (self.disks, db) = (again, second);
        } else {
            self.disks = disks;
        }
        self.db = db;
        self.tables = open_tables(&self.db);
    }

    /// A table of the same name is empty when it was dropped in between.
    fn recreate_table(&mut self) {
        if !self.rng.one_in(4) {
            return;
        }
        self.roll_back();
        self.readers.clear();
        self.db.drop_table(TABLES[1]).expect("dropped");
        let stale = self.db.begin().get(&self.tables[1], b"k").expect_err("it was dropped");
        assert_eq!(stale.kind(), ErrorKind::Stale, "{stale}");
        self.tables[1] = self.db.create_table(TABLES[1]).expect("created");
        self.committed[1].clear();
        self.db.checkpoint().expect("a checkpoint");
        self.all_is_durable();
    }
}

fn open_tables(db: &Database) -> Vec<Table> {
    TABLES.iter().map(|name| db.table(name).expect("the table is there")).collect()
}

fn random_key(rng: &mut Rng, keys: u64, long: bool) -> Vec<u8> {
    let number = rng.below(keys);
    let mut key = format!("{number:03}").into_bytes();
    if long {
        // Its length is a function of the number, so that equal numbers are equal keys.
        key.resize(3 + (number as usize * 7) % 50, b'k');
    }
    key
}

fn within(rows: &Rows, low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows.iter()
        .filter(|(key, _)| low.is_none_or(|low| low <= &key[..]) && high.is_none_or(|high| &key[..] < high))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Table, key, value found and value expected, for people.
fn differences(found: &Model, expected: &Model) -> Vec<String> {
    let mut sentences = Vec::new();
    for (which, (found, expected)) in found.iter().zip(expected).enumerate() {
        let keys: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
        for key in keys.into_iter().filter(|key| found.get(*key) != expected.get(*key)) {
            let show = |rows: &Rows| rows.get(key).map(|value| value.escape_ascii().to_string());
            sentences.push(format!(
                "{} {}: {:?}, not {:?}",
                TABLES[which],
                key.escape_ascii(),
                show(found),
                show(expected)
            ));
        }
    }
    sentences
}

fn compare(tx: &mut Transaction, tables: &[Table], model: &Model) {
    for (table, rows) in tables.iter().zip(model) {
        let expected = within(rows, None, None);
        assert_eq!(scan(tx, table, KeyRange::all(), Direction::Forward), expected);
        let mut backward = scan(tx, table, KeyRange::all(), Direction::Backward);
        backward.reverse();
        assert_eq!(backward, expected);
        for (key, value) in rows.iter().step_by(3) {
            assert_eq!(tx.get(table, key).expect("readable").as_ref(), Some(value));
        }
    }
    compare_indexes(tx, &tables[INDEXED], &model[INDEXED], Direction::Forward);
}

fn compare_indexes(tx: &mut Transaction, table: &Table, rows: &Rows, direction: Direction) {
    for (name, part) in [("plain", PLAIN), ("unique", UNIQUE)] {
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> =
            rows.iter().map(|(key, value)| (value[part.clone()].to_vec(), key.clone())).collect();
        expected.sort();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let index = table.index(name).expect("there");
        let mut cursor = tx.scan_index(&index, KeyRange::all(), direction);
        let mut found = Vec::new();
        while let Some(row) = cursor.next(tx).expect("readable") {
            assert_eq!(rows.get(row.primary_key).map(Vec::as_slice), Some(row.row));
            found.push((row.row[part.clone()].to_vec(), row.primary_key.to_vec()));
        }
        assert_eq!(found, expected, "index {name}");
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    let steps = run.rng.between(20, 400);
    for _ in 0..steps {
        run.step();
    }
    run.check_snapshots();
    run.roll_back();
    run.readers.clear();
    if run.rng.one_in(4) {
        let report = run.db.check(&mut |_| {}).expect("can be checked");
        assert_eq!(report.damage, Vec::<String>::new());
    }
    run.crash_now();
}

#[test]
fn random_runs_agree_with_the_model() {
    histories_support::within(Duration::from_secs(300), || for_seeds(1000, run));
}
